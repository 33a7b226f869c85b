"""The rules between the keys of one profile file.

Belongs here: each rule is a function from a profile to problems. Never: rules about one value (`value_types.py`) or between files
(`layers.py`). The profile under check has only the correct values of its file: a rule ignores keys that are
already reported.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from accelshare.ledger.refusals import Reason
from accelshare.vendors.problems import Problem, nearest, shown
from accelshare.vendors.profile import FORMER_NOBODY, NOBODY, Profile, Section, StaticRules, Way
from accelshare.vendors.value_types import NO_DEVICE


@dataclass(frozen=True, slots=True)
class Checked:
    """A file under check: its correct values as a profile, its data as written, its known keys, and the keys already reported."""

    profile: Profile
    data: Mapping[str, object]
    known_keys: Collection[str]
    reported: Collection[str]

    def is_reported(self, key: str) -> bool:
        """Is this key, or one above or under it, already reported? Then a second message would only repeat the first."""
        return any(f"{other}.".startswith(f"{key}.") or key.startswith(f"{other}.") for other in self.reported)


# From a file to (key, what is wrong with it).
Rule = Callable[[Checked], Iterator[tuple[str, str]]]

# Names that the inspect JSON has already.
_INSPECT_RESERVED = ("name", "namespace", "id", "pods", "uid", "createTime", "nodes", "error")


def disagreements(checked: Checked, *, file: str) -> Iterator[Problem]:
    """Everything that contradicts something else in the same file."""
    for rule in _RULES:
        for key, message in rule(checked):
            yield Problem(file, key, message)


def _has_a_resource_for_pods(checked: Checked) -> Iterator[tuple[str, str]]:
    if not (checked.profile.resources.requestable or checked.is_reported("resources")):
        yield "resources", "has neither memory nor whole; at least one must be there, or pods have nothing to request"


def _names_differ(section: Callable[[Profile], Section], prefix: str, what: str) -> Rule:
    def rule(checked: Checked) -> Iterator[tuple[str, str]]:
        first: dict[str, str] = {}
        values = section(checked.profile)
        for name in values.__struct_fields__:
            key, value = f"{prefix}.{name}", getattr(values, name)
            if value is None:
                continue
            if value in first:
                yield key, f"is {shown(value)}, and so is {first[value]}; each must be {what} of its own"
            first.setdefault(value, key)

    return rule


def _inspect_names_differ(checked: Checked) -> Iterator[tuple[str, str]]:
    first: dict[str, str] = {}
    for name in ("total", "used", "available", "cards"):
        key, value = f"inspect.{name}", getattr(checked.profile.inspect, name)
        if value in _INSPECT_RESERVED:
            yield key, f"is {shown(value)}, which the inspect JSON uses for something else; it must be a name of its own"
        elif value is not None and value in first:
            yield key, f"is {shown(value)}, and so is {first[value]}; each must be a name of its own"
        first.setdefault(value, key)


def _units_exist(checked: Checked) -> Iterator[tuple[str, str]]:
    unit = checked.profile.unit
    choices = f"it must be one of the units in unit.mib: {', '.join(unit.mib) or 'it has none'}"
    if unit.default not in unit.mib and not checked.is_reported("unit"):
        yield "unit.default", f"is {shown(unit.default)}; {choices}"
    for name in unit.labels:
        if name not in unit.mib and not checked.is_reported("unit.mib"):
            yield f"unit.labels.{name}", f"labels no unit; {choices}"


def _settings_have_their_resource(checked: Checked) -> Iterator[tuple[str, str]]:
    request, resources = checked.profile.request, checked.profile.resources
    for key, setting, needs, resource in (
        ("request.cards_label", request.cards_label, "resources.memory", resources.memory),
        ("request.cards_annotation", request.cards_annotation, "resources.memory", resources.memory),
        ("request.max_slices_per_card", request.max_slices_per_card, "resources.memory", resources.memory),
        ("request.shapes", [shape.name for shape in request.shapes] or None, "resources.memory", resources.memory),
        ("request.max_whole_cards", request.max_whole_cards, "resources.whole", resources.whole),
    ):
        if setting is not None and resource is None and not checked.is_reported(needs):
            yield key, f"is {shown(setting)} without {needs}; it has no effect unless that is there"


def _users_do_not_write_the_record(checked: Checked) -> Iterator[tuple[str, str]]:
    wanted = checked.profile.request.cards_annotation
    values = checked.profile.annotations
    for name in values.__struct_fields__ if wanted is not None else ():
        if getattr(values, name) == wanted:
            message = f"is {shown(wanted)}, and so is annotations.{name}; users write the one and must not write the other"
            yield "request.cards_annotation", message


def _shapes_can_be_counted(checked: Checked) -> Iterator[tuple[str, str]]:
    """A slice with a shape is one piece of one card, and its size is a whole number of the profile's only unit."""
    request, unit = checked.profile.request, checked.profile.unit
    if not request.shapes or checked.is_reported("request.shapes"):
        return
    if request.max_cards != 1 and not checked.is_reported("request.max_cards"):
        message = f"is {request.max_cards} with request.shapes; it must be 1, because a slice with a shape is of one card"
        yield "request.max_cards", message
    if len(unit.mib) != 1 and not checked.is_reported("unit"):
        yield "unit.mib", f"has {', '.join(unit.mib)} with request.shapes; it must have one unit, in which shapes are counted"
    seen: dict[str, set[object]] = {"name": set(), "mib": set()}
    for place, shape in enumerate(request.shapes):
        for field in ("name", "mib"):
            value = getattr(shape, field)
            if value in seen[field]:
                yield f"request.shapes[{place}].{field}", f"is {shown(value)}, which another shape has; each must have its own"
            seen[field].add(value)
        if len(unit.mib) == 1 and (size := next(iter(unit.mib.values()))) and shape.mib % size:
            message = f"is {shape.mib}; it must be a multiple of {size:g}, the MiB of one unit"
            yield f"request.shapes[{place}].mib", message


