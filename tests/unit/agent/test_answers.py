"""Who still waits for the container runtime to ask for their cards."""

from dataclasses import replace
from pathlib import Path

from accelshare.agent.nri_way.answers import Answers
from accelshare.agent.shelf import Shelf
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.nouns import Slice
from accelshare.wire.node_pods import NodePod


def pod(name: str, *, cards: bool = True) -> NodePod:
    slices = (Slice("zpu", 0, 2),) if cards else ()
    seen = PodSeen(f"uid-{name}", "default", name, request=(), slices=slices)
    return NodePod(seen=seen, parts=(), annotations={}, phase="Pending", terminating=False)


def test_pods_with_a_promise_that_nobody_asked_for_yet() -> None:
    """Not those that run, that are leaving, that were promised nothing, or that named their node themselves."""
    waits = pod("waits")
    others = [
        replace(pod("runs"), phase="Running"),
        replace(pod("leaves"), terminating=True),
        replace(pod("by-hand"), by_hand=True),
        pod("asks-nothing", cards=False),
    ]
    pods = {each.uid: each for each in (waits, *others)}
    answers = Answers(Shelf(), pods, on_host=Path)
    assert answers.waiting == 1
    del pods[waits.uid]
    assert answers.waiting == 0
