"""What a run on a real node did and found, as a value."""

from dataclasses import dataclass, field

from tests.trust.history import Finding


@dataclass(slots=True)
class NodeOutcome:
    delivery: str
    seed: int
    pods: int = 0  # with a card; beside each is one without
    faults: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    checked: int = 0  # pods whose container was compared with its record
    failed_with_card: dict[str, str] = field(default_factory=dict)  # name → why
    failed_without: dict[str, str] = field(default_factory=dict)
    versions: int = 0
    took_s: float = 0.0

    @property
    def more_with_card(self) -> int:
        """How many more pods with a card failed than pods without."""
        return len(self.failed_with_card) - len(self.failed_without)
