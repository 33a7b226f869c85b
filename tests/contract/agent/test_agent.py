"""The agent against kubelet's gRPC: what it tells, whom it serves, and what it does when somebody goes away."""

import asyncio
import json
import random
import socket
from functools import partial
from typing import Any

import grpc
import pytest

from accelshare.agent.kubelet_api import kubelet_device_plugin_pb2 as api
from accelshare.agent.memory_kubelet import MemoryKubelet, Resource
from tests.contract.agent.village import COUNT, MEMORY, NODE, PROFILE, WHOLE, Village


def seen(kubelet: MemoryKubelet, village: Village, name: str, container: str = "c0") -> list[str]:
    """The cards that a container was really given, by its device nodes."""
    uid = village.read(name)["metadata"]["uid"]
    return sorted(kubelet.admitted[uid].devices(container))


async def test_a_vendor_nobody_has_heard_of_is_one_file(village: Village) -> None:
    """Cards, count and capacity are told, and a container sees its card and no other."""
    village.cards(2)
    async with village.kubelet() as kubelet:
        await village.start_agent()
        told = village.told()
        assert told is not None
        assert [(card.index, card.size, card.id, card.healthy) for card in told.cards] == [
            (0, 16, "zpu0", True),
            (1, 16, "zpu1", True),
        ]
        assert (told.unit, told.delivery) == ("GiB", "device-plugin")
        await village.until(lambda: village.capacity().get(MEMORY) == "32", "32 units are shown")
        assert village.capacity()[COUNT] == "2"
        village.pod("a", {MEMORY: 4})
        village.bind("a", 1, units=4)
        await village.settled("a")
        assert seen(kubelet, village, "a") == ["/dev/zpu1"]
        assert kubelet.admitted[village.read("a")["metadata"]["uid"]].env("c0") == {"ZPU_VISIBLE": "1", "ZPU_UNITS": "4"}
        assert await village.metric("accelshare_drift_total") == 0


async def test_equal_pods_bound_in_any_order_each_get_their_own_card(village: Village) -> None:
    """The field's worst wound: kubelet names no pod. Ninety-six equal ones, shuffled, and none is on another's card."""
    village.cards(8)
    shuffling = random.Random(7)
    async with village.kubelet() as kubelet:
        await village.start_agent()
        wanted = {f"p{number}": number % 8 for number in range(96)}
        for name in wanted:
            village.pod(name, {MEMORY: 1})
        names = list(wanted)
        shuffling.shuffle(names)
        for name in names:
            village.bind(name, wanted[name], units=1)
        await village.settled(*names)
        assert kubelet.rejected == {}
        assert {name: seen(kubelet, village, name) for name in wanted} == {n: [f"/dev/zpu{card}"] for n, card in wanted.items()}
        assert {name: village.recorded(name) for name in wanted} == {name: [card] for name, card in wanted.items()}
        assert await village.metric("accelshare_drift_total") == 0


async def test_every_container_of_a_pod_sees_the_pods_card(village: Village) -> None:
    village.cards(4)
    async with village.kubelet() as kubelet:
        await village.start_agent()
        inits = [village.container("first", {MEMORY: 8}), village.container("beside", {MEMORY: 2}, restartPolicy="Always")]
        village.pod("a", {MEMORY: 3}, {MEMORY: 5}, {}, inits=inits)
        village.bind("a", 2, units=10)
        village.pod("b", {MEMORY: 3}, {MEMORY: 5})
        village.bind("b", 3, units=8)
        await village.settled("a", "b")
        assert kubelet.rejected == {}
        for container in ("first", "beside", "c0", "c1"):
            assert seen(kubelet, village, "a", container) == ["/dev/zpu2"]
        assert seen(kubelet, village, "a", "c2") == []
        assert seen(kubelet, village, "b", "c0") == seen(kubelet, village, "b", "c1") == ["/dev/zpu3"]
        env = kubelet.admitted[village.read("a")["metadata"]["uid"]].env("c1")
        assert env["ZPU_UNITS"] == "5"


