"""Lists in pages: each page of one list shows the same moment, however long the client takes to turn it.

Belongs here: continue tokens and cutting pages. Never: how the past is kept, which is history's.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

import orjson

from accelshare.testing.api_server.errors import ApiError, bad_request, expired
from accelshare.testing.api_server.history import Collection, Version
from accelshare.testing.api_server.resources import Resource
from accelshare.testing.api_server.selectors import Selector

_TOKEN_VERSION: Final = "meta.k8s.io/v1"  # noqa: S105 – of a continue token, which is no secret
_LATEST: Final = -1
_INCONSISTENT: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the "
    "continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with "
    "the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Page:
    """Some of a list's objects, the moment they show, and how to get the next ones."""

    resource: Resource
    versions: tuple[Version, ...]
    revision: int
    continue_token: str = ""

    @property
    def json(self) -> bytes:
        """The list object."""
        metadata = {"resourceVersion": str(self.revision)} | ({"continue": self.continue_token} if self.continue_token else {})
        head = {"kind": f"{self.resource.kind}List", "apiVersion": self.resource.api_version, "metadata": metadata}
        items = b",".join(version.item for version in self.versions)
        return orjson.dumps(head)[:-1] + b',"items":[' + items + b"]}"


def page(
    resource: Resource,
    collection: Collection,
    *,
    namespace: str,
    selector: Selector,
    limit: int,
    token: str,
    current: int,
) -> Page:
    """One page; the first one of a list when there is no token yet. 410 when the token's moment is forgotten."""
    prefix = f"{namespace}/" if namespace else ""
    start, revision = _read(token) if token else ("", current)
    if revision == _LATEST:
        revision = current
    if revision > current:
        raise bad_request(f"Too large resource version: {revision}, current: {current}")
    try:
        keys, objects = collection.at(revision)
    except ApiError as error:
        raise expired(_INCONSISTENT, continue_token=_write(start, _LATEST)) from error

    found: list[Version] = []
    for position in range(bisect_left(keys, prefix + start), len(keys)):
        if not keys[position].startswith(prefix):
            break
        version = objects[keys[position]]
        if not selector.matches(version.object, resource.fields):
            continue
        if limit and len(found) == limit:
            last = resource.key(found[-1].object["metadata"].get("namespace", ""), found[-1].object["metadata"]["name"])
            return Page(resource, tuple(found), revision, _write(last.removeprefix(prefix) + "\x00", revision))
        found.append(version)
    return Page(resource, tuple(found), revision)


def _write(start: str, revision: int) -> str:
    token = orjson.dumps({"v": _TOKEN_VERSION, "rv": revision, "start": start})
    return urlsafe_b64encode(token).rstrip(b"=").decode()


def _read(token: str) -> tuple[str, int]:
    try:
        content = orjson.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, revision, start = content["v"], int(content["rv"]), str(content["start"])
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error
    if version != _TOKEN_VERSION or not revision or not start:
        raise bad_request("continue key is not valid: it has no version, moment or start")
    return start, revision
