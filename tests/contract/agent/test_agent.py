"""The agent against kubelet's gRPC: what it publishes, which pods it serves, and restarts of agent and kubelet."""

import asyncio
import json
import random
import socket
from functools import partial
from typing import Any

import grpc
import pytest

from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as api
from accelshare.testing.fake_kubelet import FakeKubelet, RegisteredPlugin
from tests.contract.agent.fake_node import COUNT, MEMORY, NO_ENTRY, NODE, PROFILE, WHOLE, FakeNode


def seen(kubelet: FakeKubelet, fake_node: FakeNode, name: str, container: str = "c0") -> list[str]:
    """The cards that a container got, by its device nodes."""
    uid = fake_node.read(name)["metadata"]["uid"]
    return sorted(kubelet.admitted[uid].devices(container))


async def test_a_new_vendor_needs_one_profile_file(fake_node: FakeNode) -> None:
    """Cards, count and capacity are published, and a container sees its card and no other."""
    fake_node.cards(2)
    async with fake_node.kubelet() as kubelet:
        await fake_node.start_agent()
        entry = fake_node.entry()
        assert [(card.index, card.size, card.id, card.healthy) for card in entry.cards] == [
            (0, 16, "zpu0", True),
            (1, 16, "zpu1", True),
        ]
        assert (entry.unit, entry.delivery) == ("GiB", "device-plugin")
        await fake_node.until(lambda: fake_node.capacity().get(MEMORY) == "32", "32 units are shown")
        assert fake_node.capacity()[COUNT] == "2"
        await fake_node.place("a", 1, units=4)
        assert seen(kubelet, fake_node, "a") == ["/dev/zpu1"]
        assert kubelet.admitted[fake_node.read("a")["metadata"]["uid"]].env("c0") == {"ZPU_VISIBLE": "1", "ZPU_UNITS": "4"}
        assert await fake_node.metric("accelshare_drift_total") == 0


async def test_equal_pods_bound_in_any_order_each_get_their_own_card(fake_node: FakeNode) -> None:
    """kubelet names no pod in its requests. Ninety-six equal pods, shuffled, and none gets another's card."""
    fake_node.cards(8)
    shuffling = random.Random(7)
    async with fake_node.kubelet() as kubelet:
        await fake_node.start_agent()
        wanted = {f"p{number}": number % 8 for number in range(96)}
        for name in wanted:
            fake_node.pod(name, {MEMORY: 1})
        names = list(wanted)
        shuffling.shuffle(names)
        for name in names:
            fake_node.bind(name, wanted[name], units=1)
        await fake_node.settled(*names)
        assert kubelet.rejected == {}
        assert {name: seen(kubelet, fake_node, name) for name in wanted} == {n: [f"/dev/zpu{card}"] for n, card in wanted.items()}
        assert {name: fake_node.recorded(name) for name in wanted} == {name: [card] for name, card in wanted.items()}
        assert await fake_node.metric("accelshare_drift_total") == 0


async def test_every_container_of_a_pod_sees_the_pods_card(fake_node: FakeNode) -> None:
    fake_node.cards(4)
    async with fake_node.kubelet() as kubelet:
        await fake_node.start_agent()
        inits = [fake_node.container("first", {MEMORY: 8}), fake_node.container("beside", {MEMORY: 2}, restartPolicy="Always")]
        fake_node.pod("a", {MEMORY: 3}, {MEMORY: 5}, {}, inits=inits)
        fake_node.bind("a", 2, units=10)
        fake_node.pod("b", {MEMORY: 3}, {MEMORY: 5})
        fake_node.bind("b", 3, units=8)
        await fake_node.settled("a", "b")
        assert kubelet.rejected == {}
        for container in ("first", "beside", "c0", "c1"):
            assert seen(kubelet, fake_node, "a", container) == ["/dev/zpu2"]
        assert seen(kubelet, fake_node, "a", "c2") == []
        assert seen(kubelet, fake_node, "b", "c0") == seen(kubelet, fake_node, "b", "c1") == ["/dev/zpu3"]
        env = kubelet.admitted[fake_node.read("a")["metadata"]["uid"]].env("c1")
        assert env["ZPU_UNITS"] == "5"


