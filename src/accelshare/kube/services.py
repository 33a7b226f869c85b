"""The address of a Service, for those who cannot ask the cluster's DNS.

Belongs here: one question. Never: what is served there.
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
    """The Service's own addresses, the first one first; none if it is not there, or has none."""
    try:
        body = await client.request("GET", paths.service(namespace, name))
    except NotFound:
        return ()
    try:
        spec = _services.decode(body).spec
    except ValueError as error:
        raise BadAnswer(f"Service {namespace}/{name}: {error}") from error
    given = spec.clusterIPs or ([spec.clusterIP] if spec.clusterIP else [])  # Kubernetes before 1.20 has one only
    return tuple(address for address in given if address != "None")  # the word for a headless Service
