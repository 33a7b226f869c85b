"""Every key a profile file may have: its kind, whether it may be left out, and what it is then.

Belongs here: the table of keys and the walk over a file that holds it against the table.
Never: rules between keys (`agreement.py`), defaults made from other values (`texts.py`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from accelshare.ledger.refusals import Reason
from accelshare.vendors import kinds
from accelshare.vendors.kinds import Kind
from accelshare.vendors.problems import Problem, nearest, shown


class Shape(Enum):
    """Does a key hold one value, a list of them, or a table with names of the author's choice?"""

    ONE = auto()
    LIST = auto()
    TABLE = auto()


@dataclass(frozen=True, slots=True)
class Key:
    """One row of the schema. For a list or table, `kind` is that of each entry; `names` is that of a table's names."""

    kind: Kind
    required: bool = False
    default: object = None
    shape: Shape = Shape.ONE
    names: Kind | None = None
    closed: tuple[str, ...] = ()  # a table whose names are a closed list


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
    "container.env": Key(kinds.CONTAINER_ENV, default={}, shape=Shape.TABLE, names=kinds.ENV_NAME),
}

# Tables whose names are ours, by the keys under them: "resources", "request", …
SECTIONS: Final = frozenset(key.partition(".")[0] for key in SCHEMA if "." in key)


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
    for name in sorted(SECTIONS & data.keys()):
        problems.extend(_complaint(name, kinds.TABLE, data[name], file))
    for key, value in _flat(data).items():
        row = SCHEMA.get(key)
        if row is None:
            continue
        wrong = list(_complaints(key, row, value, file))
        problems.extend(wrong)
        if not wrong:
            given[key] = value
    return Checked(file, given, tuple(problems))


def missing(data: Mapping[str, object], *, file: str) -> Iterator[Problem]:
    """The keys that a profile cannot do without and this one does."""
    present = _flat(data)
    for key, row in SCHEMA.items():
        if row.required and key not in present:
            yield Problem(file, key, f"is missing; it must {row.kind.must}")


def unknown_keys(data: Mapping[str, object], *, file: str) -> Iterator[Problem]:
    """Keys the table does not have; values are not looked at."""
    for name, value in data.items():
        if name in SECTIONS:
            for inner in value if isinstance(value, Mapping) else ():
                if f"{name}.{inner}" not in SCHEMA:
                    yield _no_such(f"{name}.{inner}", [key for key in SCHEMA if key.startswith(name + ".")], file)
        elif name not in SCHEMA:
            yield _no_such(name, [*SECTIONS, *SCHEMA], file)


def table_over(key: str) -> str | None:
    """The table of free names that this dotted key is an entry of: `unit.mib` for `unit.mib.0.1`."""
    return next((table for table, row in SCHEMA.items() if row.shape is Shape.TABLE and key.startswith(table + ".")), None)


def is_known(key: str, values: Mapping[str, object]) -> bool:
    """Does this dotted key name a row, or an entry of one of the tables in `values`?"""
    table = table_over(key)
    if table is None:
        return key in SCHEMA
    entries = values.get(table)
    return key[len(table) + 1 :] in (*SCHEMA[table].closed, *(entries if isinstance(entries, Mapping) else ()))


def _no_such(key: str, known: list[str], file: str) -> Problem:
    return Problem(file, key, f"is no key of a profile{nearest(key, known)}")


def _flat(data: Mapping[str, object]) -> dict[str, object]:
    """Dotted keys to values, one level deep: `{"http": {"prefix": p}}` is `{"http.prefix": p}`."""
    flat: dict[str, object] = {}
    for name, value in data.items():
        if name in SECTIONS:
            flat.update({f"{name}.{inner}": held for inner, held in value.items()} if isinstance(value, Mapping) else {})
        else:
            flat[name] = value
    return flat


def _complaints(key: str, row: Key, value: object, file: str) -> Iterator[Problem]:
    match row.shape:
        case Shape.ONE:
            yield from _complaint(key, row.kind, value, file)
        case Shape.LIST if isinstance(value, list | tuple):
            for place, entry in enumerate(value):
                yield from _complaint(f"{key}[{place}]", row.kind, entry, file)
        case Shape.LIST:
            yield from _complaint(key, kinds.LIST, value, file)
        case Shape.TABLE if isinstance(value, Mapping):
            for name, entry in value.items():
                if row.closed and name not in row.closed:
                    yield _no_such(f"{key}.{name}", [f"{key}.{word}" for word in row.closed], file)
                elif row.names is not None and not row.names.holds(name):
                    yield Problem(file, f"{key}.{name}", f"has the name {shown(name)}; it must {row.names.must}")
                else:
                    yield from _complaint(f"{key}.{name}", row.kind, entry, file)
        case Shape.TABLE:
            yield from _complaint(key, kinds.TABLE, value, file)


def _complaint(key: str, kind: Kind, value: object, file: str) -> Iterator[Problem]:
    if not kind.holds(value):
        yield Problem(file, key, f"is {shown(value)}; it must {kind.must}")
