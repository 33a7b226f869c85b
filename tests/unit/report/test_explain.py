"""Why a pod is pending, what would free capacity, and why a pod has its cards."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from accelshare.ledger.facts import AgentSeen, NodeSeen, PodSeen, WantedResize
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Ask, Card, LimitNeed, Request, Resize
from accelshare.ledger.placing import POLICIES
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.report.cluster_state import ClusterState, NodeConstraints, PodDetails, Taint, Toleration
from accelshare.report.explain import Explanation, explain, text_of
from accelshare.report.units import NO_INVENTORIES, Inventories
from accelshare.report.view import rows
from accelshare.vendors.catalog import load
from accelshare.vendors.refusal_texts import ENFORCEMENT_ANNOTATION
from accelshare.wire.inventory import CardEntry, KindEntry
from tests.builders import ended, pending, running, share, whole

CATALOG = load()
ME = PodDetails("default", "me")


def a_node(name: str, *sizes: int, kind: str = "nvidia", healthy: bool = True) -> NodeSeen:
    return NodeSeen(name, 1, tuple(Card(kind, index, size, healthy) for index, size in enumerate(sizes)), f"ip-{name}")


def gpu(units: int, cards: int = 1) -> Request:
    return share(units, cards=cards, kind="nvidia")


class Scene:
    """A ledger with nodes and pods, and a pod called `me` to explain."""

    def __init__(self, *facts: NodeSeen | PodSeen | AgentSeen, policy: str = "binpack") -> None:
        self._version = 1
        self.ledger = Ledger(POLICIES[policy])
        for fact in facts:
            self.ledger.apply(fact)
        self.inventories: Inventories = NO_INVENTORIES
        self.labels: dict[str, Mapping[str, str]] = {node_ledger.name: {} for node_ledger in self.ledger.nodes()}
        self.constraints: dict[str, NodeConstraints] = {}

    def about(self, pod: PodSeen | None, details: PodDetails = ME) -> Explanation:
        if pod is not None:
            self.ledger.apply(pod)
        return explain(ClusterState(self.ledger, CATALOG, self.inventories, self.labels, self.constraints), pod, details)

    def version(self) -> int:
        """A newer one than that of any node."""
        self._version += 1
        return self._version

    def waiting(self, request: Request, details: PodDetails = ME, *, priority: int = 0) -> Explanation:
        return self.about(pending("me", request, priority=priority), details)


# Waiting.


def test_a_pending_pod_is_explained_node_by_node_with_cards_free_memory_and_shortfall() -> None:
    scene = Scene(
        a_node("n1", 16, 16),
        a_node("n2", 24),
        a_node("other", 16, kind="stream"),
        running("a", on="n1/0", request=gpu(10)),
        running("b", on="n1/1", request=gpu(12)),
        running("c", on="n2/0", request=gpu(20)),
    )
    explanation = scene.waiting(gpu(9), replace(ME, scheduler_message="0/3 nodes are available"))
    assert explanation.headline == "default/me is pending. It requests 9 GiB of one GPU (aliyun.com/gpu-mem: 9)."
    assert explanation.scheduler_message == "0/3 nodes are available"
    assert explanation.mistakes == ()
    first, second = explanation.nodes
    assert (first.node, first.serves, first.verdict) == ("n1", False, "Insufficient GPU Memory in one device (no-card-has-room)")
    assert [(card.name, card.size, card.free, card.pods) for card in first.cards] == [
        ("GPU0", "16 GiB", "6 free", "default/a 10"),
        ("GPU1", "16 GiB", "4 free", "default/b 12"),
    ]
    assert first.missing == "3 GiB on GPU0, the card with the most free (6 GiB free)"
    assert first.remedies == (
        "end default/a (10 GiB)",
        "request at most 6 GiB",
        "10 GiB are free here, but in parts (6+4)",
    )
    assert second.node == "n2"
    assert second.missing == "5 GiB on GPU0, the card with the most free (4 GiB free)"
    assert explanation.others == ("1 node without GPU: other",)
    assert explanation.in_short == "No node serves it now. The least to do: end default/a (10 GiB), on n1."


def test_the_pod_to_end_is_the_least_important_and_then_the_smallest_that_is_enough() -> None:
    scene = Scene(
        a_node("n1", 16, 16, 16),
        running("large", on="n1/0", request=gpu(16)),
        running("dear", on="n1/1", request=gpu(8), priority=100),
        running("small", on="n1/2", request=gpu(9)),
    )
    (node,) = scene.waiting(gpu(12)).nodes
    assert node.remedies[0] == "end default/small (9 GiB)"


def test_several_pods_are_named_if_one_is_not_enough() -> None:
    scene = Scene(a_node("n1", 16), *(running(name, on="n1/0", request=gpu(5)) for name in "abc"))
    (node,) = scene.waiting(gpu(11)).nodes
    assert node.remedies[0] == "end default/b (5 GiB), default/c (5 GiB)"


def test_fragmentation_is_named_and_the_pod_that_could_move_to_another_card() -> None:
    scene = Scene(a_node("n1", 16, 16), running("a", on="n1/0", request=gpu(6)), running("b", on="n1/1", request=gpu(8)))
    (node,) = scene.waiting(gpu(12)).nodes
    assert node.remedies[0] == "move default/a (6 GiB) to GPU1 of the same node"


def test_a_pod_that_could_move_is_named_with_its_new_node() -> None:
    scene = Scene(a_node("n1", 16), a_node("n2", 8), running("a", on="n1/0", request=gpu(6)))
    (node, _) = scene.waiting(gpu(12)).nodes
    assert node.remedies[0] == "move default/a (6 GiB) to n2"


def test_free_capacity_in_parts_can_be_used_with_several_cards() -> None:
    scene = Scene(
        a_node("n1", 8000, 8000, kind="kunlun"),
        *(running(f"p{index}", on=f"n1/{index}", request=share(5000, kind="kunlun")) for index in (0, 1)),
    )
    (node,) = scene.waiting(share(4000, kind="kunlun")).nodes
    assert node.remedies[1:] == (
        "request at most 3000 MiB",
        '6000 MiB are free here in parts (3000+3000): take it from 2 cards with the label baidu.com/xpu-count: "2"',
    )


def test_possible_eviction_of_pods_of_lower_priority_is_stated() -> None:
    scene = Scene(a_node("n1", 16), running("a", on="n1/0", request=gpu(10)))
    (node,) = scene.waiting(gpu(9), priority=7).nodes
    assert node.remedies[0] == "end default/a (10 GiB); of lower priority, so kube-scheduler may evict"


def test_several_cards_and_whole_cards_are_counted() -> None:
    scene = Scene(a_node("n1", 16, 16, 16), running("a", on="n1/0", request=gpu(10)), running("b", on="n1/1", request=gpu(10)))
    (node,) = scene.waiting(gpu(8, cards=2)).nodes
    assert node.missing == "2 GPUs with 8 GiB free needed, 1 of 3 have that"
    assert "request at most 12 GiB (6 GiB a card)" in node.remedies
    (node,) = scene.waiting(whole(2, kind="nvidia")).nodes
    assert node.missing == "2 empty GPUs needed, there is 1 of 3"
    assert node.remedies == ("end default/a (10 GiB)", "request 1 GPU")


@pytest.mark.parametrize(
    ("sizes", "there"), [((16,), "there is 1 GPU, 1 of them empty"), ((16, 16), "there are 2 GPUs, 1 of them empty")]
)
def test_a_slice_and_a_whole_card_are_explained_together(sizes: tuple[int, ...], there: str) -> None:
    """The slice needs a card beside the whole one, so both are explained together."""
    scene = Scene(a_node("n1", *sizes), *[running("a", on="n1/1", request=gpu(14))] * (len(sizes) - 1))
    explanation = scene.waiting((*gpu(4), *whole(kind="nvidia")))
    assert explanation.nodes[0].missing == f"1 GPU with 4 GiB and also 1 empty GPU needed, {there}"
    assert not any("in parts" in remedy for remedy in explanation.nodes[0].remedies)


def test_an_unhealthy_card_is_shown_with_its_problem() -> None:
    scene = Scene(a_node("n1", 16, healthy=False))
    scene.inventories = {"n1": {"nvidia": KindEntry([CardEntry(0, 16, healthy=False, problem="Xid 79")], unit="GiB")}}
    (node,) = scene.waiting(gpu(4)).nodes
    assert node.verdict == "GPUs that could serve are unhealthy (cards-unhealthy)"
    assert (node.cards[0].pods, node.cards[0].bad) == ("unhealthy: Xid 79", True)
    assert node.missing == "1 healthy GPU needed, there are 0 of 1"
    assert node.remedies == ()


def test_an_agent_that_is_away_is_named() -> None:
    scene = Scene(a_node("n1", 16), AgentSeen("agent", "n1", ready=False, version=1))
    (node,) = scene.waiting(gpu(4)).nodes
    assert node.verdict == "node cannot allocate GPUs at the moment (delivery-paused)"
    assert node.missing == "its agent is not ready; when it is ready again, the node is considered automatically"
    scene = Scene(replace(a_node("n1", 16), paused=frozenset({"nvidia"})))
    (node,) = scene.waiting(gpu(4)).nodes
    assert node.missing.startswith("its agent reports that it cannot deliver cards now")


def test_pods_of_unknown_card_are_shown_and_counted_against_every_card() -> None:
    scene = Scene(a_node("n1", 16, 16), running("stranger", on="n1", request=gpu(10)))
    (node,) = scene.waiting(gpu(8)).nodes
    assert [card.free for card in node.cards] == ["6 free", "6 free", ""]
    assert node.cards[2].pods == "default/stranger 10, card not known"
    assert node.remedies[0] == "move default/stranger (10 GiB) to GPU1 of the same node"


def test_a_node_that_can_serve_it_comes_first_with_its_card() -> None:
    scene = Scene(a_node("full", 16), a_node("roomy", 16), running("a", on="full/0", request=gpu(16)))
    explanation = scene.waiting(gpu(4))
    assert [(node.node, node.serves) for node in explanation.nodes] == [("roomy", True), ("full", False)]
    assert explanation.nodes[0].verdict == "can serve it: GPU0 (12 stay free)"
    assert explanation.in_short.startswith("Node roomy can serve it now.")


def test_nodes_are_ordered_by_how_few_pods_would_have_to_leave() -> None:
    scene = Scene(
        a_node("a-hopeless", 8),
        a_node("b-two", 16),
        a_node("c-one", 16),
        *(running(f"b{index}", on="b-two/0", request=gpu(5)) for index in range(3)),
        running("c", on="c-one/0", request=gpu(10)),
    )
    assert [node.node for node in scene.waiting(gpu(11)).nodes] == ["c-one", "b-two", "a-hopeless"]


# Wrong requests.


def refused(reason: Reason, request: Request, kind: str = "kunlun") -> PodSeen:
    return replace(pending("me", request), refusal=Refusal(reason, kind))


@pytest.mark.parametrize(
    ("amount", "count", "words"),
    [
        (4000, "3", "baidu.com/xpu-mem: 4000 does not divide by 3 equally; 3999 and 4002 do"),
        (2, "3", "baidu.com/xpu-mem: 2 does not divide by 3 equally; 3 does"),
    ],
)
def test_a_count_that_does_not_divide(amount: int, count: str, words: str) -> None:
    pod = refused(Reason.CARD_COUNT_LEAVES_REMAINDER, (Ask("kunlun", share=amount),))
    details = replace(ME, labels={"baidu.com/xpu-count": count}, resources={"baidu.com/xpu-mem": str(amount)})
    explanation = Scene(a_node("n1", 8064, kind="kunlun")).about(pod, details)
    assert explanation.headline == f"default/me is pending. It requests baidu.com/xpu-mem: {amount}."
    assert explanation.mistakes == (f"label baidu.com/xpu-count is {count}, and {words}",)
    assert explanation.nodes == ()


@pytest.mark.parametrize(
    ("reason", "details", "words"),
    [
        (
            Reason.CARD_COUNT_UNREADABLE,
            replace(ME, labels={"baidu.com/xpu-count": "two"}),
            "label baidu.com/xpu-count is 'two'; it must be a whole number from 1 to 64",
        ),
        (
            Reason.CARD_COUNT_UNREADABLE,
            replace(ME, annotations={"accelshare.io/card-count": "0"}),
            "annotation accelshare.io/card-count is '0'; it must be a whole number from 1 to 64",
        ),
        (
            Reason.AMOUNT_UNREADABLE,
            replace(ME, resources={"baidu.com/xpu-mem": "1500m"}),
            "baidu.com/xpu-mem: 1500m cannot be read; it must be a whole number of at most 2147483647",
        ),
    ],
)
def test_a_request_that_cannot_be_read(reason: Reason, details: PodDetails, words: str) -> None:
    assert Scene(a_node("n1", 8064, kind="kunlun")).about(refused(reason, ()), details).mistakes == (words,)


def test_too_many_whole_cards() -> None:
    details = replace(ME, resources={"streamcomputing.com/npu": "2"})
    pod = refused(Reason.TOO_MANY_WHOLE_CARDS, whole(2, kind="stream"), "stream")
    assert Scene(a_node("n1", 16, kind="stream")).about(pod, details).mistakes == (
        "streamcomputing.com/npu: 2 is too many; at most one streamcomputing.com/npu may be requested",
    )


@pytest.mark.parametrize(
    ("kind", "size", "asked", "words"),
    [
        (
            "nvidia",
            23,
            4500,
            "aliyun.com/gpu-mem: 4500 is counted in GiB here, and no GPU has 4500 GiB (the largest has 23);"
            " if you mean 4500 MiB, request 5",
        ),
        (
            "kunlun",
            8064,
            2**30,
            "baidu.com/xpu-mem: 1073741824 is counted in MiB here, and no XPU has 1073741824 MiB (the largest has 8064);"
            " if you mean 1073741824 bytes, request 1024",
        ),
        (
            "kunlun",
            8064,
            4,
            "baidu.com/xpu-mem: 4 is counted in MiB here, which is very little; if you mean 4 GiB, request 4096",
        ),
        ("kunlun", 8064, 9000, "no XPU in this cluster has 9000 MiB; the largest has 8064 MiB (XPU0 of n1)"),
        ("enflame", 16, 20, "no GCU in this cluster has 20 GB; the largest has 16 GB (GCU0 of n1)"),
    ],
)
def test_an_amount_in_the_wrong_unit_or_larger_than_any_card(kind: str, size: int, asked: int, words: str) -> None:
    assert Scene(a_node("n1", size, kind=kind)).waiting(share(asked, kind=kind)).mistakes == (words,)


def test_a_reasonable_amount_is_no_mistake() -> None:
    assert Scene(a_node("n1", 8064, kind="kunlun")).waiting(share(4500, kind="kunlun")).mistakes == ()
    assert Scene(a_node("n1", 23)).waiting(gpu(1)).mistakes == ()


def test_more_cards_than_any_node_has() -> None:
    explanation = Scene(a_node("n1", 16, 16), a_node("n2", 16)).waiting(whole(3, kind="nvidia"))
    assert explanation.mistakes == ("it requests 3 GPUs on one node; the most that a node has is 2 (n1)",)
    assert explanation.in_short == "No node can ever serve this request."


def test_a_selector_that_no_node_carries() -> None:
    scene = Scene(a_node("n1", 16), a_node("n2", 16))
    scene.labels = {"n1": {"disk": "ssd", "gpushare": "yes"}, "n2": {"zone": "a"}}
    explanation = scene.waiting(gpu(4), replace(ME, node_selector={"gpushare": "true"}))
    assert explanation.mistakes == ("nodeSelector gpushare=true: no node carries this label; there is gpushare with yes",)
    explanation = scene.waiting(gpu(4), replace(ME, node_selector={"dsk": "ssd"}))
    assert explanation.mistakes == ("nodeSelector dsk=ssd: no node carries this label; did you mean disk?",)
    explanation = scene.waiting(gpu(4), replace(ME, node_selector={"disk": "ssd", "zone": "a"}))
    assert explanation.mistakes == (
        "nodeSelector: each of disk=ssd, zone=a is carried by some node, but no node carries them all",
    )
    explanation = scene.waiting(gpu(4), replace(ME, node_selector={"disk": "ssd"}))
    assert explanation.mistakes == ()
    assert [node.node for node in explanation.nodes] == ["n1"]
    assert explanation.others == ("1 node without the labels of its nodeSelector (disk=ssd): n2",)


def test_a_required_affinity_is_mentioned() -> None:
    explanation = Scene(a_node("n1", 16)).waiting(gpu(4), replace(ME, has_affinity=True))
    assert explanation.others == ("Its required node affinity is not evaluated here; see the message of kube-scheduler.",)


def test_a_cluster_without_such_cards_names_the_missing_label() -> None:
    scene = Scene(a_node("n1", 16, kind="stream"))
    scene.labels = {"n1": {}}
    assert scene.waiting(gpu(4)).mistakes == (
        "no node of this cluster shows a GPU, and no node carries the label gpushare=true that its agent is placed by",
    )
    scene.labels = {"n1": {"gpushare": "true"}}
    assert scene.waiting(gpu(4)).mistakes == (
        "no node of this cluster shows a GPU; n1 should, having the label gpushare=true: does the agent run there?",
    )


def test_a_pod_that_requests_no_card() -> None:
    explanation = Scene(a_node("n1", 16)).about(None, replace(ME, resources={"cpu": "1", "aliyun.com/gpu-memory": "3"}))
    assert explanation.headline == "default/me requests no card of any vendor."
    assert explanation.mistakes == ("aliyun.com/gpu-memory is no resource of any profile; did you mean aliyun.com/gpu-mem?",)
    (words,) = Scene(a_node("n1", 16)).about(None, replace(ME, resources={"cpu": "1"})).mistakes
    assert words.startswith("it names none of amd.com/gpu-memory, ")


@pytest.mark.parametrize(
    ("cards", "parts"), [(6, "(16+16+16+16+16+16)"), (8, "(16+16+16+16+16+16+…)")], ids=["all listed", "some left out"]
)
def test_the_parts_add_up_or_say_that_there_are_more(cards: int, parts: str) -> None:
    (answer,) = Scene(a_node("n1", *[16] * cards)).waiting(gpu(20)).nodes
    (line,) = [remedy for remedy in answer.remedies if "in parts" in remedy]
    assert line.startswith(f"{16 * cards} GiB are free here")
    assert parts in line


# Placed.


@pytest.mark.parametrize(("way", "named"), [("nvml", "managed memory"), ("nobody", ""), ("of another version", "")])
def test_a_running_pod_learns_what_its_limit_does_not_hold(way: str, named: str) -> None:
    scene = Scene(with_limits("n1", 16, way=way))
    (line,) = [line for line in scene.about(running("me", on="n1/0", request=gpu(4))).place if "memory limit" in line]
    assert f"is enforced by {way}" in line
    assert ("Not limited even then" in line) == bool(named)
    assert named in line


def test_a_running_pod_is_explained_with_its_card_and_the_reason() -> None:
    scene = Scene(a_node("n1", 16, 16), a_node("n2", 24), running("other", on="n1/0", request=gpu(8)))
    explanation = scene.about(running("me", on="n1/0", request=gpu(4)))
    assert explanation.headline == "default/me is on node n1. It requests 4 GiB of one GPU (aliyun.com/gpu-mem: 4)."
    assert explanation.place == (
        "It has 4 GiB of GPU0, together with default/other 8.",
        "Its memory limit on GPU0 is enforced by nobody.",
        "The policy binpack takes the tightest card that fits in the whole cluster.",
        "If it were scheduled again now, it would get the same cards. In order of preference: n1 GPU0 (4 stay free); "
        "n2 GPU0 (20 stay free).",
        "On this node GPU1 (12 stay free) would fit as well; among equal cards the lowest index is chosen.",
    )
    assert [card.free for card in explanation.nodes[0].cards] == ["4 free", "16 free"]


def test_a_running_pod_that_would_get_other_cards_today_is_explained() -> None:
    scene = Scene(a_node("n1", 24), a_node("n2", 8))
    assert (
        "it would get other cards, because other pods have started or ended. In order of preference: n2 GPU0 (4 stay free)"
        in (scene.about(running("me", on="n1/0", request=gpu(4))).place[3])
    )


def test_the_policy_changes_the_order_of_preference() -> None:
    scene = Scene(a_node("n1", 24), a_node("n2", 8), policy="spread")
    place = scene.about(running("me", on="n1/0", request=gpu(4))).place
    assert place[2] == "The policy spread takes the emptiest card in the whole cluster."
    assert "it would get the same cards. In order of preference: n1 GPU0" in place[3]


def test_a_whole_card_and_its_id() -> None:
    scene = Scene(NodeSeen("n1", 1, (Card("stream", 0, 16, id="STC-0"),)))
    place = scene.about(running("me", on="n1/0", request=whole(kind="stream"))).place
    assert place[0] == "It has the whole of NPU0 (id STC-0), alone."
    assert place[1] == "Of the empty cards the smallest are allocated whole, so that large cards stay free for large slices."


def test_a_pod_of_unknown_card_is_explained_as_such() -> None:
    explanation = Scene(a_node("n1", 16)).about(running("me", on="n1", request=gpu(4)))
    assert explanation.place == ("Its GPU is not known, so it is counted on every GPU of the node that it could be on.",)


def test_a_pod_that_has_ended_holds_nothing() -> None:
    pod = ended(running("me", on="n1/0", request=gpu(4)))
    explanation = Scene(a_node("n1", 16)).about(pod, replace(ME, phase="Failed", reason="UnexpectedAdmissionError"))
    assert explanation.headline == (
        "default/me has ended: Failed (UnexpectedAdmissionError)."
        " It requested 4 GiB of one GPU (aliyun.com/gpu-mem: 4), and holds no card now."
    )


# As text.


def test_the_text_of_a_pending_pod() -> None:
    scene = Scene(a_node("n1", 16, 8), running("a", on="n1/0", request=gpu(10)))
    assert text_of(scene.waiting(gpu(9), replace(ME, scheduler_message="0/1 nodes are available"))) == (
        "default/me is pending. It requests 9 GiB of one GPU (aliyun.com/gpu-mem: 9).\n"
        "kube-scheduler: 0/1 nodes are available\n"
        "No node serves it now. The least to do: end default/a (10 GiB), on n1.\n"
        "\n"
        "n1 Insufficient GPU Memory in one device (no-card-has-room)\n"
        "  GPU0  16 GiB  6 free  enforced by nobody  default/a 10\n"
        "  GPU1  8 GiB   8 free  enforced by nobody  -\n"
        "  missing: 1 GiB on GPU1, the card with the most free (8 GiB free)\n"
        "  would help: end default/a (10 GiB)\n"
        "  would help: request at most 8 GiB\n"
        "  would help: 14 GiB are free here, but in parts (8+6)\n"
    )


def test_the_text_is_coloured_only_by_its_caller_and_long_lists_are_cut() -> None:
    scene = Scene(*(a_node(f"n{number:02}", 8) for number in range(25)))
    explanation = scene.waiting(gpu(4))
    assert "\x1b" not in text_of(explanation)
    assert "… and 5 more nodes (--all-nodes)\n" in text_of(explanation)
    assert "<good>can serve it: GPU0 (4 stay free)</good>" in text_of(
        explanation, paint=lambda text, look: f"<{look}>{text}</{look}>"
    )
    assert text_of(explanation, most_nodes=100).count("can serve it:") == 25


# LimitNeed.

REQUIRES = replace(ME, annotations={ENFORCEMENT_ANNOTATION: "required"})


def with_limits(name: str, *sizes: int, way: str = "nvml", min_units: int = 0) -> NodeSeen:
    return NodeSeen(
        name,
        1,
        tuple(Card("nvidia", index, size, limited=True, way=way, min_units=min_units) for index, size in enumerate(sizes)),
    )


def test_a_pod_that_requires_limits_learns_which_nodes_have_them_and_what_would_help() -> None:
    scene = Scene(
        a_node("n1", 16),
        with_limits("n2", 16, 16),
        with_limits("n3", 8, way="dmem"),
        running("a", on="n2/0,1", request=gpu(16, 2)),
    )
    explanation = scene.waiting(share(9, kind="nvidia", limits=LimitNeed.REQUIRED), REQUIRES)
    assert explanation.limits == (
        "It requires enforced memory limits of its GPU (annotation accelshare.io/enforcement); "
        "nodes that enforce them: n2 (nvml on 2 GPUs), n3 (dmem on 1 GPU).",
    )
    assert explanation.mistakes == ()
    by_node = {answer.node: answer for answer in explanation.nodes}
    assert by_node["n1"].verdict == "node has too few GPUs with enforced memory limits (limits-not-enforced)"
    assert by_node["n1"].missing == "1 GPU with an enforced memory limit needed, there are 0 of 1"
    assert by_node["n1"].remedies == (
        'the annotation accelshare.io/enforcement: "preferred"; then nobody enforces the memory limit here',
    )
    assert by_node["n2"].remedies[0] == "end default/a (32 GiB)"
    assert "  GPU0  16 GiB  0 free  enforced by nvml  default/a 16\n" in text_of(explanation)


def test_a_pod_that_requires_limits_by_default_in_a_cluster_without_any() -> None:
    explanation = Scene(a_node("n1", 16)).waiting(share(9, kind="nvidia", limits=LimitNeed.REQUIRED))
    assert explanation.limits == ("It requires enforced memory limits of its GPU (by default); no node enforces them.",)
    assert explanation.mistakes == ("the default is required, and nobody enforces memory limits on a GPU that is large enough",)
    assert explanation.in_short == "No node can ever serve this request."


def test_a_pod_that_prefers_limits_learns_which_nodes_have_them() -> None:
    explanation = Scene(a_node("n1", 16), with_limits("n2", 16)).waiting(share(4, kind="nvidia", limits=LimitNeed.PREFERRED))
    assert explanation.limits == (
        "It prefers enforced memory limits of its GPU (by default); nodes that enforce them: n2 (nvml on 1 GPU).",
    )
    assert [answer.serves for answer in explanation.nodes] == [True, True]


def test_a_slice_below_the_minimum_learns_the_minimum() -> None:
    scene = Scene(with_limits("n1", 16, min_units=2), with_limits("n2", 16, min_units=3))
    explanation = scene.waiting(gpu(1))
    assert explanation.mistakes == ("aliyun.com/gpu-mem: 1 is too small to run on any GPU; request at least 2 GiB",)
    first, second = explanation.nodes
    assert first.verdict == "slice is smaller than the minimum of the node's GPUs (smaller-than-minimum)"
    assert first.missing == "a slice of at least 2 GiB on GPU0, whose memory limit is enforced by nvml"
    assert (first.remedies, second.remedies) == (("request at least 2 GiB",), ("request at least 3 GiB",))


def test_a_smaller_request_is_not_proposed_below_the_minimum() -> None:
    scene = Scene(with_limits("n1", 16, min_units=3), running("a", on="n1/0", request=gpu(14)))
    assert [text for text in scene.waiting(gpu(10)).nodes[0].remedies if "request" in text] == []
    scene = Scene(with_limits("n1", 16, min_units=3), running("a", on="n1/0", request=gpu(13)))
    assert "request at most 3 GiB" in scene.waiting(gpu(10)).nodes[0].remedies


def test_an_unreadable_enforcement_annotation_is_shown_with_its_value() -> None:
    pod = refused(Reason.ENFORCEMENT_UNREADABLE, gpu(4))
    (text,) = Scene(a_node("n1", 16)).about(pod, replace(ME, annotations={ENFORCEMENT_ANNOTATION: "always"})).mistakes
    assert text == "annotation accelshare.io/enforcement is 'always'; it must be required or preferred"


def test_a_pod_that_requires_a_limit_on_a_card_that_lost_it_stays_and_says_so() -> None:
    scene = Scene(a_node("n1", 16))
    explanation = scene.about(running("me", on="n1/0", request=share(4, kind="nvidia", limits=LimitNeed.REQUIRED)), REQUIRES)
    assert "Its memory limit on GPU0 is enforced by nobody. It requires an enforced limit: " in explanation.place[1]
    (node,) = rows(scene.ledger)
    assert node.problems == ("pod default/me requires an enforced memory limit, and nobody enforces it on nvidia card 0",)
    scene.ledger.apply(replace(with_limits("n1", 16), version=2))
    (node,) = rows(scene.ledger)
    assert node.problems == ()


# Besides cards.


def test_a_node_with_the_cards_and_another_obstacle() -> None:
    scene = Scene(a_node("n1", 16), a_node("n2", 16), running("a", on="n2/0", request=gpu(12)))
    scene.constraints = {
        "n1": NodeConstraints(taints=(Taint("dedicated", "ml", "NoSchedule"),)),
        "n2": NodeConstraints(cordoned=True),
    }
    explanation = scene.waiting(gpu(9))
    assert explanation.in_short == (
        "Node n1 has the cards, but kube-scheduler cannot use it: the pod does not tolerate its taint dedicated=ml:NoSchedule."
    )
    first, second = explanation.nodes
    assert (first.node, first.serves, first.verdict) == ("n1", False, "has the cards: GPU0 (7 stay free)")
    assert (second.node, second.obstacles) == ("n2", ("it is cordoned (kubectl uncordon)",))
    assert "\n  obstacle: it is cordoned (kubectl uncordon)\n" in text_of(explanation)


def test_a_tolerated_taint_is_not_mentioned() -> None:
    scene = Scene(a_node("n1", 16))
    scene.constraints = {"n1": NodeConstraints(taints=(Taint("dedicated", "ml", "NoSchedule"),))}
    explanation = scene.waiting(gpu(9), replace(ME, tolerations=(Toleration("dedicated", "Exists"),)))
    assert explanation.nodes[0].serves
    assert explanation.in_short.startswith("Node n1 can serve it now.")


def test_a_free_node_comes_before_one_with_an_obstacle() -> None:
    scene = Scene(a_node("n1", 16), a_node("n2", 16))
    scene.constraints = {"n1": NodeConstraints(cordoned=True)}
    assert [answer.node for answer in scene.waiting(gpu(9)).nodes] == ["n2", "n1"]


# Shapes and most slices.


def npu(units: int) -> Request:
    return share(units, kind="ascend")


def test_a_slice_with_a_shape_is_explained_with_both_amounts() -> None:
    pod = replace(pending("me", npu(16384)), needs=(("huawei.com/Ascend910B3-memory", 10_000_000),))
    explanation = Scene(a_node("n1", 65536, kind="ascend")).about(pod)
    assert explanation.headline == (
        "default/me is pending. It requests 10000 MiB and takes 16384 MiB of one NPU (huawei.com/Ascend910B3-memory: 10000)."
    )


def test_a_smaller_request_helps_only_with_a_smaller_shape() -> None:
    full = [running(f"p{n}", on="n1/0", request=npu(16384)) for n in range(3)]
    answer = Scene(a_node("n1", 65536, kind="ascend"), *full).waiting(npu(32768)).nodes[0]
    assert "request at most 16384 MiB" in answer.remedies
    almost = Scene(a_node("n1", 65536, kind="ascend"), running("a", on="n1/0", request=npu(65000))).waiting(npu(16384))
    assert not any("request at most" in remedy for remedy in almost.nodes[0].remedies)


def test_the_largest_shape_is_named_where_a_request_is_larger() -> None:
    pod = replace(pending("me", npu(40000)), refusal=Refusal(Reason.LARGER_THAN_ANY_SHAPE, "ascend"))
    details = replace(ME, resources={"huawei.com/Ascend910B3-memory": "40000"})
    (mistake,) = Scene(a_node("n1", 65536, kind="ascend")).about(pod, details).mistakes
    assert "huawei.com/Ascend910B3-memory: 40000" in mistake
    assert "vir10_3c_32g with 32768 MiB" in mistake


def test_a_card_with_its_most_slices_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.toml").write_text('extends = "nvidia"\n[request]\nmax_slices_per_card = 2\n')
    monkeypatch.setitem(globals(), "CATALOG", load([tmp_path]))
    node = NodeSeen("n1", 1, (Card("nvidia", 0, 16, max_slices=2),), "ip")
    scene = Scene(node, *(running(f"p{n}", on="n1/0", request=gpu(1)) for n in range(2)))
    answer = scene.waiting(gpu(1)).nodes[0]
    assert "(cards-have-most-slices)" in answer.verdict
    assert "has 2 already" in answer.missing
    assert answer.remedies[0].startswith("end default/p")


def test_a_resized_pod_is_explained_with_both_amounts_and_what_became_of_its_owners_wish() -> None:
    pod = running("me", on="n1/0", request=gpu(4))
    scene = Scene(replace(a_node("n1", 16), applied={}), replace(pod, granted=Resize(8, 1)))

    def lines(**applied: Resize) -> str:
        scene.ledger.apply(replace(a_node("n1", 16), version=scene.version(), applied=applied))
        shown = explain(ClusterState(scene.ledger, CATALOG, scene.inventories, scene.labels, scene.constraints), pod, ME)
        return "\n".join((shown.headline, *shown.place))

    granted = lines()
    assert "It requests 4 GiB" in granted
    assert "It has 8 GiB of GPU0" in granted
    assert "8 GiB are granted" in granted
    assert "8 GiB count instead of the 4 GiB" in granted
    assert "granted" not in lines(me=Resize(8, 1))
    scene.ledger.apply(replace(pod, version=10**6, granted=Resize(8, 1), resize=WantedResize("12", 12, True)))
    assert "Its owner wants '12' (annotation accelshare.io/resize)" in lines(me=Resize(8, 1))
