"""Which node is this?

Belongs here: four ways to know, in order, and a check against the cluster. An operator that cannot inject the node's name into a
pod must not be stuck: the pod's own object tells it too.
"""

import socket
from collections.abc import Mapping
from pathlib import Path

from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError, NotFound
from accelshare.wire.objects import pod_decoder

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class UnknownNodeError(Exception):
    """No node of the cluster is this one; the message says what was tried and what to do."""


async def node_name(
    client: Client, *, flag: str | None, environ: Mapping[str, str], namespace_file: Path = NAMESPACE_FILE
) -> str:
    """The flag, else NODE_NAME, else the pod we run in, else the host's name; and the cluster has such a node."""
    name, source = await _guess(client, flag, environ, namespace_file)
    try:
        await client.request("GET", paths.node(name))
    except ValueError as error:
        raise UnknownNodeError(f"{error} ({source})") from error
    except NotFound:
        raise UnknownNodeError(
            f"the cluster has no node {name!r} ({source}); give its name with --node-name or the variable NODE_NAME"
        ) from None
    return name


async def _guess(client: Client, flag: str | None, environ: Mapping[str, str], namespace_file: Path) -> tuple[str, str]:
    if flag:
        return flag, "from --node-name"
    if environ.get("NODE_NAME"):
        return environ["NODE_NAME"], "from NODE_NAME"
    host = (environ.get("HOSTNAME") or socket.gethostname()).lower()
    namespace = own_namespace(namespace_file)
    if namespace:
        try:
            path = paths.pod(namespace, environ.get("POD_NAME", host))
            found = pod_decoder.decode(await client.request("GET", path)).spec.node_name
        except (KubeError, ValueError):
            found = None
        if found:
            return found, "from the pod this runs in"
    return host, "the host's name"


def own_namespace(file: Path = NAMESPACE_FILE) -> str:
    """The namespace of the pod we run in; empty outside of pods."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
