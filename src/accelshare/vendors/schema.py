"""Every key a profile file may have: its kind, whether it may be left out, and what it is then.

Belongs here: the table of keys and the walk over a file that holds it against the table.
Never: rules between keys (`agreement.py`), defaults made from other values (`texts.py`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from accelshare.ledger.refusals import Reason
from accelshare.vendors import kinds
from accelshare.vendors.drivers.known import DRIVERS
from accelshare.vendors.kinds import Kind
from accelshare.vendors.problems import Problem, nearest, shown


class Shape(Enum):
    """Does a key hold one value, a list of them, or a table with names of the author's choice?"""

    ONE = auto()
    LIST = auto()
    TABLE = auto()


@dataclass(frozen=True, slots=True)
class Key:
    """One row of the schema. For a list or table, `kind` is that of each entry; `names` is that of a table's names.

    Entries that are tables with names of ours have `fields`, rows like this one.
    """

    kind: Kind
    required: bool = False
    default: object = None
    shape: Shape = Shape.ONE
    names: Kind | None = None
    closed: tuple[str, ...] = ()  # a table whose names are a closed list
    fields: Mapping[str, "Key"] = field(default_factory=dict)


_MIB: Final = kinds.whole_number(1, 2**24)
_CARD_FIELDS: Final[Mapping[str, Key]] = {
    "memory_mib": Key(_MIB, required=True),
    "count": Key(kinds.whole_number(1, 1024)),
    "index": Key(kinds.whole_number(0, 65535)),
    "id": Key(kinds.CARD_ID),
    "minor": Key(kinds.whole_number(0, 65535)),
    "model": Key(kinds.LINE),
    "numa": Key(kinds.whole_number(0, 1023)),
    "pci": Key(kinds.PCI_ADDRESS),
}
_REQUIREMENT_FIELDS: Final[Mapping[str, Key]] = {
    "file": Key(kinds.ABSOLUTE_PATH),
    "command": Key(kinds.LINE, shape=Shape.LIST),
    "pattern": Key(kinds.VERSION_PATTERN),
    "at_least": Key(kinds.VERSION),
}
_WAY_FIELDS: Final[Mapping[str, Key]] = {
    "kind": Key(kinds.one_of("env")),  # those of the driver and the kernel will be kinds of their own
    "env": Key(kinds.CONTAINER_TEXT, shape=Shape.TABLE, names=kinds.ENV_NAME),
    "requires": Key(kinds.TABLE, shape=Shape.LIST, fields=_REQUIREMENT_FIELDS),
    "mounts": Key(kinds.ABSOLUTE_PATH, shape=Shape.LIST),
}
_ENV: Final = Key(kinds.CONTAINER_TEXT, default={}, shape=Shape.TABLE, names=kinds.ENV_NAME)

REASONS: Final = tuple(reason.value for reason in Reason)

