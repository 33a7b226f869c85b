"""A short run of `make trust`: every kind of fault on the control plane strikes at least once while pods come and go."""

from pathlib import Path

import pytest

from tests.trust.control_plane_run import play_plan, print_findings
from tests.trust.faults import KINDS, WEIGHTS
from tests.trust.plan import SHORT, SHORT_PODS, draw_plan

pytestmark = pytest.mark.real

SEED = 14


async def test_no_card_is_oversold_and_no_pod_lost_whatever_fails(tmp_path: Path, extender_flags: list[str]) -> None:
    """Repeat a run that failed with `python -m tests.trust --short --seed 14`."""
    print(f"seed {SEED}")
    plan = draw_plan(SEED, WEIGHTS, faults=len(KINDS), pods=SHORT_PODS, pace=SHORT)
    outcome = await play_plan(plan, tmp_path, print, extender_flags)
    print_findings(outcome, print)
    assert outcome.findings == []
    assert set(outcome.faults) == set(KINDS)
    assert outcome.binds >= SHORT_PODS // 2
