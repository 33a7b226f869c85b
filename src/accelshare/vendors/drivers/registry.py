"""Makes the driver of a profile. Only its own module is imported: a node without a vendor's library needs none of its code.

Belongs here: the list of drivers, and the options of one from its profile and from flags. Never: what a driver does.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from accelshare.vendors.drivers.driver import Driver, Options, Roots
from accelshare.vendors.drivers.process_table import ProcessTable
from accelshare.vendors.problems import VendorError
from accelshare.vendors.profile import Profile
from accelshare.vendors.value_types import DriverName

DRIVERS: Final[Mapping[DriverName, str]] = {
    "nvidia": "accelshare.vendors.drivers.nvidia:NvidiaDriver",
    "kunlun": "accelshare.vendors.drivers.kunlun:KunlunDriver",
    "enflame": "accelshare.vendors.drivers.enflame:EnflameDriver",
    "stream": "accelshare.vendors.drivers.stream:StreamDriver",
    "static": "accelshare.vendors.drivers.static:StaticDriver",
}


class NoDriver(VendorError):  # noqa: N818 (the name reads as the error: there is no driver)
    """The profile names no driver."""


def make(
    profile: Profile,
    *,
    roots: Roots | None = None,
    libraries: tuple[str, ...] = (),
    tools: tuple[str, ...] = (),
    timeout_s: float | None = None,
    every_s: float | None = None,
    host: Path = Path("/"),
    card_memory_mib: int | None = None,
) -> Driver:
    """The profile's driver; arguments take precedence over the profile."""
    rules = profile.driver
    if rules is None:
        raise NoDriver(f"profile {profile.name}: driver.name is not set, so accelshare cannot find its cards")
    options = Options(
        roots=roots or Roots(),
        libraries=libraries or rules.libraries,
        tools=tools or rules.tools,
        timeout_s=rules.timeout_s if timeout_s is None else timeout_s,
        every_s=rules.every_s if every_s is None else every_s,
        host=host,
        card_memory_mib=rules.card_memory_mib if card_memory_mib is None else card_memory_mib,
    )
    module, _, name = DRIVERS[rules.name].partition(":")
    driver: Any = getattr(import_module(module), name)
    made: Driver = (
        driver(options) if rules.static is None else driver(options, rules.static, device_nodes=profile.hardware.device_nodes)
    )
    return made


def make_process_table(profile: Profile, *, host: Path = Path("/")) -> ProcessTable | None:
    """The command that prints the processes on the profile's cards, if it has one."""
    rules = profile.driver
    if rules is None or rules.processes is None:
        return None
    return ProcessTable(Options(tools=rules.tools, timeout_s=rules.timeout_s, host=host), rules.processes)
