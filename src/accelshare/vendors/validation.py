"""Checks a profile file against the types in `profile.py`, key by key, and makes the profile.

Belongs here: every problem of one file at once (msgspec alone stops at the first), and the way from data to a profile and back.
Never: the rules themselves (`value_types.py`, `agreement.py`), problems between files (`layers.py`).
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from msgspec import NODEFAULT, Meta, Struct, ValidationError, convert, to_builtins
from msgspec.structs import FieldInfo, fields, replace

from accelshare.vendors.agreement import Checked, disagreements
from accelshare.vendors.problems import Problem, ProfileError, nearest, shown
from accelshare.vendors.profile import FORMER_NOBODY, NOBODY, Profile
from accelshare.vendors.refusal_texts import default_texts

DEEPEST: Final = 16  # tables and lists within each other
MOST_VALUES: Final = 4_000
MOST_UNKNOWN: Final = 100  # unknown keys that are reported one by one
_INTEGER_BITS: Final = 63  # and a sign
# Stands in for required keys that are missing or wrong, so that the rules between the other keys can still be checked.
_STAND_IN: Final = {"name": "x", "title": "x", "noun": "x"}


class Key(NamedTuple):
    """One key of a section: the type of its value, whether it is required, its default, and its Struct if it is a section."""

    type: Any
    required: bool
    default: object
    section: type[Struct] | None


def parse(data: Mapping[str, object], *, file: str) -> Profile:
    """The profile this data describes; ProfileError with all of its problems if it describes none."""
    reading = _Reading(file)
    values = reading.section(Profile, _normalized(data))
    profile: Profile = convert({**_STAND_IN, **values}, Profile)
    problems = (*unknown_keys(data, file=file), *reading.problems)
    checked = Checked(profile, data, known_keys=keys(), reported=[problem.key for problem in problems])
    problems += tuple(disagreements(checked, file=file))
    if problems:
        raise ProfileError(problems)
    return _with_all_texts(profile)


def parse_shipped(data: Mapping[str, object]) -> Profile:
    """The profile of a shipped file, without the checks that its tests have made."""
    return _with_all_texts(convert(_normalized(data), Profile))


def _with_all_texts(profile: Profile) -> Profile:
    return replace(profile, texts={**default_texts(profile), **profile.texts})


def problems_of_part(data: Mapping[str, object], *, file: str) -> list[Problem]:
    """What is wrong with the keys that are there, in a file whose base is not known."""
    reading = _Reading(file)
    reading.section(Profile, _normalized({**_STAND_IN, **data}))
    return [*unknown_keys(data, file=file), *reading.problems]


def to_data(profile: Profile) -> dict[str, Any]:
    """The profile as its file would have it, defaults written out: `parse(to_data(p))` is `p` again."""
    data: dict[str, Any] = _plain(to_builtins(profile, enc_hook=dict))
    return data


@cache
def keys(section: type[Struct] = Profile, above: str = "") -> dict[str, Key]:
    """Every key that a profile file may have, dotted."""
    found: dict[str, Key] = {}
    for name, key in _fields(section).items():
        found.update(keys(key.section, f"{above}{name}.") if key.section else {above + name: key})
    return found


def sections(section: type[Struct] = Profile, above: str = "") -> Iterator[str]:
    """Every table of a profile file whose keys are ours, dotted."""
    for name, key in _fields(section).items():
        if key.section:
            yield above + name
            yield from sections(key.section, f"{above}{name}.")


def entry_sections(key: str, kind: Any) -> Iterator[tuple[str, type[Struct]]]:
    """The sections in a list or table: `("driver.static.cards[]", StaticCard)`, `("enforcement.ways.*", Way)`."""
    core = _core(kind)
    for sign, entry in (("[]", get_args(core)[:1]), (".*", get_args(core)[1:])):
        if entry and _is_struct(entry[0]) and get_origin(core) is (tuple if sign == "[]" else Mapping):
            yield key + sign, entry[0]


def out_of_bounds(data: Mapping[str, object], *, file: str) -> Iterator[Problem]:
    """What no profile needs and no rule should have to expect: reported once, and the file is not checked any further."""
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


def unknown_keys(data: Mapping[str, object], *, file: str) -> Iterator[Problem]:
    """Keys that no profile has; values are not checked."""
    unknown = list(_unknown(Profile, data))
    for key, known in unknown[:MOST_UNKNOWN]:
        yield Problem(file, key, _no_such(key, known))
    if len(unknown) > MOST_UNKNOWN:
        yield Problem(file, "", f"has {len(unknown) - MOST_UNKNOWN} more keys that are no keys of a profile")


def _unknown(section: type[Struct], data: Mapping[str, object], above: str = "") -> Iterator[tuple[str, Iterable[str]]]:
    for name, value in data.items():
        key = _fields(section).get(name)
        if key is None:
            yield above + name, [*(above + known for known in _fields(section)), *(keys() if not above else ())]
        elif key.section and isinstance(value, Mapping):
            yield from _unknown(key.section, value, f"{above}{name}.")


class _Reading:
    """The check of one file: the correct values are returned, the problems collected."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.problems: list[Problem] = []

    def section(self, section: type[Struct], data: Mapping[str, object], above: str = "") -> dict[str, object]:
        """The correct values of a section; an optional section that lacks a required key is left out."""
        values: dict[str, object] = {}
        for name, key in _fields(section).items():
            inner, value = key.section, data.get(name)
            if name not in data:
                if key.required:
                    self._report(above + name, f"is missing; it must {_must(key.type)}")
            elif inner and isinstance(value, Mapping):
                read = self.section(inner, value, f"{above}{name}.") if value or key.default is not None else None
                if read is not None and all(field in read for field, each in _fields(inner).items() if each.required):
                    values[name] = read
            elif self._is_correct(above + name, key.type, value):
                values[name] = value
        return values

    def _is_correct(self, key: str, kind: Any, value: object) -> bool:
        """Is this value of its type, and each entry in it? Whatever is not is reported under its own key."""
        core, before = _core(kind), len(self.problems)
        if _is_struct(core) and isinstance(value, Mapping):
            for name in value.keys() - _fields(core).keys():
                self._report(f"{key}.{name}", _no_such(f"{key}.{name}", [f"{key}.{known}" for known in _fields(core)]))
            self.section(core, value, f"{key}.")
        elif get_origin(core) is tuple and isinstance(value, list | tuple):
            for place, entry in enumerate(value):
                self._is_correct(f"{key}[{place}]", get_args(core)[0], entry)
        elif get_origin(core) is Mapping and isinstance(value, Mapping):
            names, entries = get_args(core)
            for name, entry in value.items():
                if _holds(names, name):
                    self._is_correct(f"{key}.{name}", entries, entry)
                elif isinstance(names, type) and issubclass(names, Enum):
                    self._report(f"{key}.{name}", _no_such(f"{key}.{name}", [f"{key}.{known.value}" for known in names]))
                else:
                    self._report(f"{key}.{name}", f"has the name {shown(name)}; it must {_must(names)}")
        if len(self.problems) == before and not _holds(kind, value):
            self._report(key, f"is {shown(value)}; it must {_must(kind)}")
        return len(self.problems) == before

    def _report(self, key: str, message: str) -> None:
        self.problems.append(Problem(self._file, key, message))


