"""What a DELETE request does to an object now, and what is left for later.

Belongs here: grace periods, finalizers, preconditions. Never: writing to the store.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from accelshare.testing.api_server.errors import Object, bad_request, conflict
from accelshare.testing.api_server.history import ObjectVersion
from accelshare.testing.api_server.resources import ApiResource


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """A client's DeleteOptions."""

    grace_s: int | None = None
    uid: str = ""
    revision: str = ""


@dataclass(frozen=True, slots=True)
class DeletionStep:
    """The effect of one request: the object marked as terminating, if that changes it, and whether it is removed now."""

    marked: Object | None
    remove: bool


@dataclass(frozen=True, slots=True)
class Deleted:
    """The object's last version, and whether it is removed."""

    version: ObjectVersion
    gone: bool


def read_options(body: Mapping[str, Any]) -> DeleteOptions:
    grace = body.get("gracePeriodSeconds")
    if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int)):
        raise bad_request(f"gracePeriodSeconds is {grace!r}; it must be a whole number of seconds")
    preconditions = body.get("preconditions") or {}
    return DeleteOptions(
        grace_s=grace if grace is None or grace >= 0 else 1,
        uid=preconditions.get("uid") or "",
        revision=preconditions.get("resourceVersion") or "",
    )


def check_preconditions(resource: ApiResource, item: Object, options: DeleteOptions) -> None:
    """409 if the stored object has another uid or version than the preconditions."""
    meta = item["metadata"]
    if options.uid and options.uid != meta["uid"]:
        text = f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']})."
        why = f"{text} The object might have been deleted and then recreated"
        raise conflict(resource.kind, meta["name"], why, group=resource.group)
    if options.revision and options.revision != meta["resourceVersion"]:
        text = f"the ResourceVersion in the precondition ({options.revision}) does not match the ResourceVersion in record"
        why = f"{text} ({meta['resourceVersion']}). The object might have been modified"
        raise conflict(resource.kind, meta["name"], why, group=resource.group)


def plan(resource: ApiResource, item: Object, options: DeleteOptions, now: datetime) -> DeletionStep:
    """What a deletion of this object does now."""
    meta = item["metadata"]
    has_finalizers = bool(meta.get("finalizers"))
    if resource.grace_s is None:
        if not has_finalizers:
            return DeletionStep(None, remove=True)
        return DeletionStep(None if "deletionTimestamp" in meta else _marked(item, now, 0), remove=False)
    if "deletionTimestamp" not in meta:
        grace_s = resource.grace_s(item, options.grace_s)
        return DeletionStep(_marked(item, now + timedelta(seconds=grace_s), grace_s), remove=not grace_s and not has_finalizers)
    pending_s = meta.get("deletionGracePeriodSeconds", 0)
    if not pending_s:
        return DeletionStep(None, remove=not has_finalizers)
    if options.grace_s is None or options.grace_s >= pending_s:  # a grace period can only be shortened
        return DeletionStep(None, remove=False)
    shortened_s = options.grace_s - pending_s
    until = max(now, datetime.fromisoformat(meta["deletionTimestamp"]) + timedelta(seconds=shortened_s))
    return DeletionStep(_marked(item, until, options.grace_s), remove=not options.grace_s and not has_finalizers)


def ends_with_update(new: Object, old: Object) -> bool:
    """Whether this update ends a deletion: the last finalizer is removed and no grace period is left."""
    waiting = bool(old["metadata"].get("finalizers")) and "deletionTimestamp" in old["metadata"]
    return waiting and not new["metadata"].get("finalizers") and not old["metadata"].get("deletionGracePeriodSeconds")


def timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _marked(item: Object, until: datetime, grace_s: int) -> Object:
    meta = item["metadata"] | {"deletionTimestamp": timestamp(until), "deletionGracePeriodSeconds": grace_s}
    if "generation" in meta and "deletionTimestamp" not in item["metadata"]:
        meta["generation"] += 1
    return item | {"metadata": meta}