async def test_several_cards_and_whole_cards(fake_node: FakeNode) -> None:
    fake_node.cards(6)
    async with fake_node.kubelet() as kubelet:
        await fake_node.start_agent()
        fake_node.pod("two", {MEMORY: 8}, labels={"accelshare.io/card-count": "2"})
        fake_node.bind("two", 1, 3, units=4)
        fake_node.pod("whole", {WHOLE: 2})
        fake_node.bind("whole", 2, 5, whole=True)
        fake_node.pod("both", {MEMORY: 4, WHOLE: 1})
        # A slice of one card and another card alone, for one container.
        await fake_node.settled("two", "whole")
        assert seen(kubelet, fake_node, "two") == ["/dev/zpu1", "/dev/zpu3"]
        assert seen(kubelet, fake_node, "whole") == ["/dev/zpu2", "/dev/zpu5"]
        assert fake_node.recorded("two") == [1, 3]
        # Cards that are held whole are not there for slices, and the other way round.
        await fake_node.until(lambda: fake_node.capacity().get(MEMORY) == str(4 * 16), "slices of four cards are left")
        await fake_node.until(lambda: fake_node.capacity().get(WHOLE) == "4", "four cards can be had whole")


def _is_gone(fake_node: FakeNode, resource: str) -> bool:
    return fake_node.capacity().get(resource) == "0"


async def test_a_card_is_free_whole_and_in_slices_when_its_pod_has_ended(fake_node: FakeNode) -> None:
    fake_node.cards(1)
    async with fake_node.kubelet():
        await fake_node.start_agent()
        for name, limits, other in (("whole", {WHOLE: 1}, MEMORY), ("slice", {MEMORY: 4}, WHOLE), ("again", {WHOLE: 1}, MEMORY)):
            await fake_node.until(lambda: fake_node.capacity().get(MEMORY) == "16", "all of it in slices")
            await fake_node.until(lambda: fake_node.capacity().get(WHOLE) == "1", "and as a whole")
            fake_node.pod(name, limits)
            fake_node.bind(name, 0, units=limits.get(MEMORY, 0), whole=WHOLE in limits)
            await fake_node.settled(name)
            assert fake_node.phase(name) == "Running"
            await fake_node.until(partial(_is_gone, fake_node, other), "nothing of it in the other manner")
            fake_node.api.store.delete("pods", name)


async def test_a_pod_placed_by_hand_gets_a_card_and_its_record(fake_node: FakeNode) -> None:
    """It has no record: it gets the fullest card that fits and is not recorded for others, and the record names it."""
    fake_node.cards(2)
    async with fake_node.kubelet() as kubelet:
        await fake_node.start_agent()
        await fake_node.place("a", 0, units=12)
        fake_node.pod("hand", {MEMORY: 4})
        fake_node.bind("hand")
        await fake_node.until(lambda: fake_node.recorded("hand"), "its record is written")
        assert fake_node.recorded("hand") == [0]
        assert seen(kubelet, fake_node, "hand") == ["/dev/zpu0"]
        assert await fake_node.metric("accelshare_drift_total") == 0


async def test_a_card_held_whole_is_never_given_in_slices(fake_node: FakeNode) -> None:
    fake_node.cards(1)
    async with fake_node.kubelet() as kubelet:
        await fake_node.start_agent()
        fake_node.pod("whole", {WHOLE: 1})
        fake_node.bind("whole", 0, whole=True)
        await fake_node.settled("whole")
        fake_node.pod("hand", {MEMORY: 4})
        fake_node.bind("hand")
        await fake_node.settled("hand")
        assert fake_node.phase("hand") == "Failed"
        assert "default/hand" in kubelet.rejected


