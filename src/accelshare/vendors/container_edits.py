"""What a container gets so that it sees exactly its cards: the profile's templates, filled in.

Belongs here: from a profile and the cards of one container to the edits of that container. Pure: which device files the host
has is an argument. Never: choosing cards, talking to kubelet or a runtime; the CDI file behind the names (`cdi.py`).
"""

import contextlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from accelshare.vendors.enforcement import Enforcement
from accelshare.vendors.problems import VendorError
from accelshare.vendors.profile import Profile
from accelshare.vendors.shapes import shape_for
from accelshare.vendors.value_types import CARD_FIELDS

_BYTES_PER_MIB = 2**20


class EditsError(VendorError):
    """The edits cannot be made; the message names the card and what it lacks."""


class CardNames(Protocol):
    """A card as templates name it."""

    @property
    def index(self) -> int: ...
    @property
    def minor(self) -> int | None: ...
    @property
    def id(self) -> str: ...
    @property
    def pci(self) -> str: ...
    @property
    def card_node(self) -> str: ...
    @property
    def render_node(self) -> str: ...


@dataclass(frozen=True, slots=True)
class CardShare:
    """One card of a container, and this container's units of it."""

    index: int
    minor: int | None
    id: str
    units: int
    card_units: int
    unit_mib: float
    whole: bool = False
    pci: str = ""
    card_node: str = ""
    render_node: str = ""
    cdi_name: str = ""  # as a specification on this node has it; empty: the profile's
    enforcement: Enforcement | None = None  # how this card's shares are enforced; none: not


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device file: where it is on the host, where the container finds it, and what it may do with it."""

    host_path: str
    container_path: str
    permissions: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the host in the container."""

    host_path: str
    container_path: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class ContainerEdits:
    """Everything that is added to one container, in the terms of kubelet and the runtimes."""

    env: Mapping[str, str] = field(default_factory=dict)
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def edits(
    profile: Profile,
    *,
    cards: Sequence[CardShare],
    container_units: int,
    pod_units: int,
    exists: Callable[[str], bool],
    node_labels: Mapping[str, str] | None = None,
) -> ContainerEdits:
    """The edits for a container with these cards; `exists` tests whether the host has a device file.

    A container with whole cards gets no limit: it has the card to itself.
    """
    if not cards:
        raise EditsError(f"profile {profile.name}: a container without cards gets no edits")
    rules, strategies = profile.container, profile.container.strategy
    fills = [
        _fill(profile, card, ordinal, container_units=container_units, pod_units=pod_units) for ordinal, card in enumerate(cards)
    ]

    templates = variable_templates(profile)
    if any(card.whole for card in cards):  # a whole card is not divided, so it has no shape
        templates = {name: template for name, template in templates.items() if "{shape}" not in template}
    env = {name: _joined(name, template, fills) for name, template in templates.items()}
    env |= _label_env(rules.node_label_env, node_labels or {})
    mounts = _mounts(profile, fills) if "volume-mounts" in strategies else ()
    limited = [(card.enforcement, words) for card, words in zip(cards, fills, strict=True) if card.enforcement and not card.whole]
    for way in {each.name: each for each, _ in limited}.values():
        of_way = [words for each, words in limited if each.name == way.name]
        env |= {name: _joined(name, template, of_way) for name, template in way.env.items()}
        mounts += tuple(Mount(path, path, read_only=False) for path in way.mounts)
    return ContainerEdits(
        env=env,
        device_nodes=device_nodes(profile, cards, exists) if "device-nodes" in strategies else (),
        mounts=mounts,
        cdi_devices=tuple(card.cdi_name or cdi_name(profile, card) for card in cards) if "cdi" in strategies else (),
        annotations={name: _joined(name, template, fills) for name, template in rules.annotations.items()},
    )


def variable_templates(profile: Profile) -> dict[str, str]:
    """The variables that a container with cards gets by the profile's strategies, as templates."""
    rules = profile.container
    templates = dict(rules.env)
    # The first strategy that sets a variable wins: `void` of a later one must not hide what an earlier one names.
    by_strategy = {
        "envvar": rules.envvar,
        "volume-mounts": rules.volume_mounts.env,
        "device-nodes": rules.device_nodes.env,
        "cdi": rules.cdi.env,
    }
    for strategy in rules.strategy:
        templates = {**by_strategy[strategy], **templates}
    return templates