def _shape_names_are_known(checked: Checked) -> Iterator[tuple[str, str]]:
    if checked.profile.request.shapes or checked.is_reported("request.shapes"):
        return
    rules = checked.profile.container
    tables = {
        "container.env": rules.env,
        "container.annotations": rules.annotations,
        "container.envvar": rules.envvar,
        "container.volume_mounts.env": rules.volume_mounts.env,
        "container.device_nodes.env": rules.device_nodes.env,
        "container.cdi.env": rules.cdi.env,
        **{f"enforcement.ways.{name}.env": way.env for name, way in checked.profile.enforcement.ways.items()},
    }
    for table, templates in tables.items():
        for name, template in templates.items():
            if "{shape}" in template:
                yield (
                    f"{table}.{name}",
                    f"is {shown(template)} without request.shapes; {{shape}} has no value unless that is there",
                )


def _container_paths_match(checked: Checked) -> Iterator[tuple[str, str]]:
    hardware, key = checked.profile.hardware, "hardware.container_device_nodes"
    paths = hardware.container_device_nodes
    if not paths or checked.is_reported("hardware"):
        return
    if len(paths) != len(hardware.device_nodes):
        yield (
            key,
            f"has {len(paths)} paths and hardware.device_nodes {len(hardware.device_nodes)}; each of those must have one here",
        )
    if len(set(paths)) < len(paths):
        yield key, "has the same path twice; each device file must have a path of its own"
    if "cdi" in checked.profile.container.strategy and any("{ordinal}" in path for path in paths):
        message = "has {ordinal} with the strategy cdi; a CDI specification names a card the same way for every container"
        yield key, message


def _only_declared_cards_have_no_device(checked: Checked) -> Iterator[tuple[str, str]]:
    """A container of such a card still gets a device file, with the name of the card's."""
    hardware, driver = checked.profile.hardware, checked.profile.driver
    if NO_DEVICE not in hardware.device_nodes or checked.is_reported("hardware") or checked.is_reported("driver"):
        return
    needed = {
        "hardware.container_device_nodes": hardware.container_device_nodes,
        "driver.static.cards": driver is not None and driver.static is not None and driver.static.cards,
    }
    for key, value in needed.items():
        if not value:
            message = f"has {shown(NO_DEVICE)} without {key}; it stands for a declared card that is not there"
            yield "hardware.device_nodes", message


