"""The kernel holds each container to its slice of a card's memory from the start, whatever is killed or restarted."""

import asyncio
import json

import pytest

from tests.vm.virtual_cluster import CARD_GIB, GIB, VirtualCluster, limits

PODS_SLICE = "/sys/fs/cgroup/kubepods.slice"


async def one_card(virtual_cluster: VirtualCluster, *names: str) -> str:
    """The card that these pods share."""
    cards = {tuple(await virtual_cluster.cards(name)) for name in names}
    assert len(cards) == 1, cards
    ((card,),) = cards
    return card


async def held_to(virtual_cluster: VirtualCluster, pod: str, gib: int) -> None:
    """The pod began with the limit, has it now, gets all of it and not one byte more."""
    (card,) = await virtual_cluster.cards(pod)
    region = f"fake/{card}"
    assert (await virtual_cluster.limit_at_start(pod))[region] == str(gib * GIB)
    assert (await virtual_cluster.limit_now(pod))[region] == str(gib * GIB)
    assert await virtual_cluster.allocate(pod, gib * GIB, 1) == [True, False]


async def test_the_inventory_says_that_dmem_holds_the_limit_of_every_card(virtual_cluster: VirtualCluster) -> None:
    async def proven() -> bool:
        entry = await virtual_cluster.inventory_entry()
        return entry is not None and [card.enforced_by for card in entry.cards] == ["dmem", "dmem"]

    await virtual_cluster.until(proven, "enforced_by is dmem for both cards")


async def test_a_pod_is_refused_the_byte_beyond_its_slice_and_its_neighbour_is_not(virtual_cluster: VirtualCluster) -> None:
    await virtual_cluster.pod("small", 4)
    await virtual_cluster.pod("large", 12)
    await virtual_cluster.running("small", "large")
    await one_card(virtual_cluster, "small", "large")
    await held_to(virtual_cluster, "small", 4)
    await virtual_cluster.hold("small", 4 * GIB)
    assert await virtual_cluster.allocate("small", 1) == [False]
    assert await virtual_cluster.allocate("large", 12 * GIB - 1, 1, 1) == [True, True, False]
    assert await virtual_cluster.allocate("small", 1) == [False]


async def test_two_pods_on_one_card_add_up(virtual_cluster: VirtualCluster) -> None:
    """The slices of a full card are together the card, in the kernel's own sum."""
    await virtual_cluster.pod("a", 6)
    await virtual_cluster.pod("b", 10)
    await virtual_cluster.running("a", "b")
    region = f"fake/{await one_card(virtual_cluster, 'a', 'b')}"
    await virtual_cluster.hold("a", 6 * GIB)
    await virtual_cluster.hold("b", 10 * GIB)
    current = limits(await virtual_cluster.run(f"cat {PODS_SLICE}/dmem.current"))
    assert current[region] == str(CARD_GIB * GIB)
    await virtual_cluster.delete("a")

    async def given_back() -> bool:
        return limits(await virtual_cluster.run(f"cat {PODS_SLICE}/dmem.current"))[region] == str(10 * GIB)

    await virtual_cluster.until(given_back, "a's memory is given back")


async def test_each_container_of_a_pod_has_its_own_limit(virtual_cluster: VirtualCluster) -> None:
    await virtual_cluster.pod("two", 3, containers=2)
    await virtual_cluster.running("two")
    for container in ("c0", "c1"):
        (card,) = await virtual_cluster.cards("two", container)
        assert (await virtual_cluster.limit_at_start("two", container))[f"fake/{card}"] == str(3 * GIB)
        assert await virtual_cluster.allocate("two", 3 * GIB, 1, container=container) == [True, False]


async def test_a_container_without_a_card_has_none_of_its_memory(virtual_cluster: VirtualCluster) -> None:
    await virtual_cluster.pod("none", 0)
    await virtual_cluster.running("none")
    assert await virtual_cluster.cards("none") == []


async def test_a_pod_that_requires_a_limit_runs_here(virtual_cluster: VirtualCluster) -> None:
    await virtual_cluster.pod("strict", 2, annotations={"accelshare.io/enforcement": "required"})
    await virtual_cluster.running("strict")
    await held_to(virtual_cluster, "strict", 2)


async def test_killed_before_the_container_is_created(virtual_cluster: VirtualCluster) -> None:
    """Nobody runs without a limit: the runtime refuses the container until the agent is back."""
    await virtual_cluster.signal_agent("KILL")
    await virtual_cluster.pod("early", 5)

    async def refused() -> bool:
        return bool(await virtual_cluster.events("early", "Failed"))

    await virtual_cluster.until(refused, "kubelet reports that the runtime refused the container")
    assert (await virtual_cluster.pods())["early"]["status"]["phase"] == "Pending"
    await virtual_cluster.start_agent()
    await virtual_cluster.running("early")
    await held_to(virtual_cluster, "early", 5)


