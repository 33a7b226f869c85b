"""Where the keys of one profile must agree with each other.

Belongs here: rules between keys of one file; each is a function from checked values to problems. Never: rules about one
value (`schema.py`) or between files (`catalog.py`).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from accelshare.vendors.problems import Problem, nearest, shown
from accelshare.vendors.schema import SCHEMA, Checked, is_known, table_over

# From checked values to (key, what is wrong with it).
Rule = Callable[[Checked], Iterator[tuple[str, str]]]

# Names the inspect JSON has already.
_INSPECT_RESERVED = ("name", "namespace", "id", "pods", "uid", "createTime", "nodes", "error")


def disagreements(checked: Checked) -> Iterator[Problem]:
    """Everything that contradicts something else in the same file."""
    for rule in _RULES:
        for key, says in rule(checked):
            yield Problem(checked.file, key, says)


def _something_to_ask_for(checked: Checked) -> Iterator[tuple[str, str]]:
    if not ("resources.memory" in checked.values or "resources.whole" in checked.values or _broken(checked, "resources")):
        yield "resources", "has neither memory nor whole; at least one must be there, or pods have nothing to ask for"


def _no_name_twice(section: str, what: str) -> Rule:
    def rule(checked: Checked) -> Iterator[tuple[str, str]]:
        first: dict[object, str] = {}
        for key in SCHEMA:
            if not key.startswith(section + ".") or key not in checked.values:
                continue
            value = checked.values[key]
            if value in first:
                yield key, f"is {shown(value)}, and so is {first[value]}; each must be {what} of its own"
            first.setdefault(value, key)

    return rule


def _inspect_names_differ(checked: Checked) -> Iterator[tuple[str, str]]:
    first: dict[object, str] = {}
    for key in ("inspect.total", "inspect.used", "inspect.available", "inspect.cards"):
        value = checked.get(key)
        if value in _INSPECT_RESERVED:
            yield key, f"is {shown(value)}, which the inspect JSON uses for something else; it must be a name of its own"
        elif value is not None and value in first:
            yield key, f"is {shown(value)}, and so is {first[value]}; each must be a name of its own"
        first.setdefault(value, key)


def _default_unit_is_a_choice(checked: Checked) -> Iterator[tuple[str, str]]:
    choices, default = _entries(checked, "unit.mib"), checked.get("unit.default")
    if default not in choices and not _broken(checked, "unit"):
        yield (
            "unit.default",
            f"is {shown(default)}; it must be {_one_of(choices)}",
        )


def _labels_name_units(checked: Checked) -> Iterator[tuple[str, str]]:
    choices = _entries(checked, "unit.mib")
    for unit in _entries(checked, "unit.labels"):
        if unit not in choices and not _broken(checked, "unit.mib"):
            yield (
                f"unit.labels.{unit}",
                f"labels no unit; it must be {_one_of(choices)}",
            )


def _settings_have_their_resource(checked: Checked) -> Iterator[tuple[str, str]]:
    for setting, resource in (("request.cards_label", "resources.memory"), ("request.max_whole_cards", "resources.whole")):
        if setting in checked.values and resource not in checked.values and not _broken(checked, resource):
            yield setting, f"is {shown(checked.values[setting])} without {resource}; it means nothing unless that is there"


def _unhealthy_is_complete(checked: Checked) -> Iterator[tuple[str, str]]:
    keys = ("unhealthy.namespace", "unhealthy.name", "unhealthy.key")
    if not any(key in checked.values for key in keys):
        return
    for key in keys:
        if checked.get(key) is None and not _broken(checked, key):
            yield key, f"is missing; it must {SCHEMA[key].kind.must}"


def _unverified_names_keys(checked: Checked) -> Iterator[tuple[str, str]]:
    named = checked.get("unverified")
    for place, key in enumerate(named if isinstance(named, list | tuple) else ()):
        if not is_known(key, checked.values) and not _broken(checked, table_over(key) or key):
            yield f"unverified[{place}]", f"is {shown(key)}; it must be a key of this profile{nearest(key, SCHEMA)}"


def _one_of(units: Mapping[str, object]) -> str:
    return f"one of the units in unit.mib: {', '.join(units) or 'it has none'}"


def _entries(checked: Checked, key: str) -> Mapping[str, object]:
    value = checked.get(key)
    return value if isinstance(value, Mapping) else {}


def _broken(checked: Checked, key: str) -> bool:
    """Is this key, or one above or under it, already complained about? Then a second complaint would only be an echo."""
    return any((problem.key + ".").startswith(key + ".") or key.startswith(problem.key + ".") for problem in checked.problems)


_RULES: Final[tuple[Rule, ...]] = (
    _something_to_ask_for,
    _no_name_twice("resources", "a resource"),
    _no_name_twice("annotations", "an annotation"),
    _inspect_names_differ,
    _default_unit_is_a_choice,
    _labels_name_units,
    _settings_have_their_resource,
    _unhealthy_is_complete,
    _unverified_names_keys,
)