async def test_several_cards_and_whole_cards(village: Village) -> None:
    village.cards(6)
    async with village.kubelet() as kubelet:
        await village.start_agent()
        village.pod("two", {MEMORY: 8}, labels={"accelshare.io/card-count": "2"})
        village.bind("two", 1, 3, units=4)
        village.pod("whole", {WHOLE: 2})
        village.bind("whole", 2, 5, whole=True)
        village.pod("both", {MEMORY: 4, WHOLE: 1})
        # A slice of one card and another card alone, for one container.
        await village.settled("two", "whole")
        assert seen(kubelet, village, "two") == ["/dev/zpu1", "/dev/zpu3"]
        assert seen(kubelet, village, "whole") == ["/dev/zpu2", "/dev/zpu5"]
        assert village.recorded("two") == [1, 3]
        # Cards that are held whole are not there for slices, and the other way round.
        await village.until(lambda: village.capacity().get(MEMORY) == str(4 * 16), "slices of four cards are left")
        await village.until(lambda: village.capacity().get(WHOLE) == "4", "four cards can be had whole")


def _is_gone(village: Village, resource: str) -> bool:
    return village.capacity().get(resource) == "0"


async def test_a_card_is_there_in_both_manners_again_when_its_pod_has_ended(village: Village) -> None:
    village.cards(1)
    async with village.kubelet():
        await village.start_agent()
        for name, limits, other in (("whole", {WHOLE: 1}, MEMORY), ("slice", {MEMORY: 4}, WHOLE), ("again", {WHOLE: 1}, MEMORY)):
            await village.until(lambda: village.capacity().get(MEMORY) == "16", "all of it in slices")
            await village.until(lambda: village.capacity().get(WHOLE) == "1", "and as a whole")
            village.pod(name, limits)
            village.bind(name, 0, units=limits.get(MEMORY, 0), whole=WHOLE in limits)
            await village.settled(name)
            assert village.phase(name) == "Running"
            await village.until(partial(_is_gone, village, other), "nothing of it in the other manner")
            village.api.store.delete("pods", name)


async def test_a_pod_placed_by_hand_gets_a_card_and_its_record(village: Village) -> None:
    """Nobody gave it a card: it gets the tightest that is not promised, and the pod says which."""
    village.cards(2)
    async with village.kubelet() as kubelet:
        await village.start_agent()
        village.pod("a", {MEMORY: 12})
        village.bind("a", 0, units=12)
        await village.settled("a")
        village.pod("hand", {MEMORY: 4})
        village.bind("hand")
        await village.until(lambda: village.recorded("hand"), "its record is written")
        assert village.recorded("hand") == [0]
        assert seen(kubelet, village, "hand") == ["/dev/zpu0"]
        assert await village.metric("accelshare_drift_total") == 0


async def test_a_card_held_whole_is_never_given_in_slices(village: Village) -> None:
    village.cards(1)
    async with village.kubelet() as kubelet:
        await village.start_agent()
        village.pod("whole", {WHOLE: 1})
        village.bind("whole", 0, whole=True)
        await village.settled("whole")
        village.pod("hand", {MEMORY: 4})
        village.bind("hand")
        await village.settled("hand")
        assert village.phase("hand") == "Failed"
        assert "default/hand" in kubelet.rejected


async def test_a_request_that_nobody_waits_for_fails_and_names_who_waits(village: Village) -> None:
    village.cards(1)
    async with village.kubelet() as kubelet:
        await village.start_agent()
        resource = kubelet.resources[MEMORY]
        from accelshare.agent import memory_kubelet

        with pytest.raises(Exception, match="no pod on this node waits for 3 units of acme"):
            await memory_kubelet.MemoryKubelet._prefer(kubelet, resource, [f"0-{unit:x}" for unit in range(16)], [], 3)


async def test_a_kubelet_that_takes_no_advice_is_served_as_the_record_says(village: Village) -> None:
    """One from before 1.19: ids are taken at random, so they name no card, even if all of them are of one."""
    village.cards(4)
    async with village.kubelet(advice=False, tells=False) as kubelet:
        await village.start_agent()
        wanted = {f"p{number}": number % 4 for number in range(24)}
        for number, (name, card) in enumerate(wanted.items()):
            units = 1 if number < 16 else 5
            village.pod(name, {MEMORY: units})
            village.bind(name, card, units=units)
        await village.settled(*wanted)
        assert kubelet.rejected == {}
        assert {name: seen(kubelet, village, name) for name in wanted} == {n: [f"/dev/zpu{card}"] for n, card in wanted.items()}
        assert {name: village.recorded(name) for name in wanted} == {name: [card] for name, card in wanted.items()}
        assert await village.metric("accelshare_drift_total") == 0