@pytest.mark.parametrize("pause_s", [0.0, 0.5, 1.5])
async def test_killed_while_the_container_is_created(virtual_cluster: VirtualCluster, pause_s: float) -> None:
    """The agent is stopped first, so that the runtime's request is waiting for its answer when it is killed."""
    await virtual_cluster.signal_agent("STOP")
    await virtual_cluster.pod("midst", 5)
    await virtual_cluster.until(
        lambda: virtual_cluster.condition("midst", "PodReadyToStartContainers"), "the sandbox of the pod is there"
    )
    await asyncio.sleep(pause_s)
    await virtual_cluster.signal_agent("KILL")
    await virtual_cluster.start_agent()
    await virtual_cluster.running("midst")
    await held_to(virtual_cluster, "midst", 5)


async def test_killed_after_the_container_was_created(virtual_cluster: VirtualCluster) -> None:
    await virtual_cluster.pod("late", 5)
    await virtual_cluster.running("late")
    await virtual_cluster.signal_agent("KILL")
    await held_to(virtual_cluster, "late", 5)
    await virtual_cluster.start_agent()
    await held_to(virtual_cluster, "late", 5)


async def test_a_limit_that_was_taken_away_comes_back_with_the_agent(virtual_cluster: VirtualCluster) -> None:
    """Only an administrator of the node can take it away, by writing to the container's cgroup."""
    await virtual_cluster.pod("tampered", 5)
    (pod,) = await virtual_cluster.running("tampered")
    (card,) = await virtual_cluster.cards("tampered")
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    scope = (await virtual_cluster.run(f"find {PODS_SLICE} -name 'cri-containerd-{container}.scope'")).strip()
    await virtual_cluster.signal_agent("KILL")
    await virtual_cluster.run(f"echo 'fake/{card} max' > {scope}/dmem.max")
    assert await virtual_cluster.allocate("tampered", 5 * GIB, 1) == [True, True]
    await virtual_cluster.start_agent()

    async def repaired() -> bool:
        return (await virtual_cluster.limit_now("tampered"))[f"fake/{card}"] == str(5 * GIB)

    await virtual_cluster.until(repaired, "the limit is set again", 180)
    await held_to(virtual_cluster, "tampered", 5)


@pytest.mark.parametrize(
    "command",
    [
        "systemctl restart kubelet",
        "systemctl restart containerd",
        "systemctl kill --kill-whom=main --signal=KILL containerd",
        "systemctl daemon-reload",
    ],
)
async def test_restarts_change_no_limit(virtual_cluster: VirtualCluster, command: str) -> None:
    """A pod that ran before keeps its limit, and a pod after it gets its own."""
    await virtual_cluster.pod("before", 5)
    await virtual_cluster.running("before")
    await virtual_cluster.run(command)
    await virtual_cluster.until(virtual_cluster.agent_is_ready, "the agent delivers again")
    await virtual_cluster.pod("after", 6)
    await virtual_cluster.running("before", "after")
    await held_to(virtual_cluster, "before", 5)
    await held_to(virtual_cluster, "after", 6)


async def test_a_forged_record_gives_no_more(virtual_cluster: VirtualCluster) -> None:
    """What a namespace user writes decides nothing: the record of the bind does."""
    forged = json.dumps({"zpu": [{"index": 1, "units": CARD_GIB}]})
    await virtual_cluster.pod("forged", 2, annotations={"accelshare.io/assignment": forged})
    await virtual_cluster.running("forged")
    await held_to(virtual_cluster, "forged", 2)


async def test_a_living_container_is_resized_up_and_down(virtual_cluster: VirtualCluster) -> None:
    """The byte beyond is refused, then allowed, then refused again, to the same container. Below its use nothing shrinks."""
    await virtual_cluster.pod("grows", 4)
    await virtual_cluster.pod("fixed", 6)
    (before, _) = await virtual_cluster.running("grows", "fixed")
    region = f"fake/{await one_card(virtual_cluster, 'grows', 'fixed')}"

    async def until_limited(gib: int) -> None:
        async def limited() -> bool:
            return (await virtual_cluster.limit_now("grows"))[region] == str(gib * GIB)

        await virtual_cluster.until(limited, f"the kernel limits it to {gib} GiB")

    async def until_event(reason: str) -> None:
        async def written() -> bool:
            return bool(await virtual_cluster.events("grows", reason))

        await virtual_cluster.until(written, f"the event {reason}")

    assert await virtual_cluster.allocate("grows", 4 * GIB, 1) == [True, False]
    await virtual_cluster.resize("grows", 11)
    await until_event("ResizeRefused")
    await virtual_cluster.resize("grows", 10)
    await until_limited(10)
    await until_event("ResizeApplied")
    assert await virtual_cluster.allocate("grows", 4 * GIB, 1, 6 * GIB - 1, 1) == [True, True, True, False]
    await virtual_cluster.hold("grows", 5 * GIB)
    await virtual_cluster.resize("grows", 4)
    await until_event("ResizeFailed")
    await until_limited(10)
    await virtual_cluster.resize("grows", 5)
    await until_limited(5)
    assert await virtual_cluster.allocate("grows", 1) == [False]
    await virtual_cluster.pod("after", 5)
    await virtual_cluster.running("after")
    await one_card(virtual_cluster, "grows", "fixed", "after")
    await virtual_cluster.run("systemctl daemon-reload")
    await until_limited(5)
    (after,) = await virtual_cluster.running("grows")
    ids = {pod["status"]["containerStatuses"][0]["containerID"] for pod in (before, after)}
    assert len(ids) == 1, "it is the same container all the time"
