"""Which way holds a container to its share on this node: the first in the profile's order whose needs are all met.

Belongs here: the choice, and its reasons in words. Pure: the node was probed before (`probing.py`).
Never: setting a limit, or the templates' values (`container_edits.py`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from accelshare.vendors.node_rules import EnforcementRules, Requirement, Way, WayKind


@dataclass(frozen=True, slots=True)
class Finding:
    """What a probe saw: is the requirement met, and the sentence that says so."""

    holds: bool
    says: str


@dataclass(frozen=True, slots=True)
class Enforcement:
    """The way that holds on this node, the variables (as templates) and mounts it adds, and why better ones did not do."""

    name: str
    kind: WayKind
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    passed_over: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()

    @property
    def limits(self) -> bool:
        """Is anybody holding the container to its share? If not, the number is a promise of the scheduler only."""
        return self.kind != "watch"


def requirements(rules: EnforcementRules) -> tuple[Requirement, ...]:
    """Everything a node has to be asked before a way can be chosen, each once."""
    return tuple(dict.fromkeys(requirement for way in rules.in_order for requirement in way.requires))


def choose(rules: EnforcementRules, findings: Mapping[Requirement, Finding]) -> Enforcement:
    """The first way in order that this node can do; a requirement nobody asked about is not met."""
    passed_over: list[str] = []
    for way in rules.in_order:
        lacking = list(_lacking(way, findings))
        if not lacking:
            return Enforcement(way.name, way.kind, way.env, tuple(passed_over), way.mounts)
        passed_over.append(f"{way.name}: {'; '.join(lacking)}")
    raise AssertionError("watching needs nothing, so one way always holds")


def _lacking(way: Way, findings: Mapping[Requirement, Finding]) -> Iterator[str]:
    for requirement in way.requires:
        finding = findings.get(requirement, Finding(holds=False, says=f"{requirement.subject} was not asked"))
        if not finding.holds:
            yield finding.says
