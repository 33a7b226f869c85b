"""The plan: which pod is promised which node, and what becomes of a promise."""

import itertools
from collections import Counter
from collections.abc import Container
from dataclasses import replace

import orjson
import pytest

from accelshare.extender.promises import plan as plan_module
from accelshare.extender.promises.node_usage import NodeUsage
from accelshare.extender.promises.plan import AWAITED, MOST_TRIED, PAUSE_S, UNSEEN_S, Nomination, Plan
from accelshare.extender.promises.scheduler_lag import FIRST_S, SchedulerLag
from accelshare.extender.promises.unseen import UnseenNominations
from accelshare.extender.promises.wait_credit import FIRST_S as CREDIT_S
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Assignment, Request
from accelshare.wire.scheduler import NodeNames
from accelshare.wire.scheduling import NodeChoice, SchedulingNode, SchedulingPod
from tests.builders import card, node, pending, place, running, share

MEMORY = "gpu-mem"


class Bench:
    """A ledger and a plan that see the same cluster; time is set by the test."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        shortest_queue: int = 1,
        ahead: int = 0,
        lag_s: float = 0.0,
        lag: SchedulerLag | None = None,
        fewest_nodes: int = 0,
    ) -> None:
        self.ledger = ledger
        self.now = 1000.0
        self.outcomes: Counter[str] = Counter()
        self.avoided: set[str] = set()
        self._versions = itertools.count(10**9)
        self.plan = Plan(
            ledger,
            managed={MEMORY},
            shortest_queue=shortest_queue,
            clock=lambda: self.now,
            count=lambda outcome: self.outcomes.update([outcome]),
            avoid=lambda: self.avoided,
            unseen=UnseenNominations(first=10_000, part=1.0),
            lag=lag or SchedulerLag(lag_s),
            fewest_ahead=ahead,
            fewest_nodes=fewest_nodes,
        )

    def node(self, name: str, *sizes: int, cpu: int = 10_000, unschedulable: bool = False, **labels: str) -> None:
        self.ledger.apply(node(name, *sizes))
        self.plan.node_seen(SchedulingNode(name, labels, (), unschedulable, {"cpu": cpu, "pods": 100_000}))

    def pod(
        self, name: str, units: int = 4, *, priority: int = 0, cpu: int = 0, listed: bool = False, **more: object
    ) -> SchedulingPod:
        fact = pending(name, share(units), priority=priority)
        self.ledger.apply(fact)
        needs = ((MEMORY, units * 1000), ("cpu", cpu))
        pod = SchedulingPod(name, "default", name, fact.version, "", needs, priority=priority, created="2026")
        pod = replace(pod, **more)  # type: ignore[arg-type]
        self.plan.pod_seen(pod, listed=listed)
        return pod

    def ask(self, name: str, *nodes: str) -> str:
        return self.plan.asked(name, NodeNames(orjson.dumps(list(nodes))))

    def served(self) -> None:
        """kube-scheduler has asked for a pod."""
        self.pod("first", 1)
        self.ask("first", "n1")

    def write(self, nomination: Nomination) -> int:
        version = next(self._versions)
        self.plan.written(nomination, version)
        return version

    def promise(self, name: str) -> Nomination:
        nomination = self.plan.next()
        assert nomination is not None
        assert nomination.name == name
        return nomination

    def bind(self, pod: SchedulingPod, node: str) -> None:
        known = self.ledger.pod(pod.uid)
        assert known is not None
        offer = self.plan.assignment(pod.uid) or self.ledger.offer(node, known.seen.request)
        assert isinstance(offer, Assignment)
        self.ledger.hold(pod.uid, offer)
        self.plan.pod_seen(replace(pod, node=node, version=next(self._versions)))


@pytest.fixture
def bench(ledger: Ledger) -> Bench:
    bench = Bench(ledger)
    bench.node("n1", 16)
    bench.node("n2", 16, 16)
    bench.served()
    return bench


def test_pods_are_promised_the_nodes_that_filter_would_name_one_after_the_other(bench: Bench) -> None:
    for name, units in (("a", 12), ("b", 4), ("c", 12), ("d", 12), ("e", 12)):
        bench.pod(name, units)
    promised = list(iter(bench.plan.next, None))
    assert [(each.name, each.node) for each in promised] == [("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2")]
    assert all(bench.ledger.pod(each.uid).place is None for each in promised)  # type: ignore[union-attr]


def test_the_highest_priority_is_planned_first_then_the_oldest(bench: Bench) -> None:
    bench.pod("young", listed=True, created="2027")
    bench.pod("old", listed=True, created="2025")
    bench.pod("new")
    bench.pod("important", priority=5)
    assert [each.name for each in iter(bench.plan.next, None)] == ["important", "old", "young", "new"]


def test_a_kept_promise(bench: Bench) -> None:
    pod = bench.pod("a")
    nomination = bench.promise("a")
    bench.write(nomination)
    assert bench.ask("a", nomination.node) == nomination.node
    bench.bind(pod, nomination.node)
    assert bench.outcomes == {"kept": 1}
    assert bench.plan.promises == 0


def test_a_pod_that_kube_scheduler_searched_for_had_its_promise_too_late(bench: Bench) -> None:
    """It is named the promised node all the same, so that the nomination stays true."""
    pod = bench.pod("a")
    nomination = bench.promise("a")
    bench.write(nomination)
    assert bench.ask("a", "n1", "n2") == nomination.node
    bench.bind(pod, nomination.node)
    assert bench.outcomes == {"unused": 1}


def test_a_pod_bound_elsewhere_frees_what_it_was_promised(bench: Bench) -> None:
    pod = bench.pod("a", 16)
    bench.write(bench.promise("a"))
    bench.ledger.hold("a", Assignment("n2", bench.ledger.offer("n2", share(16)).slices))  # type: ignore[union-attr]
    bench.plan.pod_seen(replace(pod, node="n2", version=10**12))
    assert bench.outcomes == {"unused": 1}
    bench.pod("b", 16)
    assert bench.promise("b").node == "n1"


def test_nothing_is_planned_before_a_scheduler_has_called(ledger: Ledger) -> None:
    bench = Bench(ledger)
    bench.node("n1", 16)
    bench.pod("a")
    bench.pod("b", scheduler="other")
    assert bench.plan.next() is None
    bench.pod("c")
    bench.ask("c", "n1")
    bench.promise("a")
    assert bench.plan.next() is None
    bench.pod("d", scheduler="other")
    bench.ask("d", "n1")
    bench.promise("b")


def test_a_scheduler_that_no_longer_calls_is_not_planned_for(bench: Bench) -> None:
    bench.now += plan_module.SERVED_S + 1
    bench.pod("a")
    assert bench.plan.next() is None


def test_a_short_queue_is_left_to_kube_scheduler(ledger: Ledger) -> None:
    bench = Bench(ledger, shortest_queue=3)
    bench.node("n1", 16, 16)
    bench.served()
    bench.pod("a")
    bench.pod("b")
    assert bench.plan.next() is None
    bench.pod("c")
    bench.promise("a")


def test_the_pods_that_kube_scheduler_is_about_to_take_are_skipped(ledger: Ledger) -> None:
    bench = Bench(ledger, ahead=2)
    bench.node("n1", 16)
    bench.served()
    for name in "abcd":
        bench.pod(name)
    bench.promise("c")
    bench.promise("d")
    assert bench.plan.next() is None  # a and b are too near


@pytest.mark.parametrize(
    "more",
    [
        {"unchecked": "volumes"},
        {"refused": True},
        {"nominated": "n2"},
        {"refused": True, "nominated": "n2"},
        {"needs": (("cpu", 500),)},
        {"choice": NodeChoice(selector=(("pool", "gpu"),))},
        {"needs": ((MEMORY, 4000), ("cpu", 20_000))},
    ],
    ids=["unchecked", "refused", "nominated", "preempting", "no-cards", "no-such-node", "no-cpu"],
)
def test_pods_that_are_left_to_kube_scheduler(bench: Bench, more: dict[str, object]) -> None:
    bench.pod("a", **more)  # type: ignore[arg-type]
    assert bench.plan.next() is None


def test_the_pods_own_rules_decide_among_the_nodes(bench: Bench) -> None:
    bench.node("n3", 16, pool="gpu")
    bench.pod("a", choice=NodeChoice(selector=(("pool", "gpu"),)))
    assert bench.promise("a").node == "n3"


def test_promised_pods_take_cpu_from_each_other(ledger: Ledger) -> None:
    bench = Bench(ledger)
    bench.node("n1", 16, cpu=1000)
    bench.node("n2", 16, cpu=1000)
    bench.served()
    for name in "abc":
        bench.pod(name, cpu=600)
    assert [each.node for each in iter(bench.plan.next, None)] == ["n1", "n2"]


def test_a_node_on_which_binds_fail_is_not_promised(bench: Bench) -> None:
    bench.avoided.add("n1")
    bench.pod("a")
    assert bench.promise("a").node == "n2"


def test_a_stranger_on_the_promised_card_ends_the_promise_and_the_nomination(bench: Bench) -> None:
    bench.pod("a", 16)
    nomination = bench.promise("a")
    version = bench.write(nomination)
    place(bench.ledger, "stranger", share(8), on=nomination.node)
    assert bench.plan.next() == replace(nomination, node="", version=version)
    assert bench.outcomes == {"withdrawn": 1}
    assert bench.plan.next() is None


@pytest.mark.parametrize("change", ["cordoned", "labelled", "gone", "smaller", "ill"])
def test_a_promise_on_a_node_that_changed_is_withdrawn(bench: Bench, change: str) -> None:
    bench.node("n3", 16, pool="gpu")
    bench.pod("a", choice=NodeChoice(selector=(("pool", "gpu"),)), cpu=500)
    bench.write(bench.promise("a"))
    match change:
        case "cordoned":
            bench.node("n3", 16, pool="gpu", unschedulable=True)
        case "labelled":
            bench.node("n3", 16, pool="cpu")
        case "gone":
            bench.plan.node_gone("n3")
        case "smaller":
            bench.node("n3", 16, pool="gpu", cpu=400)
        case "ill":
            bench.ledger.apply(node("n3", cards=(card(0, 16, healthy=False),)))
    removal = bench.plan.next()
    assert removal is not None
    assert (removal.name, removal.node) == ("a", "")
    assert bench.outcomes == {"withdrawn": 1}


def test_a_strange_pod_that_takes_the_cpu_ends_the_newest_promise(ledger: Ledger) -> None:
    bench = Bench(ledger)
    bench.node("n1", 16, cpu=1000)
    bench.served()
    for name in "ab":
        bench.pod(name, cpu=400)
        bench.write(bench.promise(name))
    bench.plan.pod_seen(SchedulingPod("web", "default", "web", 1, "n1", (("cpu", 400),)))
    removal = bench.plan.next()
    assert removal is not None
    assert removal.name == "b"
    assert bench.outcomes == {"withdrawn": 1}


def test_a_promise_expires_and_its_nomination_is_removed(bench: Bench) -> None:
    bench.pod("a")
    version = bench.write(bench.promise("a"))
    bench.now += plan_module.EXPIRES_S
    removal = bench.plan.next()
    assert removal is not None
    assert (removal.node, removal.version) == ("", version)
    assert bench.outcomes == {"expired": 1}
    bench.plan.written(removal, version + 1)
    bench.now += plan_module.EXPIRES_S
    assert bench.plan.next() is None


def test_a_promise_withdrawn_while_it_was_being_written_is_removed(bench: Bench) -> None:
    bench.pod("a", 16)
    nomination = bench.promise("a")
    place(bench.ledger, "stranger", share(8), on=nomination.node)
    assert bench.plan.next() is None
    version = bench.write(nomination)
    assert bench.plan.next() == replace(nomination, node="", version=version)


def test_a_late_nomination_is_not_repeated(ledger: Ledger) -> None:
    bench = Bench(ledger, ahead=2)
    bench.node("n1", 16)
    bench.served()
    for number in range(8):
        bench.pod(f"p{number}", 1)
    bench.plan.not_written(bench.promise("p2"), "late")
    assert bench.outcomes == {"late": 1}
    bench.promise("p3")


def test_a_removal_that_failed_is_repeated_and_one_that_was_late_waits_for_the_pod(bench: Bench) -> None:
    pod = bench.pod("a", 16)
    nomination = bench.promise("a")
    bench.write(nomination)
    place(bench.ledger, "stranger", share(8), on=nomination.node)
    removal = bench.promise("a")
    bench.plan.not_written(removal, "failed")
    assert bench.plan.next() == removal
    bench.plan.not_written(removal, "late")
    assert bench.plan.next() is None
    bench.plan.pod_seen(replace(pod, version=2 * 10**9, nominated=nomination.node))
    assert bench.plan.next() == replace(removal, version=2 * 10**9)


def test_a_nomination_that_another_has_removed_is_left_alone(bench: Bench) -> None:
    pod = bench.pod("a")
    bench.write(bench.promise("a"))
    bench.plan.pod_seen(replace(pod, version=2 * 10**9))
    assert bench.plan.next() is None
    assert bench.outcomes == {"withdrawn": 1}


def test_nominations_that_others_removed_first_keep_no_other_from_being_removed(bench: Bench) -> None:
    """kube-scheduler changes the pods just before our removals arrive, which are refused."""
    bench.node("n3", *[16] * 100)
    for number in range(plan_module.MOST_TRIED + 1):
        pod = bench.pod(f"p{number}", 1)
        nomination = bench.promise(pod.name)
        nominated = replace(pod, version=bench.write(nomination), nominated=nomination.node)
        bench.plan.pod_seen(nominated)
        bench.now += plan_module.EXPIRES_S
        bench.ask("first", "n1")
        removal = bench.promise(pod.name)
        assert (removal.name, removal.node) == (pod.name, "")
        bench.plan.pod_seen(replace(pod, version=nominated.version + 10**9, refused=True))
        bench.plan.not_written(removal, "late")
        kept = bench.pod(f"kept{number}", 1)  # or planning would pause
        nomination = bench.promise(kept.name)
        bench.write(nomination)
        bench.ask(kept.name, nomination.node)
        bench.bind(kept, nomination.node)


def test_a_pod_nominated_by_preemption_is_kube_schedulers(bench: Bench) -> None:
    """kube-scheduler tried the promised node, refused the pod, and nominates another node; or the same one."""
    for name, node_ in (("a", "n2"), ("b", "n1")):
        pod = bench.pod(name)
        nomination = bench.promise(name)
        bench.write(nomination)
        bench.ask(name, nomination.node)
        bench.plan.pod_seen(replace(pod, version=2 * 10**9, nominated=node_, refused=True))
        assert bench.plan.next() is None
    assert bench.outcomes == {"unused": 2}


def test_the_nomination_of_a_refused_pod_that_never_preempts_is_removed(bench: Bench) -> None:
    """kube-scheduler would leave it there, and count the pod on that node."""
    pod = bench.pod("a", preempts=False)
    nomination = bench.promise("a")
    bench.write(nomination)
    bench.ask("a", nomination.node)
    bench.plan.pod_seen(replace(pod, version=2 * 10**9, nominated=nomination.node, refused=True))
    assert bench.plan.next() == replace(nomination, version=2 * 10**9, node="")


def test_the_nomination_of_another_counts_and_is_never_changed(bench: Bench) -> None:
    bench.pod("foreign", 16, nominated="n1")
    bench.pod("a", 16)
    assert bench.promise("a").node == "n2"
    assert bench.ask("foreign", "n1") == "n1"
    bench.now += plan_module.EXPIRES_S
    assert [each.name for each in iter(bench.plan.next, None) if not each.node] == []
    assert bench.outcomes.total() == 1  # the promise of a has expired


def test_a_deleted_pod_frees_what_it_was_promised(bench: Bench) -> None:
    for number in range(3):
        bench.pod(f"a{number}", 16)
        bench.write(bench.promise(f"a{number}"))
    bench.plan.pod_gone("a1")
    assert bench.outcomes == {"gone": 1}
    bench.pod("b", 16)
    assert bench.promise("b").node == "n2"


def test_strangers_are_named_nodes_that_keep_the_promises(bench: Bench) -> None:
    bench.pod("a", 16)
    assert bench.plan.best(share(16), {"n1", "n2"}, 1, last=()) == ["n1"]
    assert bench.promise("a").node == "n1"
    assert bench.plan.best(share(16), {"n1", "n2"}, 1, last=()) == ["n2"]
    assert bench.plan.best(share(16), {"n1"}, 1, last=()) == []


def test_a_small_cluster_is_left_to_kube_scheduler(ledger: Ledger) -> None:
    bench = Bench(ledger, fewest_nodes=2)
    bench.node("n1", 16)
    bench.served()
    bench.pod("a")
    assert bench.plan.next() is None
    assert bench.plan.best(share(4), ["n1"], 1, last=()) == []
    bench.node("n2", 16)
    assert bench.plan.next() is not None
    bench.plan.node_gone("n2")
    bench.pod("b")
    assert bench.plan.next() is None


def test_without_a_queue_and_promises_strangers_are_the_ledgers(ledger: Ledger) -> None:
    bench = Bench(ledger, shortest_queue=2)
    bench.node("n1", 16)
    assert bench.plan.best(share(16), {"n1"}, 1, last=()) == []


def test_the_cards_of_a_pod_that_filter_has_named_a_node_for_are_promised_to_nobody_else(bench: Bench) -> None:
    """Between filter and bind the ledger does not know of it. The bind uses these cards, though others would be tighter."""
    bench.pod("stranger", 12)
    bench.pod("a", 12)
    assert bench.ask("stranger", "n1", "n2") == ""
    bench.plan.answered("stranger", share(12), "n1")
    assert bench.promise("a").node == "n2"
    assert bench.plan.assignment("stranger") == bench.ledger.offer("n1", share(12))
    assert bench.ask("stranger", "n1", "n2") == "n1"
    assert bench.ask("stranger", "n2") == ""
    assert bench.plan.assignment("stranger") is None
    assert bench.outcomes == {}


def test_a_refused_pod_gives_back_what_filter_had_named(bench: Bench) -> None:
    pod = bench.pod("stranger", 16)
    bench.ask("stranger", "n1")
    bench.plan.answered("stranger", share(16), "n1")
    bench.plan.pod_seen(replace(pod, refused=True, version=2 * 10**9))
    bench.pod("a", 16)
    assert bench.promise("a").node == "n1"


@pytest.mark.parametrize(("asked_for", "paused"), [(("n1",), True), (("n1", "n2"), False)], ids=["known", "too-late"])
def test_planning_pauses_for_promises_that_kube_scheduler_knew_and_did_not_use(
    bench: Bench, asked_for: tuple[str, ...], paused: bool
) -> None:
    """Those that came too late are no reason to stop."""
    bench.node("n3", *[16] * 100)
    for number in range(plan_module.RECENT):
        pod = bench.pod(f"p{number}", 1)
        nomination = bench.promise(pod.name)
        nodes = asked_for if nomination.node in asked_for else (nomination.node, *asked_for[1:])
        kept = number < plan_module.FEWEST_KEPT
        bench.ask(pod.name, *((nomination.node,) if kept else nodes))
        bench.bind(pod, nomination.node) if kept else bench.plan.pod_seen(replace(pod, node="elsewhere", version=3 * 10**9))
    assert bench.outcomes == {"kept": plan_module.FEWEST_KEPT, "unused": plan_module.RECENT - plan_module.FEWEST_KEPT}
    assert bench.plan.paused == paused


@pytest.mark.parametrize(("shown", "paused"), [(True, True), (False, False)])
def test_planning_pauses_for_a_rule_that_refuses_nominated_nodes_before_filter_is_asked(
    bench: Bench, shown: bool, paused: bool
) -> None:
    """kube-scheduler has seen the nomination long ago, and asks for the other nodes only."""
    bench.node("n3", *[16] * 100)
    for number in range(plan_module.RECENT):
        pod = bench.pod(f"p{number}", 1)
        nomination = bench.promise(pod.name)
        version = bench.write(nomination)
        if shown:
            bench.plan.pod_seen(replace(pod, nominated=nomination.node, version=version))
        bench.now += plan_module.SURELY_SEEN_S + 0.1
        kept = number < plan_module.FEWEST_KEPT
        bench.ask(pod.name, nomination.node if kept else "other", *([] if kept else ["another"]))
        bench.bind(pod, nomination.node) if kept else bench.plan.pod_seen(replace(pod, node="other", version=3 * 10**9))
    assert bench.outcomes["kept"] == plan_module.FEWEST_KEPT
    assert bench.plan.paused == paused


def test_filter_waits_for_the_nominations_of_the_next_pods(ledger: Ledger) -> None:
    """Those that kube-scheduler takes after this one; later ones have time."""
    bench = Bench(ledger, lag_s=0.2)
    bench.node("n1", 16)
    bench.served()
    pods = [bench.pod(name, 1) for name in "abcdefgh"]
    assert bench.plan.wait_s("a") == 0
    promised = {each.name: each for each in iter(bench.plan.next, None)}
    assert bench.plan.wait_s("a") == UNSEEN_S

    def shown(pod: SchedulingPod) -> None:
        nomination = promised[pod.name]
        bench.plan.pod_seen(replace(pod, nominated=nomination.node, version=bench.write(nomination)))

    for pod in pods[1 : AWAITED + 1]:
        assert bench.plan.wait_s("a") == UNSEEN_S
        shown(pod)
    assert bench.plan.wait_s("a") == pytest.approx(0.2), "kube-scheduler sees it later than we do"
    bench.now += 0.2
    assert bench.plan.wait_s("a") <= 0
    bench.ask("a", "n1")
    assert bench.plan.wait_s("b") == pytest.approx(UNSEEN_S - 0.2)
    for pod in pods[AWAITED + 1 :]:
        bench.plan.not_written(promised[pod.name], "failed")
    assert bench.plan.wait_s("b") <= 0


def test_filter_does_not_wait_for_long_for_a_nomination_that_does_not_come(bench: Bench) -> None:
    bench.pod("a")
    bench.promise("a")
    assert bench.plan.wait_s("first") == UNSEEN_S
    bench.now += UNSEEN_S
    assert bench.plan.wait_s("first") == 0


def test_filter_waits_for_no_nomination_of_another(bench: Bench) -> None:
    bench.pod("foreign", nominated="n1")
    bench.pod("stranger")
    bench.ask("stranger", "n1", "n2")
    bench.plan.answered("stranger", share(4), "n2")
    assert bench.plan.wait_s("first") == 0


def test_kube_schedulers_lag_is_learned_from_nominations_that_it_did_not_know(ledger: Ledger) -> None:
    bench = Bench(ledger, lag_s=0.01)
    bench.node("n1", 16)
    bench.served()
    for name in "ab":
        pod = bench.pod(name)
        nomination = bench.promise(name)
        bench.plan.pod_seen(replace(pod, nominated="n1", version=bench.write(nomination)))
    bench.now += 0.1
    bench.ask("a", "n1", "n2")
    assert bench.plan.wait_s("first") > 0.0, "it may not know that of b, which we have seen as long ago"
    bench.now += 0.1
    assert bench.plan.wait_s("first") <= 0.0


def test_the_time_that_filter_waited_is_not_kube_schedulers_lag(ledger: Ledger) -> None:
    """kube-scheduler had begun with the pod before its nomination was shown."""
    lag = SchedulerLag()
    bench = Bench(ledger, lag=lag)
    bench.node("n1", 16)
    bench.served()
    pod = bench.pod("a")
    nomination = bench.promise("a")
    bench.plan.called("a", alone=False)
    bench.now += 0.01
    bench.plan.pod_seen(replace(pod, nominated="n1", version=bench.write(nomination)))
    bench.now += 2.9
    bench.ask("a", "n1", "n2")
    assert lag.seconds == FIRST_S
    bench.plan.pod_seen(replace(pod, node="n1", version=10**10))
    assert bench.outcomes == {"unused": 1}
    assert not bench.plan.paused


def test_a_pod_that_kube_scheduler_waits_for_is_promised_nothing(bench: Bench) -> None:
    pod = bench.pod("a")
    bench.plan.called("a", alone=False)
    bench.plan.pod_seen(replace(pod, version=pod.version + 1))
    assert bench.plan.next() is None


def test_planning_pauses_when_filter_has_waited_longer_than_promises_save(bench: Bench) -> None:
    for name in "abc":
        bench.pod(name)
        bench.promise(name)
    bench.plan.waited(CREDIT_S - 0.1)
    assert bench.plan.wait_s("a") > 0
    bench.plan.waited(0.1)
    assert bench.plan.wait_s("a") == 0
    bench.pod("d")
    assert bench.plan.next() is None
    assert "waited" in bench.plan.pause_reason
    bench.now += PAUSE_S
    bench.promise("d")
    bench.plan.waited(CREDIT_S - 0.1)
    bench.pod("e")
    bench.promise("e")


def test_kept_promises_allow_filter_to_wait(ledger: Ledger) -> None:
    """In a cluster of 2,000 nodes, each saves about 20 ms until more is known."""
    bench = Bench(ledger)
    bench.node("n1", 16)
    for number in range(2_000):
        bench.plan.node_seen(SchedulingNode(f"other{number}", {}, (), False, {}))
    bench.served()
    for name in "abcd":
        pod = bench.pod(name, 1)
        nomination = bench.promise(name)
        bench.plan.pod_seen(replace(pod, nominated="n1", version=bench.write(nomination)))
    for name in "abcd":
        bench.plan.called(name, alone=True)
        bench.ask(name, "n1")
    bench.plan.waited(CREDIT_S + 0.05)
    assert not bench.plan.paused
    bench.plan.waited(0.05)
    assert bench.plan.paused


def test_pods_of_schedulers_that_do_not_call_are_in_nobodys_way(ledger: Ledger) -> None:
    """Anybody may create pods for a scheduler that is not there, and nobody takes them."""
    bench = Bench(ledger, ahead=2)
    bench.node("n1", 16, 16)
    bench.served()
    for number in range(9):
        bench.pod(f"ghost{number}", scheduler="nobody", priority=1)
    for name in "abcdef":
        bench.pod(name, 1)
    assert [each.name for each in iter(bench.plan.next, None)] == ["c", "d", "e", "f"]
    bench.ask("a", "n1")
    assert bench.plan.wait_s("b") == UNSEEN_S


def test_filter_waits_for_no_nomination_of_another_schedulers_pod(bench: Bench) -> None:
    bench.pod("theirs", scheduler="other")
    bench.ask("theirs", "n1")
    bench.pod("next", scheduler="other")
    bench.promise("next")
    bench.pod("ours")
    assert bench.plan.wait_s("ours") == 0
    assert bench.plan.wait_s("theirs") == UNSEEN_S


def test_a_nomination_that_was_listed_before_its_node_counts(ledger: Ledger) -> None:
    bench = Bench(ledger)
    bench.pod("a", 16, nominated="n1")
    bench.pod("gone", 16, nominated="n1")
    bench.plan.pod_gone("gone")
    bench.node("n1", 16)
    assert bench.plan.assignment("a") is not None
    assert bench.plan.assignment("gone") is None


def test_pods_that_ask_for_nothing_are_not_planned(bench: Bench) -> None:
    for number in range(MOST_TRIED):
        bench.plan.pod_seen(SchedulingPod(f"zero{number}", "default", f"zero{number}", 1, "", ((MEMORY, 0),)))
    bench.pod("a")
    bench.promise("a")


def test_planning_pauses_when_most_promises_are_wasted(bench: Bench) -> None:
    for number in range(plan_module.RECENT):
        bench.pod(f"p{number}", 1)
    while (nomination := bench.plan.next()) is not None:
        bench.plan.called(nomination.name, alone=False)
        bench.plan.not_written(nomination, "late")
    assert bench.outcomes["late"] == plan_module.RECENT
    assert bench.plan.paused
    bench.pod("next")
    assert bench.plan.next() is None
    bench.now += plan_module.PAUSE_S
    bench.promise("next")


def test_a_limited_number_of_promises_is_open_at_once(ledger: Ledger) -> None:
    bench = Bench(ledger)
    bench.node("n1", 1000)
    bench.served()
    for number in range(plan_module.MOST_PROMISES + 9):
        bench.pod(f"p{number}", 1)
    bench.plan.node_seen(SchedulingNode("n1", {}, (), False, {"cpu": 0, "pods": 10**6}))
    few = len(list(iter(bench.plan.next, None)))
    assert few == plan_module.FEW_PROMISES
    for number in range(plan_module.MOST_PROMISES * plan_module.NODES_A_PROMISE + 9):
        bench.plan.node_seen(SchedulingNode(f"other{number}", {}, (), True, {}))
    assert few + len(list(iter(bench.plan.next, None))) == plan_module.MOST_PROMISES


def test_a_nomination_by_preemption_for_the_promised_node_is_never_removed(bench: Bench) -> None:
    """kube-scheduler tried the promised node, refused the pod, and evicts victims there that take longer than a minute to end."""
    pod = bench.pod("b")
    nomination = bench.promise("b")
    bench.write(nomination)
    bench.ask("b", nomination.node)
    bench.plan.pod_seen(replace(pod, version=2 * 10**9, nominated=nomination.node, refused=True))
    assert bench.plan.next() is None
    bench.now += plan_module.EXPIRES_S
    assert bench.plan.next() is None


def test_preemption_for_the_promised_node_comes_before_our_removal(bench: Bench) -> None:
    """A pod of lower priority took the promised cards; kube-scheduler evicts just that one."""
    pod = bench.pod("a", 16, priority=5)
    nomination = bench.promise("a")
    nominated = replace(pod, version=bench.write(nomination), nominated=nomination.node)
    bench.plan.pod_seen(nominated)
    place(bench.ledger, "thief", share(8), on=nomination.node)
    removal = bench.plan.next()
    assert removal is not None
    assert removal.node == ""
    bench.ask("a", nomination.node)
    bench.plan.pod_seen(replace(nominated, version=2 * 10**9, refused=True))
    bench.plan.not_written(removal, "late")
    assert bench.plan.next() is None


def test_one_search_for_the_next_promise_ends_in_time(ledger: Ledger) -> None:
    """Each pod has another amount that no card has, so each is another search of all nodes."""
    bench = Bench(ledger)
    bench.node("n1", 16)
    bench.served()
    for number in range(plan_module.MOST_TRIED):
        bench.pod(f"p{number}", 100_000 + number)
    searched: list[str] = []
    choose = bench.plan._choose

    def slowly(pod: SchedulingPod, request: Request) -> str:
        searched.append(pod.name)
        bench.now += 0.6 * plan_module.LONGEST_SEARCH_S
        return choose(pod, request)

    bench.plan._choose = slowly  # type: ignore[method-assign]
    assert bench.plan.next() is None
    assert len(searched) == 2


def test_nominations_that_were_never_written_keep_no_other_from_being_removed(bench: Bench) -> None:
    """The API server failed for some seconds; the pods were then refused, and wait."""
    for number in range(plan_module.MOST_TRIED):
        pod = bench.pod(f"p{number}", 1)
        bench.plan.not_written(bench.promise(pod.name), "failed")
        bench.now += 1
        bench.ask("first", "n1")
        bench.plan.pod_seen(replace(pod, version=pod.version + 10**9, refused=True))
    bench.now += plan_module.PAUSE_S
    bench.ask("first", "n1")
    bench.pod("a", 16)
    nomination = bench.promise("a")
    bench.write(nomination)
    place(bench.ledger, "stranger", share(8), on=nomination.node)
    removal = bench.plan.next()
    assert removal is not None
    assert (removal.name, removal.node) == ("a", "")


def test_a_promised_pod_that_is_bound_elsewhere_can_make_promises_there_wrong(ledger: Ledger) -> None:
    bench = Bench(ledger)
    bench.node("n1", 16, 16, cpu=1000)
    bench.served()
    bench.pod("b", cpu=800)
    assert bench.promise("b").node == "n1"
    bench.node("n0", 16, cpu=1000)
    pod = bench.pod("a", cpu=800)
    nomination = bench.promise("a")
    assert nomination.node == "n0"
    bench.write(nomination)
    bench.plan.pod_seen(replace(pod, node="n1", version=2 * 10**9))
    bench.plan.next()
    assert bench.outcomes["withdrawn"] == 1


def test_a_nomination_by_preemption_for_a_promised_node_that_filter_was_never_asked_for_is_kept(bench: Bench) -> None:
    """A rule that we do not see refuses the promised node, before filter; kube-scheduler evicts a pod just there."""
    pod = bench.pod("a", priority=5)
    nomination = bench.promise("a")
    nominated = replace(pod, version=bench.write(nomination), nominated=nomination.node)
    bench.plan.pod_seen(nominated)
    bench.now += plan_module.SURELY_SEEN_S + 1
    bench.plan.pod_seen(replace(nominated, version=2 * 10**9, refused=True))
    for _ in range(3):
        assert bench.plan.next() is None
        bench.now += plan_module.EXPIRES_S


def test_a_nomination_by_preemption_comes_before_our_removal_though_filter_was_not_asked(bench: Bench) -> None:
    """A pod without cards took the CPU; kube-scheduler refuses the node by itself and evicts that pod."""
    pod = bench.pod("a", priority=5, cpu=8_000)
    nomination = bench.promise("a")
    nominated = replace(pod, version=bench.write(nomination), nominated=nomination.node)
    bench.plan.pod_seen(nominated)
    bench.now += plan_module.SURELY_SEEN_S + 1
    bench.plan.pod_seen(SchedulingPod("web", "default", "web", 1, nomination.node, (("cpu", 4_000),)))
    removal = bench.plan.next()
    assert removal is not None
    bench.plan.pod_seen(replace(nominated, version=2 * 10**9, refused=True))
    bench.plan.not_written(removal, "late")
    assert bench.plan.next() is None


def test_a_nomination_counts_that_was_listed_before_its_node_and_after_a_pod_there(ledger: Ledger) -> None:
    bench = Bench(ledger)
    ledger.apply(running("other", on="n1/0", request=share(1)))
    bench.pod("a", 8, nominated="n1")
    bench.node("n1", 16)
    assert bench.plan.assignment("a") is not None


def test_pods_of_all_schedulers_that_call_are_promised_nodes(ledger: Ledger) -> None:
    bench = Bench(ledger)
    bench.node("n1", *[16] * 100)
    for scheduler in ("one", "two"):
        bench.pod(f"{scheduler}-first", 1, scheduler=scheduler)
        bench.ask(f"{scheduler}-first", "n1")
    for number in range(plan_module.FEW_PROMISES + 9):
        for scheduler in ("one", "two"):
            bench.pod(f"{scheduler}-{number}", 1, scheduler=scheduler)
    promised = [each.name.partition("-")[0] for each in iter(bench.plan.next, None)]
    assert {promised.count("one"), promised.count("two")} == {plan_module.FEW_PROMISES // 2}


def test_a_node_that_a_rule_refuses_is_not_kube_schedulers_lag(ledger: Ledger) -> None:
    """Its watch is not ten seconds behind ours."""
    lag = SchedulerLag()
    bench = Bench(ledger, lag=lag)
    bench.node("n1", 16)
    bench.served()
    pod = bench.pod("a")
    nomination = bench.promise("a")
    bench.plan.pod_seen(replace(pod, nominated="n1", version=bench.write(nomination)))
    bench.now += 10
    bench.plan.called("a", alone=False)
    bench.ask("a", "n2", "n3")
    assert lag.seconds == FIRST_S


def test_a_promise_for_a_pod_that_kube_scheduler_refused_without_asking_is_unused(bench: Bench) -> None:
    pod = bench.pod("a")
    nomination = bench.promise("a")
    nominated = replace(pod, version=bench.write(nomination), nominated=nomination.node)
    bench.plan.pod_seen(nominated)
    bench.now += plan_module.SURELY_SEEN_S + 1
    bench.plan.pod_seen(replace(nominated, version=2 * 10**9, refused=True, nominated=""))
    assert bench.outcomes == {"unused": 1}


def test_planning_pauses_for_a_rule_that_refuses_all_nodes_before_filter_is_asked(bench: Bench) -> None:
    bench.node("n3", *[16] * 100)
    for number in range(plan_module.RECENT):
        pod = bench.pod(f"p{number}", 1)
        nomination = bench.promise(pod.name)
        nominated = replace(pod, version=bench.write(nomination), nominated=nomination.node)
        bench.plan.pod_seen(nominated)
        bench.now += plan_module.SURELY_SEEN_S + 0.1
        bench.ask("first", "n1")
        bench.plan.pod_seen(replace(nominated, version=2 * 10**9, refused=True, nominated=""))
    assert bench.plan.paused


def test_a_promised_pod_that_is_being_deleted_is_gone(bench: Bench) -> None:
    """Every pod of a Job has a finalizer, so it is shown with a deletionTimestamp before it is gone."""
    pod = bench.pod("a")
    nomination = bench.promise("a")
    nominated = replace(pod, version=bench.write(nomination), nominated=nomination.node)
    bench.plan.pod_seen(nominated)
    bench.plan.pod_seen(replace(nominated, version=2 * 10**9, unchecked="deleted"))
    assert bench.outcomes == {"gone": 1}
    assert bench.plan.next() is None


def test_a_nomination_that_our_watch_has_shown_did_not_fail(bench: Bench) -> None:
    """The API server has carried it out, and its response was lost."""
    pod = bench.pod("a")
    nomination = bench.promise("a")
    bench.plan.pod_seen(replace(pod, version=2 * 10**9, nominated=nomination.node))
    bench.plan.not_written(nomination, "failed")
    assert bench.outcomes == {}
    assert bench.plan.next() is None
    assert bench.ask("a", nomination.node) == nomination.node


def test_a_pod_without_a_version_is_promised_nothing(bench: Bench) -> None:
    """A nomination for version 0 is written whatever the pod's version is, over kube-scheduler's own."""
    pod = bench.pod("a")
    bench.plan.pod_gone("a")
    bench.plan.pod_seen(replace(pod, uid="b", name="b", version=0))
    bench.ledger.apply(replace(bench.ledger.pod("a").latest, uid="b", name="b", version=0))  # type: ignore[union-attr]
    assert bench.plan.next() is None


def test_the_calls_of_two_schedulers_do_not_measure_each_other(ledger: Ledger) -> None:
    """One takes nominated pods, the other searches; the call of one often comes just after the answer to the other."""
    bench = Bench(ledger)
    bench.node("n1", *[16] * 100)
    for number in range(4_000):
        bench.plan.node_seen(SchedulingNode(f"other{number}", {}, (), False, {}))
    bench.pod("waits", 1, scheduler="a")
    for number in range(200):
        for scheduler, took_s, nodes in (("a", 0.049, ("n1",)), ("b", 0.001, ("n1", "n2"))):
            name = f"{scheduler}{number}"
            bench.pod(name, 1, scheduler=scheduler)
            bench.now += took_s
            bench.plan.called(name, alone=len(nodes) == 1)
            bench.ask(name, *nodes)
    for number in range(10):
        pod = bench.pod(f"p{number}", 1, scheduler="a")
        while (nomination := bench.plan.next()) is not None and nomination.name != pod.name:
            pass
        assert nomination is not None
        bench.plan.pod_seen(replace(pod, nominated=nomination.node, version=bench.write(nomination)))
        bench.ask(pod.name, nomination.node)
    bench.plan.waited(CREDIT_S + 0.2)
    assert not bench.plan.paused, "each has saved some 38 ms"


def test_planning_pauses_when_kube_scheduler_asks_for_none_of_the_promised_pods(bench: Bench) -> None:
    """A plugin keeps them out of its queue; other pods are scheduled."""
    bench.node("n3", *[16] * 100)
    for number in range(plan_module.RECENT):
        bench.pod(f"p{number}", 1)
    while bench.outcomes["expired"] < plan_module.RECENT:
        bench.now += plan_module.EXPIRES_S
        bench.ask("first", "n1")
        while (nomination := bench.plan.next()) is not None:
            bench.write(nomination)
    assert bench.plan.paused


def test_a_pod_that_was_gated_has_the_place_of_its_arrival(bench: Bench) -> None:
    """kube-scheduler orders pods by the time at which it has first seen them, gated or not."""
    gated = bench.pod("a", unchecked="gated")
    bench.pod("b")
    bench.plan.pod_seen(replace(gated, version=gated.version + 10, unchecked=""))
    assert [each.name for each in iter(bench.plan.next, None)] == ["a", "b"]


def test_a_node_on_which_binds_fail_is_not_named_to_keep_a_promise(bench: Bench) -> None:
    """The ledger would name n1, whose promise is soft."""
    bench.pod("a", 16)
    assert bench.promise("a").node == "n1"
    assert bench.plan.best(share(16), {"n1", "n2"}, 1, last={"n2"}) == []


def test_a_node_for_which_kube_scheduler_evicts_pods_is_its_own_nomination(bench: Bench) -> None:
    """It asks us for victims before it nominates their node, which may be the one that we have just promised."""
    pod = bench.pod("a", priority=5)
    nomination = bench.promise("a")
    nominated = replace(pod, version=bench.write(nomination), nominated=nomination.node)
    bench.plan.pod_seen(nominated)
    bench.plan.preempts("a")
    bench.plan.pod_seen(replace(nominated, version=2 * 10**9, refused=True))
    bench.now += plan_module.EXPIRES_S
    bench.ask("first", "n1")
    assert bench.plan.next() is None
    assert bench.outcomes == {"unused": 1}


def test_planning_rests_after_a_pod_whose_rules_take_long_to_compare(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user can give each of his pods rules of its own, which are compared with all nodes at once."""
    took_s = 2 * plan_module.LONG_COMPARISON_S
    compare = NodeUsage.nodes_for

    def slow(usage: NodeUsage, choice: NodeChoice) -> Container[str]:
        bench.now += took_s
        return compare(usage, choice)

    monkeypatch.setattr(NodeUsage, "nodes_for", slow)
    bench.pod("a", 1)
    bench.pod("b", 1)
    bench.promise("a")
    assert bench.plan.next() is None
    bench.now += plan_module.REST * took_s
    bench.promise("b")


def test_pods_that_their_owner_changes_all_the_time_do_not_pause_planning(bench: Bench) -> None:
    """A nomination names the version of its pod, so each is refused; kube-scheduler has nothing to do with it."""
    for number in range(plan_module.RECENT):
        bench.pod(f"p{number}", 1)
    while (nomination := bench.plan.next()) is not None:
        bench.plan.not_written(nomination, "late")
    assert bench.outcomes["late"] == plan_module.RECENT
    assert not bench.plan.paused