async def test_a_request_that_fits_no_waiting_pod_fails_and_names_the_waiting_pods(fake_node: FakeNode) -> None:
    fake_node.cards(1)
    async with fake_node.kubelet() as kubelet:
        await fake_node.start_agent()
        resource = kubelet.resources[MEMORY]
        from accelshare.testing import fake_kubelet

        with pytest.raises(Exception, match="no pod on this node waits for 3 units of acme"):
            await fake_kubelet.FakeKubelet._prefer(kubelet, resource, [f"0-{unit:x}" for unit in range(16)], [], 3)


async def test_a_kubelet_without_preferred_allocation_is_served_by_the_record(fake_node: FakeNode) -> None:
    """kubelet before 1.19 takes ids at random, so they name no card, even if all of them are of one."""
    fake_node.cards(4)
    async with fake_node.kubelet(preferred_allocation=False, pod_resources_v1=False) as kubelet:
        await fake_node.start_agent()
        wanted = {f"p{number}": number % 4 for number in range(24)}
        for number, (name, card) in enumerate(wanted.items()):
            units = 1 if number < 16 else 5
            fake_node.pod(name, {MEMORY: units})
            fake_node.bind(name, card, units=units)
        await fake_node.settled(*wanted)
        assert kubelet.rejected == {}
        assert {name: seen(kubelet, fake_node, name) for name in wanted} == {n: [f"/dev/zpu{card}"] for n, card in wanted.items()}
        assert {name: fake_node.recorded(name) for name in wanted} == {name: [card] for name, card in wanted.items()}
        assert await fake_node.metric("accelshare_drift_total") == 0


async def test_a_full_card_is_not_allocated_again_and_the_move_is_reported(fake_node: FakeNode) -> None:
    """kubelet's ids and the record differ: the ids count; the record is corrected, with a metric and an Event."""
    fake_node.cards(2)
    async with fake_node.kubelet() as kubelet:
        await fake_node.start_agent()
        await fake_node.place("full", 0, units=16)
        await fake_node.place("late", 0, units=4)
        assert seen(kubelet, fake_node, "late") == ["/dev/zpu1"]
        await fake_node.until(lambda: fake_node.recorded("late") == [1], "the record is corrected")

        async def counted() -> bool:
            return await fake_node.metric("accelshare_drift_total") == 1

        await fake_node.until(counted, "the move is counted")
        await fake_node.until(lambda: "AcceleratorMoved" in _event_reasons(fake_node), "an event says so")


def _event_reasons(fake_node: FakeNode) -> list[str]:
    return [str(version.object["reason"]) for version in fake_node.api.store.list("events").versions]


async def test_kubelet_and_the_node_show_a_cards_health(fake_node: FakeNode) -> None:
    fake_node.cards(2)
    async with fake_node.kubelet():
        await fake_node.start_agent()
        (fake_node.dev / "zpu1").unlink()
        await fake_node.until(lambda: fake_node.capacity().get(MEMORY) == "16", "kubelet sees half of it")
        await fake_node.until(
            lambda: [card.healthy for card in fake_node.entry().cards] == [True, False], "the Node shows its health"
        )
        assert fake_node.entry().cards[1].problem
        (fake_node.dev / "zpu1").touch()
        await fake_node.until(lambda: fake_node.capacity().get(MEMORY) == "32", "kubelet sees all of it again")
        await fake_node.until(lambda: all(card.healthy for card in fake_node.entry().cards), "the Node shows both healthy again")


async def test_the_node_does_not_deliver_while_kubelet_restarts(fake_node: FakeNode) -> None:
    fake_node.cards(2)
    async with fake_node.kubelet():
        await fake_node.start_agent()
    await fake_node.until(lambda: not fake_node.delivers(), "the node does not deliver")
    async with fake_node.kubelet() as kubelet:
        await fake_node.kubelet_has_lists(kubelet)
        await fake_node.place("a", 1, units=4)
        assert seen(kubelet, fake_node, "a") == ["/dev/zpu1"]


