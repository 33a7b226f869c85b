"""A scenario for profiles of the user's own: one node with cards for each, and pods that show what its cards can do.

Belongs here: from a directory of profiles to a scenario, its nodes and its pods. The cards are declared, because this machine has
none; everything else is the user's profile as it is. Never: running it.
"""

from pathlib import Path
from typing import Any, Final

import yaml

from accelshare.vendors.catalog import load, read_layers
from accelshare.vendors.command import as_toml
from accelshare.vendors.profile import Profile
from accelshare.vendors.shapes import units_of
from accelshare.vendors.validation import parse, to_data
from demo.scenario import DemoError, DemoStep, Object, Scenario, ScenarioNode

DEFAULT_MIB: Final = 16384
CARDS: Final = 2
MOST_UNITS: Final = 60_000  # of a node: each is a device in kubelet's list
# Names that only a driver finds, as declared cards have them.
_FOUND_NAMES: Final = {"{card_node}": "card{index}", "{render_node}": "renderD{index}", "{pci}": "pci{index}"}


def own_scenario(directory: Path, folder: Path) -> Scenario:
    """The scenario for the profiles in this directory; its files are written into `folder`."""
    layers, _ = read_layers([directory])
    catalog = load([directory])
    names = sorted({source.name for source in layers[-1] if source.name is not None} if len(layers) > 1 else ())
    if not names:
        raise DemoError(f"{directory} has no profile; a profile is a file like acme.toml (docs/how-to/add-a-vendor.md)")
    profiles = folder / "profiles"
    profiles.mkdir()
    nodes, steps = list[ScenarioNode](), list[DemoStep]()
    for number, name in enumerate(names):
        profile = with_declared_cards(catalog[name])
        (profiles / f"{name}.toml").write_text(as_toml(profile), encoding="utf-8")
        node, pods = folder / f"{name}-node.yaml", folder / f"{name}-pods.yaml"
        node.write_text(yaml.safe_dump(_node(f"{name}-node", number)), encoding="utf-8")
        pods.write_text(yaml.safe_dump_all(_pods(profile)), encoding="utf-8")
        nodes.append(ScenarioNode(str(node), name))
        steps.append(DemoStep(title=f"{profile.title}: slices, whole cards, and a pod that is too large", apply=(str(pods),)))
    return Scenario(tuple(nodes), tuple(steps), str(profiles))


def with_declared_cards(profile: Profile) -> Profile:
    """The profile with cards that it lists itself: as many and as large as its own rules give, else a few."""
    data = to_data(profile)
    data["driver"] = {"name": "static", "static": {"cards": _cards(profile)}}
    hardware: dict[str, Any] = data.get("hardware", {})
    for found, declared in _FOUND_NAMES.items():
        hardware["device_nodes"] = [path.replace(found, declared) for path in hardware.get("device_nodes", [])]
    data["unverified"] = []  # it may name keys of the driver that is replaced
    return parse(data, file=f"{profile.name}.toml")


def _cards(profile: Profile) -> list[Object]:
    rules = profile.driver.static if profile.driver is not None else None
    if rules is not None and rules.cards:
        return [dict(card) for card in to_data(profile)["driver"]["static"]["cards"]]
    shapes = [2 * shape.mib for shape in profile.request.shapes]
    mib = (rules.memory_mib if rules is not None else None) or max(DEFAULT_MIB, *shapes, 0)
    units = mib / profile.unit.mib[profile.unit.default]
    count = CARDS if units * CARDS <= MOST_UNITS or profile.resources.memory is None else 1
    if units * count > MOST_UNITS and profile.resources.memory is not None:
        mib = int(MOST_UNITS * profile.unit.mib[profile.unit.default])
    return [{"count": count, "memory_mib": mib, "model": profile.title}]


def _pods(profile: Profile) -> list[Object]:
    rules, resources = profile.driver, profile.resources
    assert rules is not None
    assert rules.static is not None
    units = int(rules.static.cards[0].memory_mib / profile.unit.mib[profile.unit.default] + 1e-6)
    pods: list[Object] = []
    if resources.memory is not None:
        shapes = sorted(units_of(profile, shape) for shape in profile.request.shapes)
        quarter = max(1, (shapes[0] if shapes else units) // (2 if shapes else 4))
        most = (
            shapes[-1]
            if shapes
            else max(int(card.memory_mib / profile.unit.mib[profile.unit.default]) for card in rules.static.cards)
        )
        for name, amount in (("slice-1", quarter), ("slice-2", quarter), ("too-large", most + 1)):
            pods.append(_pod(f"{profile.name}-{name}", resources.memory, amount))
    if resources.whole is not None and sum(card.count for card in rules.static.cards) > 1:
        pods.append(_pod(f"{profile.name}-whole", resources.whole, 1))
    return pods


def _pod(name: str, resource: str, amount: int) -> Object:
    container = {"name": "main", "image": "busybox", "resources": {"limits": {resource: amount}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def _node(name: str, number: int) -> Object:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [{"type": "InternalIP", "address": f"192.168.1.{number + 1}"}],
        },
    }
