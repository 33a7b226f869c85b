"""Where the keys of one profile must agree with each other.

Belongs here: rules between keys of one file; each is a function from checked values to problems. Never: rules about one
value (`schema.py`) or between files (`catalog.py`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from accelshare.vendors.node_rules import WATCH
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


def _driver_has_a_name(checked: Checked) -> Iterator[tuple[str, str]]:
    given = [key for key in checked.values if key.startswith("driver.")]
    if given and "driver.name" not in checked.values and not _broken(checked, "driver.name"):
        yield "driver.name", f"is missing, but {given[0]} is there; it must {SCHEMA['driver.name'].kind.must}"


def _static_driver_has_its_rules(checked: Checked) -> Iterator[tuple[str, str]]:
    given = [key for key in checked.values if key.startswith("driver.static.") and checked.values[key]]
    if checked.get("driver.name") != "static":
        if given and not _broken(checked, "driver.name"):
            yield given[0], f"is there, but driver.name is {shown(checked.get('driver.name'))}; only static cards have such rules"
        return
    if _broken(checked, "driver.static"):
        return
    sources = [name for name in ("cards", "glob", "command") if f"driver.static.{name}" in given]
    if len(sources) != 1:
        yield "driver.static", f"has {' and '.join(sources) or 'no source of cards'}; it must have one of cards, glob and command"
        return
    pattern, memory = checked.get("driver.static.pattern"), checked.get("driver.static.memory_mib")
    if sources == ["command"] and pattern is None:
        yield "driver.static.pattern", f"is missing; it must {SCHEMA['driver.static.pattern'].kind.must}"
    elif sources != ["command"] and pattern is not None:
        yield "driver.static.pattern", "is there without a command; it means nothing unless that is there"
    elif sources != ["cards"] and memory is None and "?P<memory_" not in str(pattern):
        yield "driver.static.memory_mib", f"is missing; it must {SCHEMA['driver.static.memory_mib'].kind.must}"


def _static_cards_differ(checked: Checked) -> Iterator[tuple[str, str]]:
    cards = checked.get("driver.static.cards")
    indexes, ids = set[object](), set[object]()
    following = 0
    for place, card in enumerate(cards if isinstance(cards, list | tuple) else ()):
        key, first = f"driver.static.cards[{place}]", card.get("index", following)
        following = first + card.get("count", 1)
        if not indexes.isdisjoint(range(first, following)):
            yield f"{key}.index", f"is {first}, which another card has; each card must have an index of its own"
        indexes.update(range(first, following))
        name = card.get("id", "")
        if card.get("count", 1) > 1 and name and "{index}" not in name:
            yield f"{key}.id", f"is {shown(name)} for {card['count']} cards; it must say {{index}}, so that each has its own"
        elif name and name in ids:
            yield f"{key}.id", f"is {shown(name)}, which another card has; each card must have an id of its own"
        ids.add(name if "{index}" not in name else object())


def _strategies_have_their_templates(checked: Checked) -> Iterator[tuple[str, str]]:
    chosen = checked.get("container.strategy")
    for strategy, key in (("volume-mounts", "container.volume_mounts.container_path"), ("cdi", "container.cdi.name")):
        wanted = strategy == chosen or (not isinstance(chosen, str) and isinstance(chosen, Collection) and strategy in chosen)
        if wanted and checked.get(key) is None and not _broken(checked, key):
            yield key, f"is missing, but container.strategy has {strategy}; it must {SCHEMA[key].kind.must}"


def _order_names_ways(checked: Checked) -> Iterator[tuple[str, str]]:
    ways, order = _entries(checked, "enforcement.ways"), checked.get("enforcement.order")
    seen = set[object]()
    for place, name in enumerate(order if isinstance(order, list | tuple) else ()):
        if name not in ways and name != WATCH.name and not _broken(checked, "enforcement.ways"):
            known = ", ".join((*ways, WATCH.name))
            yield f"enforcement.order[{place}]", f"is {shown(name)}; it must be one of {known}{nearest(name, ways)}"
        elif name in seen:
            yield f"enforcement.order[{place}]", f"is {shown(name)} again; each way must be there once"
        elif WATCH.name in seen:
            yield f"enforcement.order[{place}]", f"is {shown(name)} after {WATCH.name}; that always holds, so it must be the last"
        seen.add(name)


def _ways_are_complete(checked: Checked) -> Iterator[tuple[str, str]]:
    for name, way in _entries(checked, "enforcement.ways").items():
        key = f"enforcement.ways.{name}"
        if name == WATCH.name:
            yield key, "is there already: it is what is left when no way holds; it must have another name"
        elif isinstance(way, Mapping) and not way.get("env"):
            yield f"{key}.env", "is missing; it must be a table with the variables that set the limit"
        for place, requirement in enumerate(way.get("requires", ()) if isinstance(way, Mapping) else ()):
            at = f"{key}.requires[{place}]"
            if bool(requirement.get("file")) == bool(requirement.get("command")):
                yield at, "has both file and command or neither; it must have one of them"
            if "pattern" in requirement and "at_least" not in requirement:
                yield f"{at}.pattern", "finds a version that nothing is asked of; it must come with at_least"


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
    _driver_has_a_name,
    _static_driver_has_its_rules,
    _static_cards_differ,
    _strategies_have_their_templates,
    _order_names_ways,
    _ways_are_complete,
    _unverified_names_keys,
)