async def test_sigterm_ends_delivery_on_the_node_first_and_serves_bound_pods(fake_node: FakeNode) -> None:
    fake_node.cards(2)
    async with fake_node.kubelet() as kubelet:
        process = await fake_node.start_agent()
        process.terminate()
        await fake_node.until(lambda: not fake_node.entry().delivers, "the Node shows that it ends delivery")
        await fake_node.place("last", 1, units=4)
        assert seen(kubelet, fake_node, "last") == ["/dev/zpu1"]
        await fake_node.until(lambda: not process.running, "it has ended")
        assert process.exit_code == 0


async def test_after_sigkill_a_new_agent_serves_the_next_pods(fake_node: FakeNode) -> None:
    fake_node.cards(2)
    async with fake_node.kubelet() as kubelet:
        first = await fake_node.start_agent()
        await fake_node.place("a", 0, units=16)
        first.kill()
        await fake_node.start_agent()
        await fake_node.until(lambda: fake_node.capacity().get(MEMORY) == "32", "kubelet has its list again")
        await fake_node.place("b", 1, units=16)
        assert seen(kubelet, fake_node, "b") == ["/dev/zpu1"]
        assert await fake_node.metric("accelshare_drift_total") == 0


async def test_a_node_that_is_created_again_gets_the_inventory(fake_node: FakeNode) -> None:
    fake_node.cards(2)
    async with fake_node.kubelet():
        await fake_node.start_agent()
        fake_node.api.store.delete("nodes", NODE)
        fake_node.api.store.create("nodes", {"metadata": {"name": NODE}, "status": {"capacity": {"pods": "110"}}})
        await fake_node.until(fake_node.delivers, "the new Node has the inventory")
        await fake_node.until(lambda: fake_node.capacity().get(COUNT) == "2", "and its count")


async def test_a_new_agent_that_finds_no_cards_takes_those_of_the_former_from_the_node(fake_node: FakeNode) -> None:
    """Before, the Node showed them as healthy and delivered, or the extender assumed them from the Node's capacity."""
    fake_node.cards(2)
    async with fake_node.kubelet():
        first = await fake_node.start_agent()
        first.kill()
        for index in range(2):
            (fake_node.dev / f"zpu{index}").unlink()
        fake_node.begin_agent()
        await fake_node.until(lambda: not fake_node.entry().cards, "the Node shows no cards")
        assert "no card is found" in fake_node.entry().problem
        assert not fake_node.entry().delivers
        fake_node.cards(2)
        await fake_node.until(lambda: len(fake_node.entry().cards) == 2, "the cards are back")
        assert fake_node.entry().problem == ""


async def test_the_agent_runs_on_without_hardware(fake_node: FakeNode) -> None:
    async with fake_node.kubelet():
        process = fake_node.begin_agent()
        await fake_node.until(lambda: "discover" in process.last_lines(), "it has tried discovery")
        assert process.running
        assert fake_node.entry() == NO_ENTRY


async def test_a_changed_unit_waits_for_the_pods_of_the_old_one(fake_node: FakeNode) -> None:
    """The kind stays as it was, for containers that restart; the Node shows the problem, so no other pod comes."""
    fake_node.cards(1)
    async with fake_node.kubelet():
        process = await fake_node.start_agent()
        await fake_node.place("a", 0, units=4)
        process.kill()
        # Whichever is heard of first, the pods or the node.
        for delay_s in (0.0, 2.0):
            if delay_s:
                fake_node.api.faults.delay(delay_s, method="GET", path=r"/nodes\?")
            waits = fake_node.begin_agent("--memory-unit=MiB")
            await fake_node.until(lambda: "cannot become 'MiB'" in fake_node.entry().problem, "the Node shows the reason")
            assert "default/a" in fake_node.entry().problem
            entry = fake_node.entry()
            assert (entry.unit, entry.delivers, [card.size for card in entry.cards]) == ("GiB", False, [16])
            assert waits.running
            waits.kill()
        fake_node.api.store.delete("pods", "a", options={"gracePeriodSeconds": 0})
        await fake_node.start_agent("--memory-unit=acme=MiB")
        assert fake_node.entry().unit == "MiB"


