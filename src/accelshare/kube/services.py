"""Reads the cluster IPs of a Service, for hosts that cannot use the cluster's DNS.

Belongs here: one request. Never: what is served there.
"""

import msgspec

from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import BadAnswer, NotFound
from accelshare.wire.decoding import Decoder


class _Spec(msgspec.Struct):
    clusterIPs: list[str] | None = None  # noqa: N815 – Kubernetes' spelling
    clusterIP: str | None = None  # noqa: N815


class _Service(msgspec.Struct):
    spec: _Spec


_services = Decoder(_Service)


async def cluster_ips(client: Client, namespace: str, name: str) -> tuple[str, ...]:
    """The Service's cluster IPs in their order; none if the Service does not exist or is headless."""
    try:
        body = await client.request("GET", paths.service(namespace, name))
    except NotFound:
        return ()
    try:
        spec = _services.decode(body).spec
    except ValueError as error:
        raise BadAnswer(f"Service {namespace}/{name}: {error}") from error
    addresses = spec.clusterIPs or ([spec.clusterIP] if spec.clusterIP else [])  # Kubernetes before 1.20 has one only
    return tuple(address for address in addresses if address != "None")  # a headless Service
