"""Deleting in steps: what a deletion does to an object now, and what is left for later.

Belongs here: grace periods, finalizers, preconditions. Never: writing to the store.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from accelshare.testing.api_server.errors import Object, bad_request, conflict
from accelshare.testing.api_server.history import Version
from accelshare.testing.api_server.resources import Resource


@dataclass(frozen=True, slots=True)
class Wish:
    """What a client's DeleteOptions ask for."""

    grace_s: int | None = None
    uid: str = ""
    revision: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One deletion's effect: the object marked as being deleted, if that changes it; and whether it goes now."""

    marked: Object | None
    remove: bool


@dataclass(frozen=True, slots=True)
class Deleted:
    """The last version of the object, and whether it is gone."""

    version: Version
    gone: bool


def read_options(options: Mapping[str, Any]) -> Wish:
    grace = options.get("gracePeriodSeconds")
    if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int)):
        raise bad_request(f"gracePeriodSeconds is {grace!r}; it must be a whole number of seconds")
    preconditions = options.get("preconditions") or {}
    return Wish(
        grace_s=grace if grace is None or grace >= 0 else 1,
        uid=preconditions.get("uid") or "",
        revision=preconditions.get("resourceVersion") or "",
    )


def require(resource: Resource, item: Object, wish: Wish) -> None:
    """409 when the stored object is not the one that the client meant."""
    meta = item["metadata"]
    if wish.uid and wish.uid != meta["uid"]:
        text = f"the UID in the precondition ({wish.uid}) does not match the UID in record ({meta['uid']})."
        why = f"{text} The object might have been deleted and then recreated"
        raise conflict(resource.kind, meta["name"], why, group=resource.group)
    if wish.revision and wish.revision != meta["resourceVersion"]:
        text = f"the ResourceVersion in the precondition ({wish.revision}) does not match the ResourceVersion in record"
        why = f"{text} ({meta['resourceVersion']}). The object might have been modified"
        raise conflict(resource.kind, meta["name"], why, group=resource.group)


def plan(resource: Resource, item: Object, wish: Wish, now: datetime) -> Step:
    """What deleting this object does now."""
    meta = item["metadata"]
    held = bool(meta.get("finalizers"))
    if resource.grace_s is None:
        if not held:
            return Step(None, remove=True)
        return Step(None if "deletionTimestamp" in meta else _marked(item, now, 0), remove=False)
    if "deletionTimestamp" not in meta:
        grace_s = resource.grace_s(item, wish.grace_s)
        return Step(_marked(item, now + timedelta(seconds=grace_s), grace_s), remove=not grace_s and not held)
    pending_s = meta.get("deletionGracePeriodSeconds", 0)
    if not pending_s:
        return Step(None, remove=not held)
    if wish.grace_s is None or wish.grace_s >= pending_s:  # a deletion under way can only be made faster
        return Step(None, remove=False)
    shortened_s = wish.grace_s - pending_s
    until = max(now, datetime.fromisoformat(meta["deletionTimestamp"]) + timedelta(seconds=shortened_s))
    return Step(_marked(item, until, wish.grace_s), remove=not wish.grace_s and not held)


def ends_with_update(new: Object, old: Object) -> bool:
    """Was this update the one that an object under deletion has waited for: its last finalizer gone, no grace left?"""
    waiting = bool(old["metadata"].get("finalizers")) and "deletionTimestamp" in old["metadata"]
    return waiting and not new["metadata"].get("finalizers") and not old["metadata"].get("deletionGracePeriodSeconds")


def timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _marked(item: Object, until: datetime, grace_s: int) -> Object:
    meta = item["metadata"] | {"deletionTimestamp": timestamp(until), "deletionGracePeriodSeconds": grace_s}
    if "generation" in meta and "deletionTimestamp" not in item["metadata"]:
        meta["generation"] += 1
    return item | {"metadata": meta}
