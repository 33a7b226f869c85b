"""A vendor, as one frozen value: every name and text that tells its cards apart from another vendor's.

Belongs here: the shape of a profile, and the way from checked data to it and back. Never: reading files, the rules of
single values (`schema.py`) or between values (`agreement.py`), and any vendor's name.

Frozen Structs and not dataclasses: twenty of those take 12 ms to define, which a person who calls `inspect` waits for.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from accelshare.ledger.refusals import Reason
from accelshare.vendors import schema
from accelshare.vendors.agreement import disagreements
from accelshare.vendors.node_data import container_rules, driver_rules, enforcement_rules, thawed
from accelshare.vendors.node_rules import ContainerRules, DriverRules, EnforcementRules
from accelshare.vendors.problems import ProfileError
from accelshare.vendors.texts import default_texts


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


class Resources(Struct, frozen=True):
    """Extended resource names: what pods ask for (memory, whole) and what nodes show besides (count)."""

    memory: str | None
    count: str | None
    whole: str | None

    @property
    def asked(self) -> tuple[str, ...]:
        """What pods ask for."""
        return tuple(name for name in (self.memory, self.whole) if name is not None)


class RequestRules(Struct, frozen=True):
    """How a pod asks for several cards, and how many it may ask for."""

    cards_label: str | None = None
    max_cards: int = 64
    max_whole_cards: int | None = None


class Unit(Struct, frozen=True):
    """What one unit of the memory resource is: the choices with their size in MiB, and the one taken by default."""

    default: str
    mib: Mapping[str, float | int]
    labels: Mapping[str, str] = field(default_factory=_nothing)

    def label(self, unit: str) -> str:
        """The unit for people: `GiB`, or `0.1 GB` where the vendor's own word would not say it."""
        return self.labels.get(unit, unit)


class Annotations(Struct, frozen=True):
    """The pod annotation keys that carry an assignment: written at bind, read back ever after."""

    index: str | None = None
    card_size: str | None = None
    pod_units: str | None = None
    assigned: str | None = None
    assign_time: str | None = None


class Http(Struct, frozen=True):
    """Where the vendor's users expect the extender: URL prefix and port."""

    prefix: str | None = None
    node_port: int | None = None


class InspectDialect(Struct, frozen=True):
    """The word after `kubectl inspect`, how the vendor's own JSON names amounts, and which facts it tells about a pod."""

    command: str | None
    total: str
    used: str
    available: str | None
    cards: str
    pod_uid: bool
    pod_created: bool


class UnhealthyConfigMap(Struct, frozen=True):
    """Where operators list a node's broken cards by hand: a ConfigMap whose key holds indexes joined by commas."""

    namespace: str
    name: str
    key: str

    def name_on(self, node: str) -> str:
        """The ConfigMap's name for this node."""
        return self.name.replace("{node}", node)


class Hardware(Struct, frozen=True):
    """How a card shows on its host: PCI vendor, device files of one card ({index}, {minor}) and of all cards."""

    pci_vendor: str | None = None
    device_nodes: tuple[str, ...] = ()
    shared_device_nodes: tuple[str, ...] = ()


class Profile(Struct, frozen=True):
    """Everything accelshare knows about one vendor."""

    name: str
    title: str
    noun: str
    resources: Resources
    request: RequestRules
    unit: Unit
    node_label: tuple[str, str] | None
    annotations: Annotations
    http: Http
    inspect: InspectDialect
    texts: Mapping[Reason, str]
    unhealthy: UnhealthyConfigMap | None
    hardware: Hardware
    driver: DriverRules | None  # none: this vendor's nodes are served by somebody else's agent
    container: ContainerRules
    enforcement: EnforcementRules
    unverified: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)  # tables within it have no hash of their own

    def text(self, reason: Reason) -> str:
        """The refusal in the words this vendor's users know."""
        return self.texts[reason]


def parse(data: Mapping[str, object], *, file: str) -> Profile:
    """The profile this data describes; ProfileError with all of its problems if it describes none."""
    checked = schema.check(data, file=file)
    problems = (*schema.missing(data, file=file), *checked.problems, *disagreements(checked))
    if problems:
        raise ProfileError(problems)

    def section(name: str) -> dict[str, Any]:
        keys = [key for key in schema.SCHEMA if key.rpartition(".")[0] == name]
        return {key.rpartition(".")[2]: _frozen(checked.get(key)) for key in keys}

    # From here on every value is known to be of its kind, so that Any is only for the type checker.
    value: dict[str, Any] = {key: _frozen(checked.get(key)) for key in schema.SCHEMA}
    resources, request = Resources(**section("resources")), RequestRules(**section("request"))
    texts = default_texts(
        noun=value["noun"],
        memory=resources.memory,
        whole=resources.whole,
        cards_label=request.cards_label,
        max_cards=request.max_cards,
        max_whole_cards=request.max_whole_cards,
    )
    texts |= {Reason(word): text for word, text in value["texts"].items()}
    return Profile(
        name=value["name"],
        title=value["title"],
        noun=value["noun"],
        resources=resources,
        request=request,
        unit=Unit(**section("unit")),
        node_label=_label(value["node_label"]),
        annotations=Annotations(**section("annotations")),
        http=Http(**section("http")),
        inspect=InspectDialect(**section("inspect")),
        texts=MappingProxyType(texts),
        unhealthy=UnhealthyConfigMap(**section("unhealthy")) if value["unhealthy.name"] else None,
        hardware=Hardware(**section("hardware")),
        driver=driver_rules(section("driver"), section("driver.static")) if value["driver.name"] else None,
        container=container_rules(
            section("container"),
            volume_mounts=section("container.volume_mounts"),
            device_nodes=section("container.device_nodes"),
            cdi=section("container.cdi"),
        ),
        enforcement=enforcement_rules(section("enforcement")),
        unverified=value["unverified"],
    )


def to_data(profile: Profile) -> dict[str, Any]:
    """The profile as its file would say it, defaults written out: `parse(to_data(p))` is `p` again."""
    data: dict[str, Any] = {}
    for key in schema.SCHEMA:
        *sections, name = key.split(".")
        value: Any = profile
        for step in (*sections, name):
            value = getattr(value, step, None)
        if value is None or value == "":
            continue
        table = data
        for section in sections:
            table = table.setdefault(section, {})
        table[name] = thawed(value)
    if profile.node_label is not None:
        data["node_label"] = "=".join(profile.node_label)
    return data


def _frozen(value: object) -> object:
    if isinstance(value, Mapping):
        return MappingProxyType(dict(value))
    return tuple(value) if isinstance(value, list) else value


def _label(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    key, _, value = text.partition("=")
    return key, value
