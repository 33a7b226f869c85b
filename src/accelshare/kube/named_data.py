"""Reads and writes Secrets and ConfigMaps, with optimistic locking by resourceVersion.

Belongs here: reading, creating, changing, deleting one object. Never: what its data means.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import BadAnswer, NotFound
from accelshare.wire.decoding import Decoder

MERGE = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Place:
    """The kind, namespace and name of one object."""

    kind: Literal["Secret", "ConfigMap"]
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        return self._path(self.name)

    @property
    def collection(self) -> str:
        return self._path("")

    def _path(self, name: str) -> str:
        return paths.secret(self.namespace, name) if self.kind == "Secret" else paths.config_map(self.namespace, name)


@dataclass(frozen=True, slots=True)
class Stored:
    """The object as it was read. A change that names its version fails with Conflict if another writer was first."""

    data: Mapping[str, str]
    labels: Mapping[str, str]
    version: str
    uid: str


async def read(client: Client, place: Place) -> Stored | None:
    """The object, or None if there is none."""
    try:
        body = await client.request("GET", place.path)
    except NotFound:
        return None
    return _stored(body, place)


async def create(
    client: Client, place: Place, data: Mapping[str, str], *, labels: Mapping[str, str], form: str | None = None
) -> Stored:
    """A new object; Conflict if there is one already. `form` is a Secret's type."""
    content = {
        "apiVersion": "v1",
        "kind": place.kind,
        "metadata": {"name": place.name, "namespace": place.namespace, "labels": dict(labels)},
        "data": _written(place, data),
        **({"type": form} if form is not None else {}),
    }
    return _stored(await client.request("POST", place.collection, body=msgspec.json.encode(content)), place)


async def change(client: Client, place: Place, data: Mapping[str, str | None], *, version: str | None = None) -> Stored:
    """Set these keys; None removes one; others stay. With a version: Conflict if the object has another version now."""
    content = {"data": _written(place, data), **({"metadata": {"resourceVersion": version}} if version is not None else {})}
    body = await client.request("PATCH", place.path, body=msgspec.json.encode(content), content_type=MERGE)
    return _stored(body, place)


async def remove(client: Client, place: Place) -> bool:
    """False if it was not there."""
    try:
        await client.request("DELETE", place.path)
    except NotFound:
        return False
    return True


class _Metadata(msgspec.Struct, rename={"version": "resourceVersion"}):
    version: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, str] | None = None


_objects = Decoder(_Object)


def _stored(body: bytes, place: Place) -> Stored:
    try:
        stored = _objects.decode(body)
        data = stored.data or {}
        if place.kind == "Secret":
            data = {key: base64.b64decode(value).decode("utf-8", "replace") for key, value in data.items()}
    except (ValueError, binascii.Error) as error:
        raise BadAnswer(f"{place}: {error}") from error
    return Stored(data, stored.metadata.labels or {}, stored.metadata.version, stored.metadata.uid)


def _written(place: Place, data: Mapping[str, str | None]) -> dict[str, str | None]:
    if place.kind == "ConfigMap":
        return dict(data)
    return {key: None if value is None else base64.b64encode(value.encode()).decode() for key, value in data.items()}