async def test_a_unit_that_kubelet_could_not_read_disables_that_kind_only(fake_node: FakeNode) -> None:
    fake_node.cards(20)
    (fake_node.profiles / "other.toml").write_text(
        'name = "other"\ntitle = "Other"\nnoun = "OPU"\n[resources]\nwhole = "other.example/opu"\n'
        '[driver]\nname = "static"\n[driver.static]\ncards = [{ memory_mib = 1024 }]\n'
    )
    (fake_node.profiles / "broken.toml").write_text('name = "broken"\nnoun = 7\n')
    async with fake_node.kubelet():
        process = fake_node.begin_agent("--memory-unit=acme=MiB", "--vendor=other", "--vendor=broken")
        await fake_node.until(
            lambda: "the smallest unit that works is 'GiB'" in fake_node.entry().problem, "the Node names a unit that works"
        )
        await fake_node.until(lambda: fake_node.entry("other").delivers, "the other vendor delivers")
        await fake_node.until(fake_node.ready, "and the agent is ready")
        assert fake_node.entry().cards == []
        assert "noun is 7" in fake_node.entry("broken").problem
        assert process.running
        assert "Traceback" not in process.last_lines()


class Choosy(FakeKubelet):
    """A kubelet that refuses one resource, or ends its list whenever it has read it."""

    refuses = ends = ""

    async def _register(self, request: api.RegisterRequest, context: Any) -> api.Empty:
        if request.resource_name == self.refuses:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such resource here")
        return await super()._register(request, context)

    async def _follow_devices(self, name: str, resource: RegisteredPlugin) -> None:
        if name == self.ends:
            watch: Any = resource.channel.unary_stream(
                "/v1beta1.DevicePlugin/ListAndWatch",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=api.ListAndWatchResponse.FromString,
            )
            call = watch(api.Empty())
            await call.read()
            call.cancel()
            return
        await super()._follow_devices(name, resource)


@pytest.mark.parametrize("trouble", ["refuses", "ends"])
async def test_a_kubelet_that_refuses_one_vendor_serves_the_others(fake_node: FakeNode, trouble: str) -> None:
    fake_node.cards(2)
    other = PROFILE.replace("acme", "other").replace("/dev/zpu", "/dev/opu")
    (fake_node.profiles / "other.toml").write_text(other)
    for index in range(2):
        (fake_node.dev / f"opu{index}").symlink_to("/dev/null")
    kubelet = Choosy(fake_node.client, NODE, fake_node.kubelet_root)
    setattr(kubelet, trouble, "other.example/zpu-mem")
    async with kubelet:
        fake_node.begin_agent("--vendor=other")
        await fake_node.until(
            lambda: "other.example/zpu-mem" in fake_node.entry("other").problem, "the Node names the refused resource"
        )
        await fake_node.until(fake_node.delivers, "the other vendor delivers")
        await fake_node.until(fake_node.ready, "the agent is ready")
        await fake_node.until(lambda: kubelet.resources[MEMORY].health, "kubelet has its device list")
        await fake_node.place("a", 1, units=4)
        assert seen(kubelet, fake_node, "a") == ["/dev/zpu1"]


async def test_whole_cards_are_left_to_another_plugin_and_slices_stay_ours(fake_node: FakeNode) -> None:
    fake_node.cards(2)
    async with fake_node.kubelet() as kubelet:
        plugins = fake_node.kubelet_root / "device-plugins"
        data = {"PodDeviceEntries": None, "RegisteredDevices": {WHOLE: ["zpu0", "zpu1"]}}
        (plugins / "kubelet_internal_checkpoint").write_text(json.dumps({"Data": data, "Checksum": 1}))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            other.bind(str(plugins / "zpu.sock"))
            other.listen()
            await fake_node.start_agent()
            assert list(kubelet.resources) == [MEMORY]
            assert fake_node.entry().whole_by_others
            await fake_node.place("a", 1, units=4)
            assert fake_node.phase("a") == "Running"
        # The other plugin is removed: from then on whole cards are ours to hand out.
        await fake_node.until(lambda: WHOLE in kubelet.resources, "whole cards are registered")


