"""What a profile says about its vendor's nodes, as frozen values: the way to the cards, to the container, and to a limit.

Belongs here: the shape of the sections `driver`, `container` and `enforcement`. Never: acting on them (`drivers/`,
`container_edits.py`, `enforcement.py`), reading them from data (`profile.py`).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from msgspec import Struct, field

# What a container is given so that it sees its cards: variables for the vendor's runtime, mounts for the same, the
# device files themselves, or names of a CDI specification.
Strategy = Literal["envvar", "volume-mounts", "device-nodes", "cdi"]

# Who holds a container to its share: whoever reads the variables, or nobody, and over-use is only seen.
WayKind = Literal["env", "watch"]


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


class StaticCard(Struct, frozen=True):
    """Cards that are declared, not found: `count` of them, all alike."""

    memory_mib: int
    count: int = 1
    index: int | None = None  # none: the next number
    id: str | None = None  # may say {index}
    minor: int | None = None  # none: as the index
    model: str = ""
    numa: int | None = None
    pci: str = ""


class StaticRules(Struct, frozen=True):
    """Where cards come from without code: exactly one of a list, a glob of device files, or a command's lines."""

    cards: tuple[StaticCard, ...] = ()
    glob: str | None = None
    command: tuple[str, ...] = ()
    pattern: str | None = None
    memory_mib: int | None = None
    model: str = ""


class DriverRules(Struct, frozen=True):
    """Who asks this vendor's hardware, with which libraries and tools, and how patiently."""

    name: str
    libraries: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    timeout_s: float = 10
    every_s: float = 2
    static: StaticRules | None = None
    card_memory_mib: int | None = None  # of cards that do not tell their memory


class VolumeMounts(Struct, frozen=True):
    """One mount per card, whose name is the message; the file behind it is of no interest."""

    host_path: str = "/dev/null"
    container_path: str | None = None
    env: Mapping[str, str] = field(default_factory=_nothing)


class DeviceNodes(Struct, frozen=True):
    """The card's device files, those of `hardware`, with these rights."""

    permissions: str = "rw"
    env: Mapping[str, str] = field(default_factory=_nothing)


class Cdi(Struct, frozen=True):
    """Names of CDI devices, and whether their specification is ours to write."""

    name: str | None = None
    write_spec: bool = True
    env: Mapping[str, str] = field(default_factory=_nothing)


class ContainerRules(Struct, frozen=True):
    """What a container is given for its cards, as templates: by every strategy chosen, and in any case."""

    env: Mapping[str, str] = field(default_factory=_nothing)
    strategy: tuple[Strategy, ...] = ("envvar", "device-nodes")
    annotations: Mapping[str, str] = field(default_factory=_nothing)
    node_label_env: Mapping[str, str] = field(default_factory=_nothing)
    none: Mapping[str, str] = field(default_factory=_nothing)  # variables of a container without cards; "-" empties one
    other_resources: tuple[str, ...] = ()  # beginnings of names that plugins of the vendor's own serve
    cdi_kinds: tuple[str, ...] = ()
    vendor_annotations: tuple[str, ...] = ()
    envvar: Mapping[str, str] = field(default_factory=_nothing)
    runtime_handlers: tuple[str, ...] = ()  # handlers, by their name or their program's, that obey the variables; none: any
    runtime_handler_required: bool = False  # refuse also where the node has none of them
    volume_mounts: VolumeMounts = VolumeMounts()
    device_nodes: DeviceNodes = DeviceNodes()
    cdi: Cdi = Cdi()


class Requirement(Struct, frozen=True):
    """Something a node must have: a file, or a command that answers; where it says a version, at least this one."""

    file: str | None = None
    command: tuple[str, ...] = ()
    pattern: str | None = None
    at_least: str | None = None

    @property
    def subject(self) -> str:
        """What is asked, for people."""
        return self.file or " ".join(self.command)


class Way(Struct, frozen=True):
    """One way to hold a container to its share, and what a node needs for it."""

    name: str
    kind: WayKind = "env"
    env: Mapping[str, str] = field(default_factory=_nothing)
    requires: tuple[Requirement, ...] = ()
    mounts: tuple[str, ...] = ()  # directories of the host, given at the same path, in which the container meets who holds it


# The last resort of every profile: nothing stops a container, but what it uses can be seen and told.
WATCH: Final = Way("watch", "watch")


class EnforcementRules(Struct, frozen=True):
    """The ways this vendor knows, and the order in which a node tries them; one that is not in the order is off."""

    order: tuple[str, ...] = (WATCH.name,)
    ways: Mapping[str, Way] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def in_order(self) -> tuple[Way, ...]:
        """The ways to try, watching last whether it is named or not."""
        return (*(self.ways[name] for name in self.order if name != WATCH.name), WATCH)
