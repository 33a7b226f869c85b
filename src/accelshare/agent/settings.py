"""The agent's settings, and how it finds out the name of its node.

Belongs here: names, types and defaults of settings; the sources of the node's name. Never: what follows from a setting.
"""

import socket
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError, NotFound
from accelshare.runtimes.validator_status import Files
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.drivers.driver import Roots
from accelshare.vendors.profile import Profile
from accelshare.wire.objects import pod_decoder

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    kubeconfig: Path | None = None
    context: str | None = None
    node: str | None = None
    vendors: tuple[str, ...] = ()  # empty: every profile that has a driver
    units: dict[str, str] = field(default_factory=dict)  # by vendor; "" is for all others
    card_memory_mib: dict[str, int] = field(default_factory=dict)  # by vendor, of cards that do not report it
    kubelet: Path = Path("/var/lib/kubelet")
    roots: Roots = field(default_factory=Roots)
    host_root: Path = Path("/")  # where the host's root is seen from here
    host: str | None = None  # probes come from kubelet, on any of the node's addresses, IPv6 too
    port: int = 0
    watch_health: bool = True
    delivery: str = "auto"
    cdi: Path = Path("/var/run/cdi")
    nri_socket: Path = Path("/var/run/nri/nri.sock")
    guard: bool = True  # containers that request no card get none
    exempt_namespaces: tuple[str, ...] = ("kube-system",)  # of the guard
    runtime_files: Files = field(default_factory=Files)
    limits: bool = True  # set limits on containers' cgroups, where a profile has such a way
    resizes: bool = False  # an admission policy lets nobody but the extender write grants of resizes
    cgroup_root: Path = Path("/sys/fs/cgroup")  # where the host's cgroup tree is mounted
    usage_every_s: float = 0.0  # how often to sample who uses the cards; 0: never
    evict_over_use_after_s: float = 0.0  # 0: a pod that uses more than it holds is only reported

    @property
    def device_plugins(self) -> Path:
        return self.kubelet / "device-plugins"

    def unit(self, profile: Profile) -> str:
        """The requested unit; empty: the profile's default."""
        return self.units.get(profile.name, self.units.get("", ""))

    def enabled(self, catalog: Catalog, *, but: Container[str] = ()) -> list[Profile]:
        """The profiles to serve, without those in `but`."""
        selected = [catalog[name] for name in self.vendors if name not in but] if self.vendors else list(catalog)
        return [profile for profile in selected if profile.driver is not None]

    def on_host(self, path: str) -> Path:
        """Where a device file of the host is seen from here."""
        in_dev = path.removeprefix("/dev/")
        return self.roots.dev / in_dev if in_dev != path else Path(path)


class UnknownNodeError(Exception):
    """The cluster has no node of this name; the message names the source of the name and what to do."""


async def node_name(
    client: Client, *, flag: str | None, environ: Mapping[str, str], namespace_file: Path = NAMESPACE_FILE
) -> str:
    """The name of our node: the flag, else NODE_NAME, else from our pod, else the host's name; checked with the cluster.

    An operator that cannot put the node's name into the pod's environment needs no flag: the pod's own object names the node.
    """
    name, source = await _find_name(client, flag, environ, namespace_file)
    try:
        await client.request("GET", paths.node(name))
    except ValueError as error:
        raise UnknownNodeError(f"{error} ({source})") from error
    except NotFound:
        raise UnknownNodeError(
            f"the cluster has no node {name!r} ({source}); give its name with --node-name or the variable NODE_NAME"
        ) from None
    return name


async def _find_name(client: Client, flag: str | None, environ: Mapping[str, str], namespace_file: Path) -> tuple[str, str]:
    if flag:
        return flag, "from --node-name"
    if environ.get("NODE_NAME"):
        return environ["NODE_NAME"], "from NODE_NAME"
    host = (environ.get("HOSTNAME") or socket.gethostname()).lower()
    namespace = own_namespace(namespace_file)
    if namespace:
        try:
            # A list of one pod, because agents may list pods and not get them.
            path, _, pod = paths.pod(namespace, environ.get("POD_NAME", host)).rpartition("/")
            pages = client.pages(path, params={"fieldSelector": f"metadata.name={pod}"})
            names = [pod_decoder.decode(item).spec.node_name async for page in pages for item in page.items]
        except (KubeError, ValueError):
            names = []
        if names and names[0]:
            return names[0], "from the pod this runs in"
    return host, "the host's name"


def own_namespace(file: Path = NAMESPACE_FILE) -> str:
    """The namespace of the pod we run in; empty outside of pods."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