async def test_a_card_that_is_already_full_is_not_given_again_and_the_move_is_told(village: Village) -> None:
    """Kubelet's books and the record disagree: kubelet's are right, the record is corrected, counted and said."""
    village.cards(2)
    async with village.kubelet() as kubelet:
        await village.start_agent()
        village.pod("full", {MEMORY: 16})
        village.bind("full", 0, units=16)
        await village.settled("full")
        village.pod("late", {MEMORY: 4})
        village.bind("late", 0, units=4)
        await village.settled("late")
        assert seen(kubelet, village, "late") == ["/dev/zpu1"]
        await village.until(lambda: village.recorded("late") == [1], "the record is corrected")
        assert await village.metric("accelshare_drift_total") == 1
        await village.until(lambda: "AcceleratorMoved" in _event_reasons(village), "an event says so")


def _event_reasons(village: Village) -> list[str]:
    return [str(version.object["reason"]) for version in village.api.store.list("events").versions]


async def test_health_flows_to_kubelet_and_cluster_and_back(village: Village) -> None:
    village.cards(2)
    async with village.kubelet():
        await village.start_agent()
        (village.dev / "zpu1").unlink()
        await village.until(lambda: village.capacity().get(MEMORY) == "16", "kubelet sees half of it")
        await village.until(lambda: [card.healthy for card in _cards(village)] == [True, False], "the cluster is told")
        assert _cards(village)[1].problem
        (village.dev / "zpu1").touch()
        await village.until(lambda: village.capacity().get(MEMORY) == "32", "kubelet sees all of it again")
        await village.until(lambda: all(card.healthy for card in _cards(village)), "the cluster is told again")


def _cards(village: Village) -> list[Any]:
    told = village.told()
    return list(told.cards) if told else []


async def test_kubelets_restart_is_noticed_and_said(village: Village) -> None:
    village.cards(2)
    async with village.kubelet():
        await village.start_agent()
    await village.until(lambda: not village.delivers(), "the node does not deliver")
    async with village.kubelet() as kubelet:
        await village.until(village.delivers, "it delivers again")
        village.pod("a", {MEMORY: 4})
        village.bind("a", 1, units=4)
        await village.settled("a")
        assert seen(kubelet, village, "a") == ["/dev/zpu1"]


async def test_sigterm_says_so_first_and_serves_who_is_bound(village: Village) -> None:
    village.cards(2)
    async with village.kubelet() as kubelet:
        process = await village.start_agent()
        process.terminate()
        await village.until(lambda: not (village.told() and village.told().delivers), "it says that it goes")  # type: ignore[union-attr]
        village.pod("last", {MEMORY: 4})
        village.bind("last", 1, units=4)
        await village.settled("last")
        assert seen(kubelet, village, "last") == ["/dev/zpu1"]
        await village.until(lambda: not process.running, "it has ended")
        assert process.exit_code == 0


async def test_after_sigkill_a_new_agent_serves_as_if_nothing_was(village: Village) -> None:
    village.cards(2)
    async with village.kubelet() as kubelet:
        first = await village.start_agent()
        village.pod("a", {MEMORY: 16})
        village.bind("a", 0, units=16)
        await village.settled("a")
        first.kill()
        await village.start_agent()
        await village.until(lambda: village.capacity().get(MEMORY) == "32", "kubelet has its list again")
        village.pod("b", {MEMORY: 16})
        village.bind("b", 1, units=16)
        await village.settled("b")
        assert seen(kubelet, village, "b") == ["/dev/zpu1"]
        assert await village.metric("accelshare_drift_total") == 0


async def test_a_node_that_is_created_anew_is_told_again(village: Village) -> None:
    village.cards(2)
    async with village.kubelet():
        await village.start_agent()
        village.api.store.delete("nodes", NODE)
        village.api.store.create("nodes", {"metadata": {"name": NODE}, "status": {"capacity": {"pods": "110"}}})
        await village.until(village.delivers, "the new node is told")
        await village.until(lambda: village.capacity().get(COUNT) == "2", "and its count")


