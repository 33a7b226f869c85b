"""A vendor profile as one frozen value: every name, text and rule that differs between vendors.

Belongs here: the keys of a profile file, each declared once with its type, constraint and default. Never: reading files
(`catalog.py`), checking them (`validation.py`, `agreement.py`), or acting on them.

Frozen Structs and not dataclasses: twenty dataclasses take 12 ms to define, and every `inspect` would wait for them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct, field
from msgspec.structs import force_setattr

from accelshare.ledger.refusals import Reason
from accelshare.vendors import value_types as t


class Section(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a profile file whose keys are ours. Its own tables cannot be changed either."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, dict):
                force_setattr(self, name, MappingProxyType(value))


class ResourceNames(Section, frozen=True):
    """Extended resource names: what pods request (memory, whole) and what nodes show besides (count)."""

    memory: t.Resource | None = None
    count: t.Resource | None = None
    whole: t.Resource | None = None

    @property
    def requestable(self) -> tuple[str, ...]:
        """The resources that pods request."""
        return tuple(name for name in (self.memory, self.whole) if name is not None)


class Shape(Section, frozen=True):
    """An allowed size of a slice, under the name that the vendor's software has for it."""

    name: t.ShapeName
    mib: t.Mib


class RequestRules(Section, frozen=True):
    """How a pod requests several cards, how many it may request, and which slices a card can be divided into."""

    cards_label: t.LabelKey | None = None
    cards_annotation: t.AnnotationKey | None = None  # the vendor's own; `accelshare.io/card-count` is read for every vendor
    max_cards: t.CardCount = 64
    max_whole_cards: t.CardCount | None = None
    max_slices_per_card: t.CardCount | None = None  # a pod is counted once, however many of its containers use the card
    shapes: tuple[Shape, ...] = ()  # none: a slice may have any size


class Unit(Section, frozen=True):
    """One unit of the memory resource: the available units with their size in MiB, and the default one."""

    default: t.UnitName = "MiB"
    mib: Mapping[t.UnitName, t.UnitSize] = field(default_factory=lambda: {"MiB": 1})
    labels: Mapping[t.UnitName, t.Line] = {}

    def label(self, unit: str) -> str:
        """The unit as people read it: `GiB`, or `0.1 GB` where the vendor's own word is not clear by itself."""
        return self.labels.get(unit, unit)


class Annotations(Section, frozen=True):
    """The pod annotation keys of an assignment: written with the Binding, read ever after."""

    index: t.AnnotationKey | None = None
    card_size: t.AnnotationKey | None = None
    pod_units: t.AnnotationKey | None = None
    assigned: t.AnnotationKey | None = None
    assign_time: t.AnnotationKey | None = None


class Http(Section, frozen=True):
    """URL prefix and port at which the vendor's users expect the extender."""

    prefix: t.UrlPrefix | None = None
    node_port: t.Port | None = None


class InspectDialect(Section, frozen=True):
    """The word after `kubectl inspect`, the vendor's names for amounts in its JSON, and which fields a pod has there."""

    command: t.PluginName | None = None
    total: t.JsonName = "total"
    used: t.JsonName = "used"
    available: t.JsonName | None = None
    cards: t.JsonName = "devices"
    pod_uid: bool = False
    pod_created: bool = False


class UnhealthyConfigMap(Section, frozen=True, kw_only=True):
    """The ConfigMap in which operators list a node's unhealthy cards: its key holds indexes joined by commas."""

    namespace: t.Namespace = "kube-system"
    name: t.NodeConfigMap
    key: t.DataKey

    def name_on(self, node: str) -> str:
        """The ConfigMap's name for this node."""
        return self.name.replace("{node}", node)


class Hardware(Section, frozen=True):
    """The device files of one card, where a container finds them, and those that all cards share."""

    device_nodes: tuple[t.CardDevice, ...] = ()
    container_device_nodes: tuple[t.ContainerDevice, ...] = ()  # in the same order; none: as on the host
    shared_device_nodes: tuple[t.SharedDevice, ...] = ()