SCHEMA: Final[Mapping[str, Key]] = {
    "name": Key(kinds.PROFILE_NAME, required=True),
    "extends": Key(kinds.PROFILE_NAME),  # resolved by the catalog before a profile is made
    "title": Key(kinds.LINE, required=True),
    "noun": Key(kinds.NOUN, required=True),
    "node_label": Key(kinds.NODE_LABEL),
    "unverified": Key(kinds.LINE, default=(), shape=Shape.LIST),
    "resources.memory": Key(kinds.RESOURCE),
    "resources.count": Key(kinds.RESOURCE),
    "resources.whole": Key(kinds.RESOURCE),
    "request.cards_label": Key(kinds.LABEL_KEY),
    "request.max_cards": Key(kinds.whole_number(1, 1024), default=64),
    "request.max_whole_cards": Key(kinds.whole_number(1, 1024)),
    "unit.default": Key(kinds.UNIT_NAME, default="MiB"),
    "unit.mib": Key(kinds.POSITIVE_MIB, default={"MiB": 1}, shape=Shape.TABLE, names=kinds.UNIT_NAME),
    "unit.labels": Key(kinds.LINE, default={}, shape=Shape.TABLE, names=kinds.UNIT_NAME),
    "annotations.index": Key(kinds.ANNOTATION_KEY),
    "annotations.card_size": Key(kinds.ANNOTATION_KEY),
    "annotations.pod_units": Key(kinds.ANNOTATION_KEY),
    "annotations.assigned": Key(kinds.ANNOTATION_KEY),
    "annotations.assign_time": Key(kinds.ANNOTATION_KEY),
    "http.prefix": Key(kinds.URL_PREFIX),
    "http.node_port": Key(kinds.whole_number(1, 65535)),
    "inspect.command": Key(kinds.PLUGIN_NAME),
    "inspect.total": Key(kinds.JSON_NAME, default="total"),
    "inspect.used": Key(kinds.JSON_NAME, default="used"),
    "inspect.available": Key(kinds.JSON_NAME),
    "inspect.cards": Key(kinds.JSON_NAME, default="devices"),
    "inspect.pod_uid": Key(kinds.FLAG, default=False),
    "inspect.pod_created": Key(kinds.FLAG, default=False),
    "texts": Key(kinds.REFUSAL_TEXT, default={}, shape=Shape.TABLE, closed=REASONS),
    "unhealthy.namespace": Key(kinds.NAMESPACE, default="kube-system"),
    "unhealthy.name": Key(kinds.NODE_CONFIGMAP),
    "unhealthy.key": Key(kinds.DATA_KEY),
    "hardware.pci_vendor": Key(kinds.PCI_VENDOR),
    "hardware.device_nodes": Key(kinds.CARD_DEVICE, default=(), shape=Shape.LIST),
    "hardware.shared_device_nodes": Key(kinds.SHARED_DEVICE, default=(), shape=Shape.LIST),
    "driver.name": Key(kinds.one_of(*DRIVERS)),
    "driver.libraries": Key(kinds.LINE, default=(), shape=Shape.LIST),
    "driver.tools": Key(kinds.LINE, default=(), shape=Shape.LIST),
    "driver.timeout_s": Key(kinds.SECONDS, default=10),
    "driver.every_s": Key(kinds.SECONDS, default=2),
    "driver.card_memory_mib": Key(_MIB),
    "driver.static.cards": Key(kinds.TABLE, default=(), shape=Shape.LIST, fields=_CARD_FIELDS),
    "driver.static.glob": Key(kinds.DEV_GLOB),
    "driver.static.command": Key(kinds.LINE, default=(), shape=Shape.LIST),
    "driver.static.pattern": Key(kinds.CARD_PATTERN),
    "driver.static.memory_mib": Key(_MIB),
    "driver.static.model": Key(kinds.LINE),
    "container.strategy": Key(
        kinds.one_or_more_of("envvar", "volume-mounts", "device-nodes", "cdi"), default=("envvar", "device-nodes")
    ),
    "container.env": _ENV,
    "container.annotations": Key(kinds.CONTAINER_TEXT, default={}, shape=Shape.TABLE, names=kinds.ANNOTATION_KEY),
    "container.node_label_env": Key(kinds.ENV_SETTING, default={}, shape=Shape.TABLE, names=kinds.NODE_LABEL),
    "container.none": Key(kinds.LINE, default={}, shape=Shape.TABLE, names=kinds.ENV_NAME),
    "container.other_resources": Key(kinds.RESOURCE_PREFIX, default=(), shape=Shape.LIST),
    "container.cdi_kinds": Key(kinds.CDI_KIND, default=(), shape=Shape.LIST),
    "container.vendor_annotations": Key(kinds.ANNOTATION_PREFIX, default=(), shape=Shape.LIST),
    "container.envvar": _ENV,
    "container.runtime_handlers": Key(kinds.LINE, default=(), shape=Shape.LIST),
    "container.runtime_handler_required": Key(kinds.FLAG, default=False),
    "container.volume_mounts.host_path": Key(kinds.ABSOLUTE_PATH, default="/dev/null"),
    "container.volume_mounts.container_path": Key(kinds.CARD_PATH),
    "container.volume_mounts.env": _ENV,
    "container.device_nodes.permissions": Key(kinds.PERMISSIONS, default="rw"),
    "container.device_nodes.env": _ENV,
    "container.cdi.name": Key(kinds.CDI_NAME),
    "container.cdi.write_spec": Key(kinds.FLAG, default=True),
    "container.cdi.env": _ENV,
    "enforcement.order": Key(kinds.WAY_NAME, default=("watch",), shape=Shape.LIST),
    "enforcement.ways": Key(kinds.TABLE, default={}, shape=Shape.TABLE, names=kinds.WAY_NAME, fields=_WAY_FIELDS),
}