def all_variables(profile: Profile) -> frozenset[str]:
    """The names of all variables that a container with cards can get, by whatever strategy, node label or enforcement."""
    rules = profile.container
    by_label = (setting.partition("=")[0] for setting in rules.node_label_env.values())
    by_way = (name for way in profile.enforcement.ways.values() for name in way.env)
    return frozenset((*variable_templates(profile), *by_label, *by_way))


def variable_values(profile: Profile, name: str, cards: Iterable[CardNames]) -> set[str] | None:
    """What this variable can be for one of these cards; None if a container with cards does not get it."""
    template = variable_templates(profile).get(name)
    if template is None:
        return None
    values = set()
    for card in cards:
        with contextlib.suppress(EditsError):
            values.add(filled(template, naming(card)))
    return values


def device_nodes(profile: Profile, cards: Sequence[CardNames], exists: Callable[[str], bool]) -> tuple[DeviceNode, ...]:
    """The device files of these cards, and those all cards share as far as the host has them."""
    hardware, permissions = profile.hardware, profile.container.device_nodes.permissions
    paths: dict[str, str] = {}  # in the container → on the host
    for ordinal, card in enumerate(cards):
        words = {**naming(card), "ordinal": ordinal}
        for template, inside in zip(hardware.device_nodes, container_paths(profile), strict=True):
            paths.setdefault(filled(inside, words), filled(template, words))
    paths |= {path: path for path in hardware.shared_device_nodes if exists(path)}
    return tuple(DeviceNode(path, inside, permissions) for inside, path in paths.items())


def container_paths(profile: Profile) -> tuple[str, ...]:
    """The templates of a card's device files as a container finds them."""
    return profile.hardware.container_device_nodes or profile.hardware.device_nodes


def renumbered(profile: Profile) -> bool:
    """Whether a container's device files do not tell which card they are of: it numbers its own cards from 0."""
    return any("{ordinal}" in path for path in container_paths(profile))


# What a placeholder in the path of a device file can become; any other becomes a number.
_PLACEHOLDERS: Final = {"pci": "[0-9a-f:.]+", "card_node": "card[0-9]+", "render_node": "renderD[0-9]+"}


def path_pattern(template: str) -> re.Pattern[str]:
    """Every path that this template of a device file can become."""
    parts = re.split(r"\{(\w+)\}", template)
    names = (_PLACEHOLDERS.get(part, "[0-9]+") if place % 2 else re.escape(part) for place, part in enumerate(parts))
    return re.compile("".join(names))


def naming_templates(profile: Profile) -> dict[str, str]:
    """The variables that name a container's cards for the vendor's runtime; if there are none, any that name a card."""
    rules = profile.container
    by_strategy = {**rules.envvar} if "envvar" in rules.strategy else {}
    strong = {name: template for name, template in by_strategy.items() if _names_a_card(template)}
    if strong or {"device-nodes", "volume-mounts"} & set(rules.strategy):
        return strong
    return {name: template for name, template in rules.env.items() if _names_a_card(template)}


def shows_cards(profile: Profile) -> bool:
    """Whether a container of this profile can be seen to have its cards at all."""
    strategies = set(profile.container.strategy)
    by_files = "device-nodes" in strategies and not renumbered(profile)
    return bool(naming_templates(profile)) or by_files or "volume-mounts" in strategies


def shown_cards(
    profile: Profile,
    cards: Iterable[CardNames],
    *,
    env: Mapping[str, str],
    devices: Collection[str],
    mounts: Collection[str],
) -> set[int]:
    """The cards that a container with these variables, device files and mounts shows, by all that its strategies can show of one.

    A variable of the user's own that names no card, or only one of several signs, shows nothing.
    """
    rules = profile.container
    templates = naming_templates(profile)
    found = set()
    for card in cards:
        words = naming(card)
        try:
            signs = [filled(template, words) in env.get(name, "").split(",") for name, template in templates.items()]
            if "device-nodes" in rules.strategy and not renumbered(profile):
                signs += [filled(template, words) in devices for template in container_paths(profile)]
            if "volume-mounts" in rules.strategy and rules.volume_mounts.container_path is not None:
                signs.append(filled(rules.volume_mounts.container_path, words) in mounts)
        except EditsError:
            continue
        if signs and all(signs):
            found.add(card.index)
    return found