class StaticCard(Section, frozen=True):
    """Cards that the profile lists: `count` of them, all alike."""

    memory_mib: t.Mib
    count: t.CardCount = 1
    index: t.Index | None = None  # none: the next number
    id: t.CardId | None = None  # may contain {index}
    minor: t.Index | None = None  # none: the same as the index
    model: t.Line = ""
    numa: t.Numa | None = None
    pci: t.PciAddress = ""


class JsonRules(Section, frozen=True):
    """Where a command's JSON has its cards, and under which names a card has its values; a path is names joined by dots."""

    cards: t.JsonPath | None = None  # a list, or a table with a number in each card's name; none: the whole output
    index: t.JsonPath | None = None  # none: the number in its name, else its place
    id: t.JsonPath | None = None
    memory: t.JsonPath | None = None
    memory_unit: t.MemoryUnit = "MiB"
    minor: t.JsonPath | None = None
    model: t.JsonPath | None = None
    pci: t.JsonPath | None = None
    healthy: t.JsonPath | None = None
    healthy_value: t.Line | None = None  # what a healthy card has there


class SysfsRules(Section, frozen=True):
    """PCI devices in sysfs as cards, and the files in a device's folder that describe it."""

    devices: t.SysfsGlob
    memory_file: t.SysfsFile | None = None  # its memory in bytes
    dmem: bool = False  # else its memory as the kernel's cgroup controller dmem has it
    id_file: t.SysfsFile | None = None  # none: its PCI address
    model_file: t.SysfsFile | None = None


class StaticRules(Section, frozen=True):
    """Where the static driver gets its cards: exactly one of a list, a glob of device files, sysfs, or a command's output."""

    cards: tuple[StaticCard, ...] = ()
    glob: t.DeviceGlob | None = None
    sysfs: SysfsRules | None = None
    command: tuple[t.Line, ...] = ()
    pattern: t.CardPattern | None = None  # of one line
    block_pattern: t.CardPattern | None = None  # of several lines that describe one card
    json: JsonRules | None = None
    memory_mib: t.Mib | None = None
    model: t.Line = ""


class ProcessRules(Section, frozen=True):
    """A command that prints which processes use the cards, a line for each, if the driver's library does not tell."""

    command: t.Command
    pattern: t.ProcessPattern


class DriverRules(Section, frozen=True):
    """The driver that finds this vendor's cards, its libraries and tools, and its times."""

    name: t.DriverName
    libraries: tuple[t.Line, ...] = ()
    tools: tuple[t.Line, ...] = ()
    timeout_s: t.Seconds = 10
    every_s: t.Seconds = 2
    card_memory_mib: t.Mib | None = None  # of cards that do not report their memory
    static: StaticRules | None = None
    processes: ProcessRules | None = None


class VolumeMounts(Section, frozen=True):
    """One mount per card. The vendor's runtime reads the card from its path; the file behind it does not matter."""

    host_path: t.AbsolutePath = "/dev/null"
    container_path: t.CardPath | None = None
    env: Mapping[t.EnvName, t.ContainerText] = {}


class DeviceNodes(Section, frozen=True):
    """The device files of `hardware`, with these permissions."""

    permissions: t.Permissions = "rw"
    env: Mapping[t.EnvName, t.ContainerText] = {}


class Cdi(Section, frozen=True):
    """Names of CDI devices, and whether the agent writes their specification."""

    name: t.CdiName | None = None
    write_spec: bool = True
    env: Mapping[t.EnvName, t.ContainerText] = {}


class ContainerRules(Section, frozen=True, kw_only=True):
    """What a container gets for its cards, as templates: for each strategy, and for every strategy."""

    strategy: t.Strategies = ("envvar", "device-nodes")
    env: Mapping[t.EnvName, t.ContainerText] = {}
    annotations: Mapping[t.AnnotationKey, t.ContainerText] = {}
    node_label_env: Mapping[t.NodeLabel, t.EnvSetting] = {}
    none: Mapping[t.EnvName, t.Line] = {}  # variables of a container without cards; "-" sets one to the empty text
    other_resources: tuple[t.ResourcePrefix, ...] = ()  # of the vendor's own plugins
    cdi_kinds: tuple[t.CdiKind, ...] = ()
    vendor_annotations: tuple[t.AnnotationPrefix, ...] = ()
    envvar: Mapping[t.EnvName, t.ContainerText] = {}
    runtime_handlers: tuple[t.Line, ...] = ()  # names of handlers or of their programs that read the variables; none: any
    runtime_handler_required: bool = False  # refuse also where the node has no such handler
    volume_mounts: VolumeMounts = VolumeMounts()
    device_nodes: DeviceNodes = DeviceNodes()
    cdi: Cdi = Cdi()