@cache
def _fields(section: type[Struct]) -> dict[str, Key]:
    return {each.encode_name: _key(each) for each in fields(section)}


def _key(each: FieldInfo) -> Key:
    default = each.default if each.required or each.default is not NODEFAULT else each.default_factory()
    core = _core(each.type)
    return Key(each.type, each.required, default, core if _is_struct(core) else None)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _core(kind: Any) -> Any:
    """The type without None and without its constraints."""
    kind = _without_none(kind)
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    others = [each for each in get_args(kind) if each is not NoneType]
    return others[0] if len(others) == 1 else kind


def _constraints(kind: Any) -> Meta:
    kind = _without_none(kind)
    if get_origin(kind) in (Union, UnionType):  # the same constraints on int and float
        kind = get_args(kind)[0]
    return next((each for each in getattr(kind, "__metadata__", ()) if isinstance(each, Meta)), Meta())


def _holds(kind: Any, value: object) -> bool:
    try:
        convert(value, _without_none(kind))
    except ValidationError:
        return False
    check = (_constraints(kind).extra or {}).get("check")
    return check is None or check(value)


def _must(kind: Any) -> str:
    """The end of the sentence "it must …" for a value of this type."""
    core, constraints = _core(kind), _constraints(kind)
    if constraints.description is not None:
        return constraints.description
    if get_origin(core) is Literal:
        return f"be one of {', '.join(get_args(core))}"
    if core is int:
        return f"be a whole number from {constraints.ge} to {constraints.le}"
    if core is bool:
        return "be true or false"
    return "be a list" if get_origin(core) is tuple else "be a table"


def _no_such(key: str, known: Iterable[str]) -> str:
    return f"is no key of a profile{nearest(key, known)}"


def _normalized(data: Mapping[str, object]) -> Mapping[str, object]:
    """The data with `container.strategy` as a list, where it is one word, and with today's name for a former one."""
    container, enforcement = data.get("container"), data.get("enforcement")
    if isinstance(container, Mapping) and isinstance(container.get("strategy"), str):
        data = {**data, "container": {**container, "strategy": [container["strategy"]]}}
    if isinstance(enforcement, Mapping) and isinstance(order := enforcement.get("order"), list | tuple):
        order = [NOBODY if name == FORMER_NOBODY else name for name in order]
        data = {**data, "enforcement": {**enforcement, "order": order}}
    return data


def _plain(value: Any, *, in_list: bool = False) -> Any:
    """Plain data without what is left open; entries of lists also without their empty lists and tables."""
    if isinstance(value, Mapping):
        plain = {name: _plain(entry, in_list=in_list) for name, entry in value.items()}
        return {name: entry for name, entry in plain.items() if entry not in ((None, "", [], {}) if in_list else (None, ""))}
    return [_plain(entry, in_list=True) for entry in value] if isinstance(value, tuple | list) else value


def _below(key: str, name: str) -> str:
    return f"{key}{name}" if not key or name.startswith("[") else f"{key}.{name}"