def _names_a_card(template: str) -> bool:
    return any(f"{{{field}}}" in template for field in CARD_FIELDS)


def cdi_name(profile: Profile, card: CardNames) -> str:
    """The fully qualified CDI name of a card: vendor/class=device."""
    if profile.container.cdi.name is None:
        raise EditsError(f"profile {profile.name}: container.cdi.name is not set, so its cards have no CDI names")
    return filled(profile.container.cdi.name, naming(card))


def card_mounts(profile: Profile, cards: Iterable[CardNames]) -> list[str]:
    """The mounts that stand for these cards, if the profile gives cards by mounts."""
    path = profile.container.volume_mounts.container_path
    if path is None or "volume-mounts" not in profile.container.strategy:
        return []
    return [filled(path, naming(card)) for card in cards]


def naming(card: CardNames) -> dict[str, object]:
    """The placeholders of a card; without those that are not known of it."""
    names = {"pci": card.pci, "card_node": card.card_node, "render_node": card.render_node}
    known: dict[str, object] = {"index": card.index, "id": card.id, **{name: text for name, text in names.items() if text}}
    return known if card.minor is None else {**known, "minor": card.minor}


def filled(template: str, words: Mapping[str, object]) -> str:
    """The template with its fields filled in; EditsError if a field is not known of this card."""
    try:
        return template.format_map(words)
    except KeyError as error:
        raise EditsError(f"{template} needs {{{error.args[0]}}}, which is not known of card {words.get('id')}") from None


def _fill(profile: Profile, card: CardShare, ordinal: int, *, container_units: int, pod_units: int) -> dict[str, object]:
    shape = None if card.whole else shape_for(profile, card.units)
    return {
        **naming(card),
        "ordinal": ordinal,
        **({"shape": shape.name} if shape is not None else {}),
        **_amounts("share_", card.units, card.unit_mib),
        **_amounts("", container_units, card.unit_mib),
        **_amounts("pod_", pod_units, card.unit_mib),
        **_amounts("card_", card.card_units, card.unit_mib),
    }


def _amounts(prefix: str, units: int, unit_mib: float) -> dict[str, object]:
    # Whole MiB are rounded down, so that a limit is never more than the share; parts of a unit may be off by a hair.
    return {
        f"{prefix}units": units,
        f"{prefix}mib": math.floor(units * unit_mib + 1e-6),
        f"{prefix}bytes": share_bytes(units, unit_mib),
    }


def share_bytes(units: int, unit_mib: float) -> int:
    """The bytes of so many units, rounded down."""
    return math.floor(units * unit_mib * _BYTES_PER_MIB + 1e-3)


def _joined(name: str, template: str, fills: Sequence[Mapping[str, object]]) -> str:
    """The template filled for each card: one value if all are the same, else joined by commas."""
    try:
        values = [filled(template, words) for words in fills]
    except EditsError as error:
        raise EditsError(f"{name}: {error}") from error
    return values[0] if len(set(values)) == 1 else ",".join(values)


def _label_env(rules: Mapping[str, str], node_labels: Mapping[str, str]) -> dict[str, str]:
    env: dict[str, str] = {}
    for label, setting in rules.items():
        key, _, wanted = label.partition("=")
        if node_labels.get(key) == wanted:
            name, _, value = setting.partition("=")
            env[name] = value
    return env


def _mounts(profile: Profile, fills: Sequence[Mapping[str, object]]) -> tuple[Mount, ...]:
    rules = profile.container.volume_mounts
    if rules.container_path is None:
        raise EditsError(f"profile {profile.name}: container.volume_mounts.container_path is not set")
    return tuple(Mount(rules.host_path, filled(rules.container_path, words)) for words in fills)