def _static_driver_has_its_rules(checked: Checked) -> Iterator[tuple[str, str]]:
    driver = checked.profile.driver
    if driver is None:
        return
    rules = driver.static
    if driver.name != "static":
        keys = [name for name in rules.__struct_fields__ if getattr(rules, name)] if rules else []
        if keys:
            yield f"driver.static.{keys[0]}", f"is there, but driver.name is {shown(driver.name)}; only static has such rules"
        return
    if checked.is_reported("driver.static"):
        return
    sources = [name for name in ("cards", "glob", "sysfs", "command") if rules and getattr(rules, name)]
    readers = [name for name in ("pattern", "block_pattern", "json") if rules and getattr(rules, name)]
    if rules is None or len(sources) != 1:
        found = " and ".join(sources) or "no source of cards"
        yield "driver.static", f"has {found}; it must have one of cards, glob, sysfs and command"
    elif sources == ["command"] and len(readers) != 1:
        found = " and ".join(readers) or "nothing to read the cards from the output of command"
        yield "driver.static", f"has {found}; it must have one of pattern, block_pattern and json"
    elif sources != ["command"] and readers:
        yield f"driver.static.{readers[0]}", "is there without a command; it must come with one"
    elif sources != ["cards"] and rules.memory_mib is None and not _gives_memory(rules):
        what = f"{sources[0]} with {readers[0]}" if readers else sources[0]
        yield "driver.static.memory_mib", f"is missing; it must be there, because {what} does not give the cards' memory"


def _gives_memory(rules: StaticRules) -> bool:
    patterns = f"{rules.pattern}{rules.block_pattern}"
    by_json = rules.json is not None and rules.json.memory is not None
    by_sysfs = rules.sysfs is not None and (rules.sysfs.memory_file is not None or rules.sysfs.dmem)
    return "?P<memory_" in patterns or by_json or by_sysfs


def _json_is_complete(checked: Checked) -> Iterator[tuple[str, str]]:
    driver = checked.profile.driver
    rules = driver.static.json if driver and driver.static else None
    if rules is None or checked.is_reported("driver.static.json"):
        return
    if not (rules.index or rules.id or rules.pci or rules.memory):
        yield "driver.static.json", "names no value of a card; it must have at least one of index, id, pci and memory"
    if (rules.healthy is None) != (rules.healthy_value is None):
        have, lack = ("healthy", "healthy_value") if rules.healthy is not None else ("healthy_value", "healthy")
        yield f"driver.static.json.{lack}", f"is missing; it must be there with {have}"


def _static_cards_differ(checked: Checked) -> Iterator[tuple[str, str]]:
    driver = checked.profile.driver
    indexes, ids = set[int](), set[str]()
    following = 0
    for place, card in enumerate(driver.static.cards if driver and driver.static else ()):
        key, first = f"driver.static.cards[{place}]", following if card.index is None else card.index
        following = first + card.count
        if not indexes.isdisjoint(range(first, following)):
            yield f"{key}.index", f"is {first}, which another card has; each card must have an index of its own"
        indexes.update(range(first, following))
        if card.id is None or "{index}" in card.id:
            continue
        if card.count > 1:
            yield f"{key}.id", f"is {shown(card.id)} for {card.count} cards; it must contain {{index}}, so that the ids differ"
        elif card.id in ids:
            yield f"{key}.id", f"is {shown(card.id)}, which another card has; each card must have an id of its own"
        ids.add(card.id)


def _strategies_have_their_templates(checked: Checked) -> Iterator[tuple[str, str]]:
    rules = checked.profile.container
    for strategy, key, template in (
        ("volume-mounts", "container.volume_mounts.container_path", rules.volume_mounts.container_path),
        ("cdi", "container.cdi.name", rules.cdi.name),
    ):
        if strategy in rules.strategy and template is None and not checked.is_reported(key):
            yield key, f"is missing, but container.strategy has {strategy}; it must be there for this strategy"


