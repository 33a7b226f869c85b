"""The accelerator of the benchmarks: its own profile over the static driver, so that no tool of a vendor is timed.

Belongs here: its names and its sizes. Never: where its files are.
"""

from dataclasses import dataclass
from typing import Final

KIND: Final = "acme"
MEMORY: Final = "acme.example/zpu-mem"
ASSIGNED: Final = "acme.example/assigned"
NODE_NAME: Final = "zpu"  # of its device files: /dev/zpu0, /dev/zpu1, …
CARDS: Final = 8


@dataclass(frozen=True, slots=True)
class Size:
    """Of every card, and in which unit it is shared."""

    memory_mib: int
    unit: str

    @property
    def card_units(self) -> int:
        return self.memory_mib if self.unit == "MiB" else self.memory_mib // 1024

    @property
    def units(self) -> int:
        """Of the node; with device plugins, as many ids."""
        return CARDS * self.card_units


COARSE: Final = Size(16 * 1024, "GiB")
FINE: Final = Size(4032, "MiB")


def profile(size: Size) -> str:
    """As a user would write it."""
    return f"""\
name = "{KIND}"
title = "Acme ZPU"
noun = "ZPU"
[resources]
memory = "{MEMORY}"
count = "acme.example/zpu-count"
whole = "acme.example/zpu"
[unit]
default = "{size.unit}"
[unit.mib]
GiB = 1024
MiB = 1
[annotations]
index = "acme.example/index"
card_size = "acme.example/size"
pod_units = "acme.example/units"
assigned = "{ASSIGNED}"
assign_time = "acme.example/time"
[hardware]
device_nodes = ["/dev/{NODE_NAME}{{minor}}"]
[container]
strategy = ["device-nodes"]
[container.env]
ZPU_VISIBLE = "{{index}}"
ZPU_UNITS = "{{units}}"
[driver]
name = "static"
[driver.static]
glob = "/dev/{NODE_NAME}[0-9]*"
memory_mib = {size.memory_mib}
"""