DEEPEST: Final = 16  # tables and lists within each other
MOST_VALUES: Final = 4_000
MOST_UNKNOWN: Final = 100  # of which each is told
_INTEGER_BITS: Final = 63  # and a sign

# Tables whose names are ours, by the keys under them: "resources", "container", "container.cdi", …
SECTIONS: Final = frozenset(key[:at] for key in SCHEMA for at, sign in enumerate(key) if sign == ".")


@dataclass(frozen=True, slots=True)
class Checked:
    """A file held against the table: the values that are right, by dotted key and without defaults, and the problems."""

    file: str
    values: Mapping[str, object]
    problems: tuple[Problem, ...]

    def get(self, key: str) -> object:
        """The value of this key, or its default."""
        return self.values.get(key, SCHEMA[key].default)


def check(data: Mapping[str, object], *, file: str) -> Checked:
    """Hold a file's data against the table; nothing about it is raised, everything is told."""
    given, problems = dict[str, object](), list(unknown_keys(data, file=file))
    for key, value in _flat(data).items():
        if key in SECTIONS:
            problems.extend(_complaint(key, kinds.TABLE, value, file))
        row = SCHEMA.get(key)
        if row is None:
            continue
        wrong = list(_complaints(key, row, value, file))
        problems.extend(wrong)
        if not wrong:
            given[key] = value
    return Checked(file, given, tuple(problems))


def out_of_bounds(data: Mapping[str, object], *, file: str) -> Iterator[Problem]:
    """What no profile needs and no rule about it should have to expect: told once, and the file is not looked at any further."""
    waiting: list[tuple[str, int, object]] = [("", 0, data)]
    values = 0
    while waiting:
        key, depth, value = waiting.pop()
        values += 1
        if values > MOST_VALUES:
            yield Problem(file, "", f"has more than {MOST_VALUES} values; a profile has fewer")
            return
        if isinstance(value, int) and value.bit_length() > _INTEGER_BITS:
            yield Problem(file, key, f"is a whole number of {value.bit_length()} bits; TOML's have at most 64")
        if not isinstance(value, Mapping | list | tuple):
            continue
        if depth == DEEPEST:
            yield Problem(file, key, f"is nested more than {DEEPEST} deep; a profile's tables and lists are not")
            continue
        inner = value.items() if isinstance(value, Mapping) else ((f"[{place}]", entry) for place, entry in enumerate(value))
        waiting.extend((_below(key, name), depth + 1, entry) for name, entry in inner)


def _below(key: str, name: str) -> str:
    return f"{key}{name}" if not key or name.startswith("[") else f"{key}.{name}"


def missing(data: Mapping[str, object], *, file: str) -> Iterator[Problem]:
    """The keys that a profile cannot do without and this one does."""
    present = _flat(data)
    for key, row in SCHEMA.items():
        if row.required and key not in present:
            yield Problem(file, key, f"is missing; it must {row.kind.must}")