async def test_no_hardware_is_no_reason_to_end(village: Village) -> None:
    async with village.kubelet():
        process = village.begin_agent()
        await village.until(lambda: "discover" in process.last_lines(), "it has looked")
        assert process.running
        assert village.told() is None


async def test_a_changed_unit_waits_for_the_pods_of_the_old_one(village: Village) -> None:
    """The kind stays as it was, for containers that restart, and no other pod is sent for it; the node says why."""
    village.cards(1)
    async with village.kubelet():
        process = await village.start_agent()
        village.pod("a", {MEMORY: 4})
        village.bind("a", 0, units=4)
        await village.settled("a")
        process.kill()
        # Whichever is heard of first, the pods or the node.
        for delay_s in (0.0, 2.0):
            if delay_s:
                village.api.faults.delay(delay_s, method="GET", path=r"/nodes\?")
            waits = village.begin_agent("--memory-unit=MiB")
            await village.until(lambda: "cannot become 'MiB'" in village.problem(), "the node says why")
            assert "default/a" in village.problem()
            entry = village.told()
            assert entry is not None
            assert (entry.unit, entry.delivers, [card.size for card in entry.cards]) == ("GiB", False, [16])
            assert waits.running
            waits.kill()
        village.api.store.delete("pods", "a", options={"gracePeriodSeconds": 0})
        await village.start_agent("--memory-unit=acme=MiB")
        changed = village.told()
        assert changed is not None
        assert changed.unit == "MiB"


async def test_a_unit_that_kubelet_could_not_read_disables_that_kind_only(village: Village) -> None:
    village.cards(20)
    (village.profiles / "other.toml").write_text(
        'name = "other"\ntitle = "Other"\nnoun = "OPU"\n[resources]\nwhole = "other.example/opu"\n'
        '[driver]\nname = "static"\n[driver.static]\ncards = [{ memory_mib = 1024 }]\n'
    )
    (village.profiles / "broken.toml").write_text('name = "broken"\nnoun = 7\n')
    async with village.kubelet():
        process = village.begin_agent("--memory-unit=acme=MiB", "--vendor=other", "--vendor=broken")
        await village.until(
            lambda: "the smallest unit that works is 'GiB'" in village.problem(), "the node says what would be right"
        )
        await village.until(lambda: (told := village.told("other")) is not None and told.delivers, "the other vendor delivers")
        await village.until(village.ready, "and the agent is ready")
        disabled = village.told()
        assert disabled is not None
        assert disabled.cards == []
        assert "noun is 7" in village.problem("broken")
        assert process.running
        assert "Traceback" not in process.last_lines()


class Choosy(MemoryKubelet):
    """A kubelet that does not take one resource, or ends its list whenever it has read it."""

    refuses = ends = ""

    async def _register(self, request: api.RegisterRequest, context: Any) -> api.Empty:
        if request.resource_name == self.refuses:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such resource here")
        return await super()._register(request, context)

    async def _follow_devices(self, name: str, resource: Resource) -> None:
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
async def test_a_kubelet_that_does_not_take_one_vendor_serves_the_others(village: Village, trouble: str) -> None:
    village.cards(2)
    other = PROFILE.replace("acme", "other").replace("/dev/zpu", "/dev/opu")
    (village.profiles / "other.toml").write_text(other)
    for index in range(2):
        (village.dev / f"opu{index}").symlink_to("/dev/null")
    kubelet = Choosy(village.client, NODE, village.kubelet_root)
    setattr(kubelet, trouble, "other.example/zpu-mem")
    async with kubelet:
        village.begin_agent("--vendor=other")
        await village.until(lambda: "other.example/zpu-mem" in village.problem("other"), "the node says what is not taken")
        await village.until(village.delivers, "the other vendor delivers")
        await village.until(village.ready, "the agent is ready")
        village.pod("a", {MEMORY: 4})
        village.bind("a", 1, units=4)
        await village.settled("a")
        assert seen(kubelet, village, "a") == ["/dev/zpu1"]


