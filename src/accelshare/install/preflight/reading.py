"""One snapshot of a cluster, asked for once.

Belongs here: which questions are asked; what is refused becomes a word in the snapshot. Never: judging, writing.
"""

from collections.abc import Collection, Iterable
from typing import Final, TypeVar

import msgspec

from accelshare.install.preflight.objects import Lease, Node, Pod, Service, Workload
from accelshare.install.preflight.snapshot import Part, Snapshot
from accelshare.kube import paths
from accelshare.kube.access import Right, may
from accelshare.kube.client import Client
from accelshare.kube.errors import BadAnswer, Forbidden, NotFound
from accelshare.wire.decoding import Decoder, UnreadableError

T = TypeVar("T")

NOT_ENDED: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


async def read(client: Client, parts: Collection[Part], rights: Iterable[Right]) -> Snapshot:
    """These parts of the cluster as they are now. Unreachable and Unauthorized are raised: then there is nothing to say."""
    asking = _Asking(client, parts)
    return Snapshot(
        version=await asking.version(),
        nodes=await asking.all(Part.NODES, "/api/v1/nodes", Node),
        pods=await asking.all(Part.PODS, "/api/v1/pods", Pod, NOT_ENDED),
        services=await asking.all(Part.SERVICES, "/api/v1/services", Service),
        deployments=await asking.all(Part.DEPLOYMENTS, "/apis/apps/v1/deployments", Workload),
        daemon_sets=await asking.all(Part.DAEMON_SETS, "/apis/apps/v1/daemonsets", Workload),
        scheduler_holder=await asking.holder(),
        rights=await asking.rights(rights),
        unread=asking.unread,
    )


class _Asking:
    """One question after the other, none that nobody wants; `unread` says which of them the API server did not answer."""

    def __init__(self, client: Client, parts: Collection[Part]) -> None:
        self._client = client
        self._parts = parts
        self.unread: dict[str, str] = {}

    async def version(self) -> str:
        if Part.VERSION not in self._parts:
            return ""
        answer = await self._client.request("GET", "/version")
        try:
            return Decoder(_Version).decode(answer).git_version
        except ValueError as error:
            raise BadAnswer(f"GET /version: not a version: {error}") from error

    async def all(self, part: Part, path: str, kind: type[T], params: dict[str, str] | None = None) -> tuple[T, ...]:
        """Every object that can be read; none, and a word, if the API server shows none."""
        if part not in self._parts:
            return ()
        decoder = Decoder(kind)
        found: list[T] = []
        try:
            async for page in self._client.pages(path, params=params):
                for item in page.items:
                    try:
                        found.append(decoder.decode(item))
                    except UnreadableError as error:
                        self.unread[f"one of the {part.value}"] = str(error)
        except (Forbidden, NotFound) as error:
            self.unread[part.value] = str(error)
        return tuple(found)

    async def holder(self) -> str:
        """Who holds kube-scheduler's Lease. A cluster that keeps it elsewhere (before 1.20), or hides it, is no fault."""
        if Part.LEASE not in self._parts:
            return ""
        try:
            answer = await self._client.request("GET", paths.lease("kube-system", "kube-scheduler"))
            return Decoder(Lease).decode(answer).spec.holder_identity or ""
        except (NotFound, Forbidden, UnreadableError):
            return ""

    async def rights(self, rights: Iterable[Right]) -> dict[Right, bool]:
        if Part.RIGHTS not in self._parts:
            return {}
        try:
            return {right: await may(self._client, right) for right in rights}
        except (Forbidden, NotFound) as error:
            self.unread[Part.RIGHTS.value] = str(error)
            return {}