class Requirement(Section, frozen=True):
    """What a node must have: a file, or a command that succeeds; with `at_least`, of this version or a later one."""

    file: t.AbsolutePath | None = None
    command: tuple[t.Line, ...] = ()
    pattern: t.VersionPattern | None = None
    at_least: t.Version | None = None

    @property
    def subject(self) -> str:
        """The file or command, as people read it."""
        return self.file or " ".join(self.command)


class Way(Section, frozen=True):
    """One way to enforce a container's share: who sets the limit, and what a node needs for it.

    `variables`: other software reads them. `nvml` and `dmem`: the agent sets the limit on the container's cgroup.
    """

    env: Mapping[t.EnvName, t.ContainerText] = {}
    requires: tuple[Requirement, ...] = ()
    mounts: tuple[t.AbsolutePath, ...] = ()  # host directories, at the same path, to reach the software that enforces
    set_by: t.LimitSetter = "variables"
    region: t.Region | None = None  # dmem: of cards without a bus address; the others are found by it
    min_mib: t.MinMib = 0  # a smaller share cannot run
    not_limited: tuple[t.Line, ...] = ()  # what a container can use beyond its share even then, for people

    @property
    def on_cgroup(self) -> bool:
        """Does the agent itself set the limit, on the container's cgroup?"""
        return self.set_by != "variables"


# The last way of every profile: nothing stops a container that uses more than its share.
NOBODY: Final = "nobody"
# Its former name. Files that still have it keep their meaning: a profile that no longer loads would disable its vendor.
FORMER_NOBODY: Final = "watch"


class EnforcementRules(Section, frozen=True):
    """The ways this vendor has, and the order in which a node tries them; a way that is not in the order is off."""

    order: tuple[t.WayName, ...] = (NOBODY,)
    ways: Mapping[t.WayName, Way] = {}

    @property
    def in_order(self) -> tuple[tuple[str, Way], ...]:
        """The ways to try by name, `nobody` last whether the order has it or not."""
        return (*((name, self.ways[name]) for name in self.order if name != NOBODY), (NOBODY, Way()))

    def not_limited(self, way: str) -> tuple[str, ...]:
        """What a container can use beyond its share although this way enforces it; nothing for `nobody`, who limits nothing."""
        return self.ways[way].not_limited if way in self.ways else ()


class Profile(Section, frozen=True, kw_only=True):
    """Everything accelshare knows about one vendor."""

    name: t.ProfileName
    extends: t.ProfileName | None = None  # resolved before a profile is made (`layers.py`)
    title: t.Line
    noun: t.Noun
    node_label_text: t.NodeLabel | None = field(default=None, name="node_label")
    unverified: tuple[t.Line, ...] = ()
    resources: ResourceNames = ResourceNames()
    request: RequestRules = RequestRules()
    unit: Unit = Unit()
    annotations: Annotations = Annotations()
    http: Http = Http()
    inspect: InspectDialect = InspectDialect()
    texts: Mapping[Reason, t.RefusalText] = {}  # in a Profile: of every reason
    unhealthy: UnhealthyConfigMap | None = None
    hardware: Hardware = Hardware()
    driver: DriverRules | None = None  # none: another agent serves this vendor's nodes
    container: ContainerRules = ContainerRules()
    enforcement: EnforcementRules = EnforcementRules()

    def __hash__(self) -> int:
        return hash(self.name)  # its tables have no hash

    @property
    def node_label(self) -> tuple[str, str] | None:
        """Key and value of the label of this vendor's nodes."""
        if self.node_label_text is None:
            return None
        key, _, value = self.node_label_text.partition("=")
        return key, value

    def text(self, reason: Reason) -> str:
        """The refusal in the words that this vendor's users know."""
        return self.texts[reason]
