"""A pod's peak is what Kubernetes itself would count."""

import pytest

from accelshare.ledger.peak import Step, peak


@pytest.mark.parametrize(
    ("apps", "steps", "most"),
    [
        ([4], [], 4),
        ([4, 8], [], 12),
        ([4], [Step(8)], 8),
        ([4, 8], [Step(8)], 12),
        ([4], [Step(8), Step(3)], 8),
        ([4], [Step(2, stays=True)], 6),
        ([4], [Step(2, stays=True), Step(5)], 7),
        ([4], [Step(5), Step(2, stays=True)], 6),
        ([1], [Step(2, stays=True), Step(3, stays=True), Step(4)], 9),
        ([], [Step(2, stays=True)], 2),
        ([], [], 0),
    ],
)
def test_init_containers_run_one_by_one_beside_the_sidecars_before_them(apps: list[int], steps: list[Step], most: int) -> None:
    assert peak(apps, steps) == most