async def test_whole_cards_are_left_to_a_plugin_that_serves_them_and_memory_goes_on(village: Village) -> None:
    village.cards(2)
    async with village.kubelet() as kubelet:
        plugins = village.kubelet_root / "device-plugins"
        data = {"PodDeviceEntries": None, "RegisteredDevices": {WHOLE: ["zpu0", "zpu1"]}}
        (plugins / "kubelet_internal_checkpoint").write_text(json.dumps({"Data": data, "Checksum": 1}))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            other.bind(str(plugins / "zpu.sock"))
            other.listen()
            await village.start_agent()
            assert list(kubelet.resources) == [MEMORY]
            told = village.told()
            assert told is not None
            assert told.whole_by_others
            village.pod("a", {MEMORY: 4})
            village.bind("a", 1, units=4)
            await village.settled("a")
            assert village.phase("a") == "Running"
        # The other plugin is removed: from then on whole cards are ours to hand out.
        await village.until(lambda: WHOLE in kubelet.resources, "whole cards are registered")


async def test_an_unknown_node_is_told(village: Village) -> None:
    process = village.begin_agent("--node-name=nowhere")
    await village.until(lambda: not process.running, "it has ended")
    assert "the cluster has no node 'nowhere' (from --node-name)" in process.last_lines()


async def test_many_pods_come_and_go_and_nothing_leaks(village: Village) -> None:
    """Five rounds of deletes and creates in random order: records, kubelet's books and devices stay equal."""
    village.cards(8)
    shuffling = random.Random(3)
    async with village.kubelet() as kubelet:
        await village.start_agent()
        alive: dict[str, int] = {}
        made = 0
        for _ in range(5):
            for _ in range(40):
                room = [card for card in range(8) if list(alive.values()).count(card) < 8]
                if not room:
                    break
                name, card, made = f"p{made}", shuffling.choice(room), made + 1
                alive[name] = card
                village.pod(name, {MEMORY: 2})
                village.bind(name, card, units=2)
            await village.settled(*alive)
            assert kubelet.rejected == {}
            assert {name: seen(kubelet, village, name) for name in alive} == {n: [f"/dev/zpu{card}"] for n, card in alive.items()}
            leaving = shuffling.sample(sorted(alive), len(alive) // 2)
            uids = {village.read(name)["metadata"]["uid"] for name in leaving}
            for name in leaving:
                village.api.store.delete("pods", name)
                del alive[name]
            await village.until(lambda gone=uids: not (gone & set(kubelet.admitted)), "they are gone")  # type: ignore[misc]
        assert await village.metric("accelshare_drift_total") == 0
        await asyncio.sleep(0)


@pytest.mark.parametrize("advice", [False, True])
async def test_a_kubelet_that_cannot_tell_what_it_gave_is_served_as_the_originals_did(village: Village, advice: bool) -> None:
    """Without PodResources v1: what was given is taken for held, records become assigned, and a new agent believes them."""
    village.cards(4)
    async with village.kubelet(advice=advice, tells=False) as kubelet:
        process = await village.start_agent()
        village.pod("two", {MEMORY: 3}, {MEMORY: 5})
        village.bind("two", 2, units=8)
        village.pod("whole", {WHOLE: 3})
        village.bind("whole", 0, 1, 3, whole=True)
        await village.settled("two", "whole")
        assert kubelet.rejected == {}
        assert village.read("two")["metadata"]["annotations"]["acme.example/assigned"] == "true"
        process.kill()
        await village.start_agent()
        await village.until(lambda: village.capacity().get(MEMORY) == "16", "slices of one card are left, as records say")
        village.pod("late", {MEMORY: 8})
        village.bind("late", 2, units=8)
        village.pod("hand", {WHOLE: 1})
        village.bind("hand")
        await village.settled("late", "hand")
        assert [seen(kubelet, village, "two", container) for container in ("c0", "c1")] == [["/dev/zpu2"]] * 2
        assert seen(kubelet, village, "late") == ["/dev/zpu2"]
        assert village.phase("hand") == "Failed"
        assert [village.recorded(name) for name in ("two", "late")] == [[2], [2]]
        assert await village.metric("accelshare_drift_total") == 0
