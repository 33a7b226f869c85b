"""Chooses how a container's share is enforced on this node: the first way in the profile's order whose requirements are met.

Belongs here: the choice and its reasons. Pure: the node was probed before (`probing.py`). Never: setting a limit, or the values
of templates (`container_edits.py`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from accelshare.vendors.profile import WATCH, EnforcementRules, Requirement, Way


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Whether a node meets a requirement, and the sentence about it."""

    met: bool
    message: str


@dataclass(frozen=True, slots=True)
class Enforcement:
    """The way that this node uses, the variables (as templates) and mounts it adds, and why better ones are not possible."""

    name: str
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    rejected_ways: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()

    @property
    def limits(self) -> bool:
        """Does anything stop a container that uses more than its share? If not, only the scheduler counts the share."""
        return self.name != WATCH


def requirements(rules: EnforcementRules) -> tuple[Requirement, ...]:
    """Every requirement to probe before a way can be chosen, each once."""
    return tuple(dict.fromkeys(requirement for _, way in rules.in_order for requirement in way.requires))


def choose(rules: EnforcementRules, results: Mapping[Requirement, ProbeResult]) -> Enforcement:
    """The first way in order that is possible on this node; a requirement that was not probed is not met."""
    rejected_ways: list[str] = []
    for name, way in rules.in_order:
        unmet = list(_unmet(way, results))
        if not unmet:
            return Enforcement(name, way.env, tuple(rejected_ways), way.mounts)
        rejected_ways.append(f"{name}: {'; '.join(unmet)}")
    raise AssertionError("the way watch requires nothing, so one way is always possible")


def _unmet(way: Way, results: Mapping[Requirement, ProbeResult]) -> Iterator[str]:
    for requirement in way.requires:
        result = results.get(requirement, ProbeResult(met=False, message=f"{requirement.subject} was not probed"))
        if not result.met:
            yield result.message
