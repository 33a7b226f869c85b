"""What the agent was told on its command line.

Belongs here: names, types and defaults. Never: what is done about them.
"""

from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path

from accelshare.runtimes.validator_status import Files
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.drivers.driver import Roots
from accelshare.vendors.profile import Profile


@dataclass(frozen=True, slots=True)
class Settings:
    kubeconfig: Path | None = None
    context: str | None = None
    node: str | None = None
    vendors: tuple[str, ...] = ()  # none: every profile that has a driver
    units: dict[str, str] = field(default_factory=dict)  # by vendor; "" is for all others
    card_memory_mib: dict[str, int] = field(default_factory=dict)  # by vendor, of cards that do not tell it
    kubelet: Path = Path("/var/lib/kubelet")
    roots: Roots = field(default_factory=Roots)
    host_root: Path = Path("/")  # for tools and files that enforce shares
    host: str | None = None  # probes come from kubelet, on any of the node's addresses, IPv6 too
    port: int = 0
    watch_health: bool = True
    delivery: str = "auto"
    cdi: Path = Path("/var/run/cdi")
    nri_socket: Path = Path("/var/run/nri/nri.sock")
    guard: bool = True  # containers that ask for no card see none
    exempt_namespaces: tuple[str, ...] = ("kube-system",)  # of the guard
    runtime_files: Files = field(default_factory=Files)

    @property
    def device_plugins(self) -> Path:
        return self.kubelet / "device-plugins"

    def unit(self, profile: Profile) -> str:
        """The unit wished for; empty is the profile's own."""
        return self.units.get(profile.name, self.units.get("", ""))

    def enabled(self, catalog: Catalog, *, but: Container[str] = ()) -> list[Profile]:
        """The profiles to serve, without those that cannot be used."""
        chosen = [catalog[name] for name in self.vendors if name not in but] if self.vendors else list(catalog)
        return [profile for profile in chosen if profile.driver is not None]

    def on_host(self, path: str) -> Path:
        """Where a device file of the host is seen from here."""
        in_dev = path.removeprefix("/dev/")
        return self.roots.dev / in_dev if in_dev != path else Path(path)
