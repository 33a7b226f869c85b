"""From a profile to its driver, imported only when asked for.

Belongs here: making a driver with what the profile says and what a flag overrides. Never: what a driver does.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from accelshare.vendors.drivers.driver import Driver, Options, Roots
from accelshare.vendors.drivers.known import DRIVERS
from accelshare.vendors.problems import VendorError
from accelshare.vendors.profile import Profile


class NoDriver(VendorError):  # noqa: N818 (it reads as what it is: there is no driver)
    """The profile has no node side."""


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
    """The profile's driver; whatever is given here goes before what the profile says."""
    rules = profile.driver
    if rules is None:
        raise NoDriver(f"profile {profile.name}: driver.name is not set, so nobody can ask for its cards")
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
