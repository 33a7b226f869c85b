"""Makes the extenders' Service lead to the holder of the Lease alone, by writing its EndpointSlices.

Belongs here: one EndpointSlice for each family of addresses, kept as it should be while this extender is the holder.
Never: who is the holder.

kubelet's readiness would be too late: it is asked every few seconds, and never again on a node that died. And standbys that are
never ready would block rollouts and disruption budgets.

An EndpointSlice belongs to the pod of the holder: Kubernetes deletes it with that pod. So no dead address stays when no holder
comes after it, as with an upgrade to one extender, which has no Lease and no right to write here.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from accelshare.extender.own_pod import OwnPod
from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import BadAnswer, Forbidden, KubeError, NotFound
from accelshare.wire.decoding import Decoder

log = logging.getLogger(__name__)
MERGE_PATCH: Final = "application/merge-patch+json"
CHECK_EVERY_S: Final = 2.0
RETRY_S: Final = 0.25
REQUEST_S: Final = 2.0
MANAGED_BY: Final = "accelshare-extender"


class ServiceEndpoints:
    def __init__(self, client: Client, namespace: str, service: str, *, port: int, may_write: Callable[[], bool]) -> None:
        """`port` is where the extender listens."""
        self._client = client
        self._namespace = namespace
        self._service = service
        self._port = port
        self._may_write = may_write
        self._port_names: list[str] = []
        self._may_change_owners = True  # as far as it is known
        self._slices: list[_Slice] = []

    async def prepare(self) -> dict[str, object]:
        """Read the Service, and return the reference by which an object is deleted together with it."""
        path = paths.service(self._namespace, self._service)
        while True:
            try:
                service = _services.decode(await self._client.request("GET", path, timeout_s=REQUEST_S))
                break
            except (KubeError, ValueError) as error:
                log.warning("service name=%s outcome=not-read error=%r", self._service, str(error))
            await asyncio.sleep(RETRY_S)
        self._port_names = [port.name for port in service.spec.ports or ()]
        return {"apiVersion": "v1", "kind": "Service", "name": self._service, "uid": service.metadata.uid}

    async def publish(self, own: OwnPod) -> None:
        """Lead the Service to this pod; returns when all of its EndpointSlices do."""
        self._slices = [self._slice(address, own) for address in own.addresses]
        while not await self._write_all():  # noqa: ASYNC110 – a request, not a flag
            await asyncio.sleep(RETRY_S)
        log.info("service name=%s addresses=%s outcome=published", self._service, ",".join(own.addresses))

    async def run(self) -> None:
        """Put right what another program changes, such as an extender that was the holder and wrote late."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            if self._slices and self._may_write():
                await self._write_all()

    async def withdraw(self) -> None:
        """Leave no address of an extender that ends, unless the next holder has already written its own."""
        for each in self._slices:
            try:
                found = await self._read(each)
                if found is not None and found.endpoints == each.endpoints:
                    await self._patch(each, found.metadata.version, {"endpoints": []})
            except KubeError as error:
                log.info("service name=%s outcome=not-withdrawn error=%r", self._service, str(error))

    async def _write_all(self) -> bool:
        try:
            for each in self._slices:
                await self._write(each)
        except KubeError as error:
            log.warning("service name=%s outcome=not-published error=%r", self._service, str(error))
            return False
        return True

    async def _write(self, wanted: "_Slice") -> None:
        found = await self._read(wanted)
        if found is None:
            body = msgspec.json.encode(self._new(wanted))
            await self._client.request("POST", paths.endpoint_slice(self._namespace), body=body, timeout_s=REQUEST_S)
        elif content := wanted.differences(found, with_owners=self._may_change_owners):
            # With its version: a write that arrives after that of the next holder is refused.
            try:
                await self._patch(wanted, found.metadata.version, content)
            except Forbidden:
                if not self._may_change_owners or found.metadata.owners == wanted.owners:
                    raise
                # Some clusters ask for the right to delete an object of which the owner changes.
                self._may_change_owners = False
                await self._write(wanted)

    async def _read(self, each: "_Slice") -> "_Found | None":
        try:
            path = paths.endpoint_slice(self._namespace, each.name)
            return _found.decode(await self._client.request("GET", path, timeout_s=REQUEST_S))
        except NotFound:
            return None
        except ValueError as error:
            raise BadAnswer(f"endpointslice {each.name}: {error}") from error

    async def _patch(self, each: "_Slice", version: str, content: dict[str, Any]) -> None:
        metadata = {**content.get("metadata", {}), "resourceVersion": version}
        body = msgspec.json.encode({**content, "metadata": metadata})
        path = paths.endpoint_slice(self._namespace, each.name)
        await self._client.request("PATCH", path, body=body, content_type=MERGE_PATCH, timeout_s=REQUEST_S)

    def _slice(self, address: str, own: OwnPod) -> "_Slice":
        family = f"IPv{ipaddress.ip_address(address).version}"
        target = {"kind": "Pod", "namespace": self._namespace, "name": own.metadata.name, "uid": own.metadata.uid}
        endpoint: dict[str, Any] = {"addresses": [address], "conditions": {"ready": True}, "targetRef": target}
        if own.spec.node:
            endpoint["nodeName"] = own.spec.node
        ports = [{"name": name, "port": self._port, "protocol": "TCP"} for name in self._port_names]
        labels = {"kubernetes.io/service-name": self._service, "endpointslice.kubernetes.io/managed-by": MANAGED_BY}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": own.metadata.name, "uid": own.metadata.uid}
        return _Slice(f"{self._service}-{family.lower()}", family, [endpoint], ports, labels, [owner])

    def _new(self, wanted: "_Slice") -> dict[str, object]:
        metadata = {
            "name": wanted.name,
            "namespace": self._namespace,
            "labels": wanted.labels,
            "ownerReferences": wanted.owners,
        }
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata,
            "addressType": wanted.family,
            "endpoints": wanted.endpoints,
            "ports": wanted.ports,
        }


class _Slice(msgspec.Struct, frozen=True):
    name: str
    family: str
    endpoints: list[dict[str, Any]]
    ports: list[dict[str, Any]]
    labels: dict[str, str]
    owners: list[dict[str, Any]]

    def differences(self, found: "_Found", *, with_owners: bool) -> dict[str, Any]:
        """What is to be written so that the object is as it should be; empty: it is. Labels of others stay."""
        content: dict[str, Any] = {}
        if found.endpoints != self.endpoints or found.ports != self.ports:
            content = {"endpoints": self.endpoints, "ports": self.ports}
        metadata: dict[str, Any] = {}
        if not self.labels.items() <= (found.metadata.labels or {}).items():
            metadata["labels"] = self.labels
        if with_owners and found.metadata.owners != self.owners:
            metadata["ownerReferences"] = self.owners
        return content | ({"metadata": metadata} if metadata else {})


class _Version(msgspec.Struct, rename={"version": "resourceVersion", "owners": "ownerReferences"}):
    version: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    owners: list[dict[str, Any]] | None = None


class _Found(msgspec.Struct):
    metadata: _Version
    endpoints: list[dict[str, Any]] | None = None
    ports: list[dict[str, Any]] | None = None


class _Port(msgspec.Struct):
    name: str = ""


class _ServiceSpec(msgspec.Struct):
    ports: list[_Port] | None = None


class _Service(msgspec.Struct):
    metadata: _Version
    spec: _ServiceSpec


_found = Decoder(_Found)
_services = Decoder(_Service)
