"""The pods of the node, stored by the main loop and read by every thread."""

from dataclasses import replace

from accelshare.agent.pod_store import PodStore
from accelshare.ledger.facts import PodSeen
from accelshare.wire.node_pods import NodePod


def pod(name: str, *, by_hand: bool = False) -> NodePod:
    return NodePod(PodSeen(name, "default", name, request=()), (), {}, "Pending", terminating=False, by_hand=by_hand)


def test_a_snapshot_stays_as_it_was_while_pods_come_change_and_go() -> None:
    pods = PodStore()
    pods.put(pod("a"))
    before = pods.snapshot()
    seen = list(before.values())
    pods.put(pod("b"))
    pods.put(replace(pod("a"), phase="Running"))
    pods.remove("a")
    assert list(before.values()) == seen
    assert list(pods) == ["b"]


def test_subscribers_get_each_change_after_it_is_stored() -> None:
    pods, changes = PodStore(), list[tuple[str, str, bool]]()
    pods.subscribe(
        seen=lambda one: changes.append(("seen", one.uid, one.uid in pods)),
        gone=lambda one: changes.append(("gone", one.uid, one.uid in pods)),
    )
    pods.put(pod("a"))
    pods.remove("a")
    pods.remove("a")
    assert changes == [("seen", "a", True), ("gone", "a", False)]


def test_how_a_pod_was_placed_is_taken_from_its_first_version() -> None:
    """A later version has conditions of kubelet's own, which look like a scheduler's."""
    pods = PodStore()
    pods.put(pod("a", by_hand=True))
    pods.put(pod("a"))
    assert pods["a"].by_hand