def _order_names_ways(checked: Checked) -> Iterator[tuple[str, str]]:
    rules = checked.profile.enforcement
    seen = set[str]()
    for place, name in enumerate(rules.order):
        key = f"enforcement.order[{place}]"
        if name not in rules.ways and name != NOBODY and not checked.is_reported("enforcement.ways"):
            yield key, f"is {shown(name)}; it must be one of {', '.join((*rules.ways, NOBODY))}{nearest(name, rules.ways)}"
        elif name in seen:
            yield key, f"is {shown(name)} again; each way must be there once"
        elif NOBODY in seen:
            yield key, f"is {shown(name)} after {NOBODY}; {NOBODY} is always possible, so it must be the last"
        seen.add(name)


def _ways_are_complete(checked: Checked) -> Iterator[tuple[str, str]]:
    for name, way in checked.profile.enforcement.ways.items():
        key = f"enforcement.ways.{name}"
        if name in (NOBODY, FORMER_NOBODY):
            yield key, "is the name of the way without a limit, which every profile has; it must have another name"
        elif way.on_cgroup:
            yield from _cgroup_way(key, way)
        elif not way.env:
            yield f"{key}.env", "is missing; it must be a table with the variables that set the limit"
        elif way.region is not None:
            yield f"{key}.region", f'is {shown(way.region)}, but set_by is {shown(way.set_by)}; only "dmem" has regions'
        for place, requirement in enumerate(way.requires):
            if bool(requirement.file) == bool(requirement.command):
                yield f"{key}.requires[{place}]", "has both file and command or neither; it must have one of them"
            if requirement.pattern is not None and requirement.at_least is None:
                yield f"{key}.requires[{place}].pattern", "finds a version, but none is required; it must come with at_least"


def _cgroup_way(key: str, way: Way) -> Iterator[tuple[str, str]]:
    """A limit that the agent sets itself needs no variables. Whether it can be set with this driver is proven on the node."""
    for name in ("env", "mounts"):
        if getattr(way, name):
            yield f"{key}.{name}", f'is there, but set_by is {shown(way.set_by)}; it must come with set_by = "variables"'
    if way.region is not None and way.set_by != "dmem":
        yield f"{key}.region", f'is {shown(way.region)}, but set_by is {shown(way.set_by)}; only "dmem" has regions'


def _unverified_names_keys(checked: Checked) -> Iterator[tuple[str, str]]:
    for place, key in enumerate(checked.profile.unverified):
        if key in checked.known_keys:
            continue
        table = next((known for known in checked.known_keys if key.startswith(known + ".")), None)
        if (table is None or not _is_in_table(key, table, checked)) and not checked.is_reported(table or key):
            message = f"is {shown(key)}; it must be a key of this profile{nearest(key, checked.known_keys)}"
            yield f"unverified[{place}]", message


def _is_in_table(key: str, table: str, checked: Checked) -> bool:
    if table == "texts":
        return key.removeprefix("texts.") in (reason.value for reason in Reason)
    entries: object = checked.data
    for name in table.split("."):
        entries = entries.get(name) if isinstance(entries, Mapping) else None
    return _leads_somewhere(key.removeprefix(f"{table}."), entries)


def _leads_somewhere(path: str, entries: object) -> bool:
    """Does this dotted path name an entry, or one inside an entry? Names may contain dots."""
    if not isinstance(entries, Mapping):
        return False
    return path in entries or any(
        path.startswith(f"{name}.") and _leads_somewhere(path[len(name) + 1 :], inner) for name, inner in entries.items()
    )


_RULES: Final[tuple[Rule, ...]] = (
    _has_a_resource_for_pods,
    _names_differ(lambda profile: profile.resources, "resources", "a resource"),
    _names_differ(lambda profile: profile.annotations, "annotations", "an annotation"),
    _inspect_names_differ,
    _units_exist,
    _settings_have_their_resource,
    _users_do_not_write_the_record,
    _shapes_can_be_counted,
    _shape_names_are_known,
    _container_paths_match,
    _only_declared_cards_have_no_device,
    _static_driver_has_its_rules,
    _json_is_complete,
    _static_cards_differ,
    _strategies_have_their_templates,
    _order_names_ways,
    _ways_are_complete,
    _unverified_names_keys,
)