def unknown_keys(data: Mapping[str, object], *, file: str) -> Iterator[Problem]:
    """Keys the table does not have; values are not looked at."""
    unknown = [key for key in _flat(data) if key not in SCHEMA and key not in SECTIONS]
    for key in unknown[:MOST_UNKNOWN]:
        section = key[: key.rfind(".") + 1]
        yield _no_such(key, [known for known in (*SECTIONS, *SCHEMA) if known.startswith(section)], file)
    if len(unknown) > MOST_UNKNOWN:
        yield Problem(file, "", f"has {len(unknown) - MOST_UNKNOWN} more keys that are no keys of a profile")


def table_over(key: str) -> str | None:
    """The table of free names that this dotted key is an entry of: `unit.mib` for `unit.mib.0.1`."""
    return next((table for table, row in SCHEMA.items() if row.shape is Shape.TABLE and key.startswith(table + ".")), None)


def is_known(key: str, values: Mapping[str, object]) -> bool:
    """Does this dotted key name a row, or an entry of one of the tables in `values`?"""
    table = table_over(key)
    if table is None:
        return key in SCHEMA
    rest = key[len(table) + 1 :]
    return rest in SCHEMA[table].closed or _leads_somewhere(rest, values.get(table))


def _leads_somewhere(path: str, entries: object) -> bool:
    """Does this dotted path name an entry, or one inside an entry? Names may have dots of their own."""
    if not isinstance(entries, Mapping):
        return False
    return path in entries or any(
        path.startswith(f"{name}.") and _leads_somewhere(path[len(name) + 1 :], inner) for name, inner in entries.items()
    )


def _no_such(key: str, known: Iterable[str], file: str) -> Problem:
    return Problem(file, key, f"is no key of a profile{nearest(key, known)}")


def _flat(data: Mapping[str, object], above: str = "") -> dict[str, object]:
    """Dotted keys to values, down to where names are the author's own: `{"http": {"prefix": p}}` is `{"http.prefix": p}`."""
    flat: dict[str, object] = {}
    for name, value in data.items():
        if above + name in SECTIONS and isinstance(value, Mapping):
            flat.update(_flat(value, f"{above}{name}."))
        else:
            flat[above + name] = value
    return flat


def _complaints(key: str, row: Key, value: object, file: str) -> Iterator[Problem]:
    match row.shape:
        case Shape.ONE:
            yield from _complaint(key, row.kind, value, file)
        case Shape.LIST if isinstance(value, list | tuple):
            for place, entry in enumerate(value):
                yield from _entry_complaints(f"{key}[{place}]", row, entry, file)
        case Shape.LIST:
            yield from _complaint(key, kinds.LIST, value, file)
        case Shape.TABLE if isinstance(value, Mapping):
            for name, entry in value.items():
                if row.closed and name not in row.closed:
                    yield _no_such(f"{key}.{name}", [f"{key}.{word}" for word in row.closed], file)
                elif row.names is not None and not row.names.holds(name):
                    yield Problem(file, f"{key}.{name}", f"has the name {shown(name)}; it must {row.names.must}")
                else:
                    yield from _entry_complaints(f"{key}.{name}", row, entry, file)
        case Shape.TABLE:
            yield from _complaint(key, kinds.TABLE, value, file)


def _entry_complaints(key: str, row: Key, entry: object, file: str) -> Iterator[Problem]:
    yield from _complaint(key, row.kind, entry, file)
    if not row.fields or not isinstance(entry, Mapping):
        return
    for name in entry.keys() - row.fields.keys():
        yield _no_such(f"{key}.{name}", [f"{key}.{known}" for known in row.fields], file)
    for name, inner in row.fields.items():
        if name in entry:
            yield from _complaints(f"{key}.{name}", inner, entry[name], file)
        elif inner.required:
            yield Problem(file, f"{key}.{name}", f"is missing; it must {inner.kind.must}")


def _complaint(key: str, kind: Kind, value: object, file: str) -> Iterator[Problem]:
    if not kind.holds(value):
        yield Problem(file, key, f"is {shown(value)}; it must {kind.must}")