async def test_an_unknown_node_is_an_error(fake_node: FakeNode) -> None:
    process = fake_node.begin_agent("--node-name=nowhere")
    await fake_node.until(lambda: not process.running, "it has ended")
    assert "the cluster has no node 'nowhere' (from --node-name)" in process.last_lines()


async def test_many_pods_come_and_go_and_nothing_leaks(fake_node: FakeNode) -> None:
    """Five rounds of deletes and creates in random order: records, kubelet's ids and devices stay equal."""
    fake_node.cards(8)
    shuffling = random.Random(3)
    async with fake_node.kubelet() as kubelet:
        await fake_node.start_agent()
        alive: dict[str, int] = {}
        made = 0
        for _ in range(5):
            for _ in range(40):
                pod_queue = [card for card in range(8) if list(alive.values()).count(card) < 8]
                if not pod_queue:
                    break
                name, card, made = f"p{made}", shuffling.choice(pod_queue), made + 1
                alive[name] = card
                fake_node.pod(name, {MEMORY: 2})
                fake_node.bind(name, card, units=2)
            await fake_node.settled(*alive)
            assert kubelet.rejected == {}
            assert {name: seen(kubelet, fake_node, name) for name in alive} == {
                n: [f"/dev/zpu{card}"] for n, card in alive.items()
            }
            shutdown = shuffling.sample(sorted(alive), len(alive) // 2)
            uids = {fake_node.read(name)["metadata"]["uid"] for name in shutdown}
            for name in shutdown:
                fake_node.api.store.delete("pods", name)
                del alive[name]
            await fake_node.until(lambda gone=uids: not (gone & set(kubelet.admitted)), "they are gone")  # type: ignore[misc]
        assert await fake_node.metric("accelshare_drift_total") == 0
        await asyncio.sleep(0)


@pytest.mark.parametrize("advice", [False, True])
async def test_a_kubelet_without_pod_resources_is_served_by_records_and_our_own_allocations(
    fake_node: FakeNode, advice: bool
) -> None:
    """Without PodResources v1 our own allocations count, records become assigned, and a new agent relies on them."""
    fake_node.cards(4)
    async with fake_node.kubelet(preferred_allocation=advice, pod_resources_v1=False) as kubelet:
        process = await fake_node.start_agent()
        fake_node.pod("two", {MEMORY: 3}, {MEMORY: 5})
        fake_node.bind("two", 2, units=8)
        fake_node.pod("whole", {WHOLE: 3})
        fake_node.bind("whole", 0, 1, 3, whole=True)
        await fake_node.settled("two", "whole")
        assert kubelet.rejected == {}
        assert fake_node.read("two")["metadata"]["annotations"]["acme.example/assigned"] == "true"
        process.kill()
        await fake_node.start_agent()
        await fake_node.until(lambda: fake_node.capacity().get(MEMORY) == "16", "slices of one card are left by the records")
        fake_node.pod("late", {MEMORY: 8})
        fake_node.bind("late", 2, units=8)
        fake_node.pod("hand", {WHOLE: 1})
        fake_node.bind("hand")
        await fake_node.settled("late", "hand")
        assert [seen(kubelet, fake_node, "two", container) for container in ("c0", "c1")] == [["/dev/zpu2"]] * 2
        assert seen(kubelet, fake_node, "late") == ["/dev/zpu2"]
        assert fake_node.phase("hand") == "Failed"
        assert [fake_node.recorded(name) for name in ("two", "late")] == [[2], [2]]
        assert await fake_node.metric("accelshare_drift_total") == 0
