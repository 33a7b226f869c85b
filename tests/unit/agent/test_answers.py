"""Who still waits for the container runtime to ask for their cards, and answers while everything changes."""

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from accelshare.agent.nri.messages import Container, PodSandbox
from accelshare.agent.nri_way.answers import Answers
from accelshare.agent.shelf import Kind, Shelf, ShelfCard
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.matching import Part
from accelshare.ledger.nouns import Slice
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import FoundCard
from accelshare.wire.node_pods import NodePod

QUESTIONS = 2000


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


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as the interpreter allows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_pods_and_cards_may_change_while_the_runtime_is_answered(restless: None) -> None:
    """The runtime asks on its own thread, and is never told of a dict that changed meanwhile."""
    profile = next(one for one in load([]) if one.container.strategy == ("envvar",))
    kind = profile.name
    shelf = Shelf()
    shelf.put(Kind(profile, "GiB", 1024, {0: ShelfCard(FoundCard(0, "id0", 1024 * 10_000), 10_000)}))
    parts = (Part("train", ((kind, False, 2),)),)
    pods = {}
    for number in range(50):
        one = pod(f"p{number}")
        pods[one.uid] = replace(one, seen=replace(one.seen, slices=(Slice(kind, 0, 2),)), parts=parts)
    asked = list(pods.values())
    answers = Answers(shelf, pods, on_host=Path)
    answers.manner = "delivers"
    told: list[str] = []
    answers.delivered = lambda which: told.append(which.uid)
    problems: list[Exception] = []

    def ask() -> None:
        for number in range(QUESTIONS):
            one = asked[number % len(asked)].seen
            try:
                given = answers.create_container(PodSandbox("b", one.name, one.uid, one.namespace), Container("c", "b", "train"))
                assert given.env
            except Exception as problem:
                problems.append(problem)

    runtime = threading.Thread(target=ask)
    runtime.start()
    _busy(pods, shelf, until=lambda: not runtime.is_alive())
    runtime.join()
    assert problems == []
    assert len(told) == QUESTIONS


def _busy(pods: dict[str, NodePod], shelf: Shelf, *, until: Callable[[], bool]) -> None:
    """The agent's own thread: others come and go, a card falls ill and is well again."""
    others = {one.uid: one for one in (pod(f"other{number}") for number in range(7))}
    name = next(iter(shelf.kinds))
    while not until():
        for uid, other in others.items():
            pods[uid] = other
        shelf.set_health(name, "id0", "lost")
        for uid in others:
            del pods[uid]
        shelf.set_health(name, "id0", "")
