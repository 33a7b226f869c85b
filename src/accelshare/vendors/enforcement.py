"""Chooses how a container's share of a card is enforced: the first way in the profile's order that is possible for that card.

Belongs here: the choice and its reasons. The node was probed before (`probing.py`), and the caller proves limits on cgroups.
Never: setting a limit, or the values of templates (`container_edits.py`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from accelshare.vendors.profile import NOBODY, EnforcementRules, Requirement, Way
from accelshare.vendors.value_types import LimitSetter


@dataclass(frozen=True, slots=True)
class Region:
    """A region of the kernel's device memory controller: its name in dmem.capacity, and its size."""

    name: str
    capacity: int


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Whether a node meets a requirement, or a card holds a limit, and the sentence about it."""

    met: bool
    message: str
    regions: tuple[Region, ...] = ()  # of a card whose limit the kernel's controller holds


@dataclass(frozen=True, slots=True)
class Enforcement:
    """The way that a card's shares are enforced in, what it adds to a container, and why better ones are not possible."""

    name: str
    env: Mapping[str, str] = field(default_factory=dict, hash=False)  # templates
    rejected_ways: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    set_by: LimitSetter = "variables"
    regions: tuple[Region, ...] = ()
    min_mib: int = 0  # a smaller share cannot run

    @property
    def limits(self) -> bool:
        """Does anything stop a container that uses more than its share? If not, only the scheduler counts the share."""
        return self.name != NOBODY

    @property
    def on_cgroup(self) -> bool:
        """Does the agent itself set the limit, on the container's cgroup?"""
        return self.by_kernel or self.by_driver

    @property
    def by_kernel(self) -> bool:
        """By the kernel's controller: the limit is a file of the cgroup, which the runtime can write."""
        return self.set_by == "dmem"

    @property
    def by_driver(self) -> bool:
        """By a call of the vendor's library, when the cgroup exists."""
        return self.set_by == "nvml"


# Sets a limit of this way on a card, reads it back and clears it.
Prove = Callable[[Way], ProbeResult]


def requirements(rules: EnforcementRules) -> tuple[Requirement, ...]:
    """Every requirement to probe before a way can be chosen, each once."""
    return tuple(dict.fromkeys(requirement for _, way in rules.in_order for requirement in way.requires))


def not_proven(_way: Way) -> ProbeResult:
    return ProbeResult(met=False, message="no limit was set and read back")


def choose(rules: EnforcementRules, results: Mapping[Requirement, ProbeResult], prove: Prove = not_proven) -> Enforcement:
    """The first way in order that is possible for a card; a requirement that was not probed is not met.

    `prove` is called for ways that the agent sets itself, and only if their requirements are met and no better way is possible.
    """
    rejected_ways: list[str] = []
    for name, way in rules.in_order:
        unmet = list(_unmet(way, results))
        proof = prove(way) if way.on_cgroup and not unmet else ProbeResult(met=True, message="")
        if not unmet and proof.met:
            rejected = tuple(rejected_ways)
            return Enforcement(name, way.env, rejected, way.mounts, way.set_by, proof.regions, way.min_mib)
        rejected_ways.append(f"{name}: {'; '.join(unmet or [proof.message])}")
    raise AssertionError("the way nobody requires nothing, so one way is always possible")


def _unmet(way: Way, results: Mapping[Requirement, ProbeResult]) -> Iterator[str]:
    for requirement in way.requires:
        result = results.get(requirement, ProbeResult(met=False, message=f"{requirement.subject} was not probed"))
        if not result.met:
            yield result.message
