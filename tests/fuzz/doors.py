"""The inputs that come from outside (`doors`): samples, how each is damaged, and what a clean answer is.

A case is bytes. `play` returns True if the door took it and False if it refused it with its own error. Any other exception, and a
state that a refusal has changed, is a bug.

Belongs here: one small class for each door. Never: counting, time limits (run.py), a test of meaning (tests/property).
"""

import asyncio
import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final

import hpack
import msgspec

from accelshare.agent.device_plugin import checkpoint
from accelshare.agent.device_plugin.allocator import AllocationError
from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as plugin_api
from accelshare.agent.device_plugin.device_ids import unit_ids
from accelshare.agent.device_plugin.pod_queue import NoWaitingPodError
from accelshare.agent.nri.protocol import mux
from accelshare.agent.nri.protocol.errors import Code, WireError
from accelshare.agent.nri.protocol.messages import PLUGIN_SERVICE, decode
from accelshare.agent.nri.protocol.nri_pb2 import Container, CreateContainerRequest, PodSandbox
from accelshare.agent.nri.protocol.plugin import NriPlugin
from accelshare.agent.nri.protocol.ttrpc import Packets, response_packet
from accelshare.agent.nri.protocol.ttrpc_pb2 import Request, Response
from accelshare.doctor.checks import examine
from accelshare.doctor.live_cluster import LiveCluster
from accelshare.doctor.objects import LiveLease, LiveNode, LivePod
from accelshare.doctor.reading import series_of
from accelshare.extender.promises.rules import may_be_on
from accelshare.http import http2_frames
from accelshare.http import messages as http_messages
from accelshare.http.client import Lines, LineTooLongError
from accelshare.http.http2_connection import Http2Connection
from accelshare.http.messages import HttpRequest
from accelshare.http.open_connections import OpenConnections
from accelshare.http.request_reader import PendingRequest, RequestReader
from accelshare.install.errors import InstallError
from accelshare.install.preflight.snapshot import Service, Workload
from accelshare.install.scheduler import content, documents
from accelshare.install.scheduler.desired_config import DesiredConfig
from accelshare.install.scheduler.release import configurations, parse
from accelshare.kube import config
from accelshare.kube.errors import KubeError, from_answer
from accelshare.ledger.facts import AgentSeen, NodeGone, NodeSeen, PodGone, PodSeen
from accelshare.ledger.ledger import CannotHoldError, Ledger
from accelshare.ledger.nouns import Ask, Assignment, Card, LimitNeed, Slice
from accelshare.runtimes import config_files, containerd, crio
from accelshare.terminal import visible, visible_json
from accelshare.vendors import catalog
from accelshare.vendors.drivers import card_json, enflame_efsmi, kunlun_smi, nvidia_smi, stream_tool
from accelshare.vendors.drivers.driver import QueryFailed
from accelshare.vendors.layers import survey
from accelshare.vendors.problems import VendorError
from accelshare.wire import assignment, inventory, protobuf, scheduler, usage
from accelshare.wire import kubernetes_pb2 as messages
from accelshare.wire.decoding import Decoder, UnreadableError
from accelshare.wire.listed_pods import ListedPodReader
from accelshare.wire.node_pods import NodePodReader
from accelshare.wire.nodes import NodeReader
from accelshare.wire.pods import PodReader
from accelshare.wire.quantity import thousandths, whole_number
from accelshare.wire.scheduling import NodeChoice, pod_decoder, read_node, scheduling_pod
from tests.contract.agent.nri import recording
from tests.fakes.sure import assert_sure
from tests.fuzz.mutations import TOKENS, damaged, damaged_tree
from tests.unit.agent.builders import container_handler, pod_store
from tests.unit.agent.device_plugin.test_allocator import Front, pod
from tests.unit.doctor.builders import NOW, Objects, asking
from tests.unit.extender.test_routes import full_nodes, routes_of
from tests.unit.vendors.drivers.enflame import test_parsers as enflame_samples
from tests.unit.vendors.drivers.kunlun import test_parsers as kunlun_samples
from tests.unit.vendors.drivers.test_card_json import GMI, ROCM
from tests.unit.wire.test_protobuf import node_message, nodes_page, pod_message, pods_page

ROOT: Final = Path(__file__).parents[2]
RECORDED: Final = ROOT / "tests/contract/recorded"
CATALOG: Final = catalog.load()


class Door(ABC):
    """One door. `share`: how many of a thousand cases it gets."""

    name: ClassVar[str]
    share: ClassVar[int]

    @cached_property
    @abstractmethod
    def samples(self) -> Sequence[bytes]:
        """Correct input."""

    @abstractmethod
    def play(self, case: bytes) -> bool:
        """Whether the door took it; False: it refused it cleanly."""

    def make(self, random: Random) -> bytes:
        """A case: a sample with damage, seldom only noise."""
        if random.random() < 0.05:
            return random.randbytes(random.randrange(200)) + random.choice(TOKENS)
        return damaged(random, random.choice(self.samples), self.samples)


class JsonDoor(Door):
    """A door for JSON: half of the cases stay JSON, so that they come further than the parser."""

    def make(self, random: Random) -> bytes:
        if random.random() < 0.6:
            return damaged_tree(random, random.choice(self.samples))
        return super().make(random)


def encoded(*values: Any) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def text_of(case: bytes) -> str:
    return case.decode("utf-8", "replace")


class Pods(JsonDoor):
    name, share = "pods", 120

    def __init__(self) -> None:
        self._reader, self._node_reader = PodReader(CATALOG), NodePodReader(CATALOG)

    @cached_property
    def samples(self) -> Sequence[bytes]:
        record = {"nvidia": [{"index": 0, "id": "GPU-0", "units": 4}]}
        notes = {"accelshare.io/assignment": json.dumps(record), "ALIYUN_COM_GPU_MEM_IDX": "0", "accelshare.io/card-count": "2"}
        init = {"name": "first", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m", "aliyun.com/gpu-mem": "1"}}}
        whole = {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 2, "memory": "1Gi"}}}], "nodeName": "n1"}
        slices = asking("train", on="n1", annotations=notes, spec={"initContainers": [init], "overhead": {"cpu": "1"}})
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}], "matchFields": []}
        rules = {
            "nodeSelector": {"pool": "gpu"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
            "schedulingGroup": {"podGroupName": "g"},
        }
        waits = asking("waits", labels={"baidu.com/xpu-count": "2"}, spec=rules)
        return encoded(slices, waits, asking("whole", spec=whole))

    def play(self, case: bytes) -> bool:
        taken = True
        for read in (self._reader.decode, self._node_reader.decode, lambda raw: scheduling_pod(pod_decoder.decode(raw))):
            try:
                read(case)
            except UnreadableError:
                taken = False
        return taken


class Nodes(JsonDoor):
    name, share = "nodes", 80

    def __init__(self) -> None:
        self._read = NodeReader(CATALOG).decode

    @cached_property
    def samples(self) -> Sequence[bytes]:
        node = Objects().nodes[0]
        amounts = {"aliyun.com/gpu-mem": "32", "aliyun.com/gpu-count": "2"}
        addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
        bare = {"metadata": {"name": "n2"}, "status": {"capacity": amounts, "addresses": addresses}}
        return encoded(node, bare)

    def play(self, case: bytes) -> bool:
        try:
            fact = self._read(case)
        except UnreadableError:
            return False
        ledger = Ledger()
        ledger.apply(fact)
        ledger.offer(fact.name, (Ask("nvidia", share=2),))
        assert ledger.check() == []
        with suppress(UnreadableError):
            may_be_on(NodeChoice(selector=(("pool", "gpu"),)), read_node(case))
        return True


class BinaryLists(Door):
    """Lists of pods and nodes in protobuf: what is read becomes facts that the ledger takes."""

    name, share = "binary-lists", 60

    def __init__(self) -> None:
        self._pods, self._nodes = PodReader(CATALOG), NodeReader(CATALOG)
        self._listed = ListedPodReader(self._pods)

    @cached_property
    def samples(self) -> Sequence[bytes]:
        return [pods_page(pod_message(), pod_message(), more="next"), nodes_page(node_message())]

    def play(self, case: bytes) -> bool:
        taken = False
        ledger = Ledger()
        for kind, fact_of in (
            (protobuf.NODES, lambda message: self._nodes.fact(protobuf.node_of(message))),
            (protobuf.PODS, self._listed_pod),
        ):
            with suppress(UnreadableError):
                items = kind.page(case).items
                for message in items:
                    if (fact := fact_of(message)) is not None:
                        ledger.apply(fact)
                taken = True
                stream, half = kind.stream(), len(case) // 2
                streamed = [*stream.feed(case[:half]), *stream.feed(case[half:])]
                assert streamed == items[: len(streamed)], "a list has other objects while it comes"
        assert [problem for problem in ledger.check() if "held" not in problem and "slices of at most" not in problem] == []
        return taken

    def _listed_pod(self, message: messages.Pod) -> PodSeen | AgentSeen | None:
        fact = self._listed.read(message)
        assert fact == self._pods.read(protobuf.pod_of(message)), "a pod of a list is another fact than the pod alone"
        return fact


class Annotations(JsonDoor):
    """Inventories, records, corrections, requirements: texts that agents, extenders and users write."""

    name, share = "annotations", 200

    @cached_property
    def samples(self) -> Sequence[bytes]:
        cards = [{"index": 0, "size": 16, "id": "GPU-0", "enforced_by": "dmem", "min_units": 2}, {"index": 1, "size": 16}]
        kinds = {"nvidia": {"cards": cards, "unit": "GiB", "delivery": "nri", "slots": {"GPU-0": 3}}}
        record = {"nvidia": [{"index": 0, "id": "GPU-0", "units": 4}], "kunlun": [{"index": 1, "whole": True}]}
        return encoded(kinds, record, {"uid": json.dumps(record)}, {"GPU-0": "dmem"}, ["other", "accelshare"])

    def play(self, case: bytes) -> bool:
        text = text_of(case)
        read = inventory.read(text)
        assert all(0 <= card.size <= inventory.LARGEST_SIZE for cards in read.cards.values() for card in cards)
        notes = {assignment.OURS: text, "ALIYUN_COM_GPU_MEM_IDX": text, assignment.REQUIRED_PLUGINS: text}
        request = (Ask("nvidia", share=4), Ask("kunlun", whole=True))
        slices, _ = assignment.read(notes, request, {profile.name: profile for profile in CATALOG})
        assert all(0 <= each.index <= assignment.LARGEST_INDEX for each in slices)
        for named in assignment.corrected_slices(text).values():
            assert all(0 <= each.index <= assignment.LARGEST_INDEX for each in named)
        assignment.slices_of(text)
        assignment.limited_ways(text)
        assert assignment.requires_plugin(assignment.require_plugin(["main"], notes), "main")
        try:
            inventory.entries_of(text)
        except UnreadableError:
            return False
        return True


class SchedulerCalls(JsonDoor):
    name, share = "scheduler-calls", 80

    @cached_property
    def samples(self) -> Sequence[bytes]:
        return [file.read_bytes() for file in sorted(RECORDED.glob("*.json"))]

    def play(self, case: bytes) -> bool:
        taken = False
        for read in (scheduler.read_filter_call, scheduler.read_preemption_call, scheduler.read_bind):
            try:
                call = read(case)
                if isinstance(call, scheduler.FilterCall):
                    list(call.names)
                taken = True
            except UnreadableError:
                continue
        return taken


class _Listener:
    """The part of the extender that is told about refused pods."""

    def filtered(self, uid: str, *, refused: bool) -> None: ...


class ExtenderCalls(SchedulerCalls):
    """The same bodies through the extender's paths: every answer is HTTP, without a server error, and the ledger stays."""

    name, share = "extender", 30

    def __init__(self) -> None:
        self._ledger = full_nodes(3)
        self._routes = routes_of(self._ledger)
        self._routes._requeue = _Listener()  # type: ignore[assignment]
        self._loop = asyncio.new_event_loop()
        self._before = list(self._ledger.facts())

    def play(self, case: bytes) -> bool:
        statuses = []
        for verb in ("filter", "prioritize", "preempt"):
            answer = self._routes.handle(HttpRequest("POST", f"/accelshare/{verb}", case))
            response = answer if not hasattr(answer, "__await__") else self._loop.run_until_complete(_of(answer))
            assert response.status in (200, 400, 413), response
            assert b"Traceback" not in response.body
            statuses.append(response.status)
        assert list(self._ledger.facts()) == self._before
        return 200 in statuses


async def _of(answer: Any) -> Any:
    return await answer


class Facts(Door):
    """The ledger under any facts and holds: its sums stay right, and a refused hold changes nothing."""

    name, share = "ledger", 60

    @cached_property
    def samples(self) -> Sequence[bytes]:
        return [Random(seed).randbytes(60) for seed in range(8)]

    def play(self, case: bytes) -> bool:
        random = Random(case)
        ledger = Ledger(cached_requests=4)
        taken = True
        for _ in range(random.randrange(1, 12)):
            ledger.apply(self._fact(random))
            uid, node = f"u{random.randrange(4)}", f"n{random.randrange(2)}"
            known = ledger.pod(uid)
            if known is not None and random.random() < 0.4:
                offer = ledger.offer(node, known.seen.request)
                wanted = (
                    offer if isinstance(offer, Assignment) and random.random() < 0.7 else Assignment(node, self._slices(random))
                )
                before = [(each.seen, each.hold) for each in ledger.pods()]
                try:
                    ledger.hold(uid, wanted)
                except CannotHoldError:
                    taken = False
                    assert [(each.seen, each.hold) for each in ledger.pods()] == before
            if random.random() < 0.1:
                ledger.release(uid)
        ledger.ranking((Ask("gpu", share=4),))
        wrong = [problem for problem in ledger.check() if "held" not in problem and "slices of at most" not in problem]
        assert wrong == []  # facts can oversell a card; nothing else may be wrong
        return taken

    def _fact(self, random: Random) -> Any:
        version = random.randrange(30)
        uid, node = f"u{random.randrange(4)}", f"n{random.randrange(2)}"
        match random.randrange(8):
            case 0 | 1:
                cards = tuple(
                    Card("gpu", index, random.choice((0, 4, 16)), random.random() < 0.8, random.choice(("", f"g{index}")))
                    for index in range(random.randrange(4))
                )
                corrected = {uid: self._slices(random)} if random.random() < 0.2 else {}
                return NodeSeen(
                    node, version, cards, paused=frozenset({"gpu"} if random.random() < 0.1 else ()), corrected=corrected
                )
            case 2:
                return NodeGone(node, version)
            case 3:
                return PodGone(uid, version)
            case 4:
                return AgentSeen(f"agent-{node}", node, random.random() < 0.5, version)
        ask = Ask("gpu", random.randrange(1, 3), random.randrange(0, 20), limits=random.choice(list(LimitNeed)))
        request = (ask,) if random.random() < 0.7 else (ask, Ask("gpu", random.randrange(1, 3), whole=True))
        bound = random.random() < 0.5
        return PodSeen(
            uid,
            "ns",
            uid,
            request,
            version,
            node if bound else "",
            self._slices(random) if bound else (),
            ended=random.random() < 0.1,
        )

    def _slices(self, random: Random) -> tuple[Slice, ...]:
        indexes = random.sample(range(5), random.randrange(3))
        return tuple(
            Slice("gpu", index, random.randrange(20), random.random() < 0.2, random.choice(("", f"g{index}")))
            for index in indexes
        )


class Profiles(Door):
    name, share = "profiles", 10

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._file = Path(self._directory.name) / "own.toml"
        # One shipped profile to extend; reading all of them takes ten times as long.
        file = ROOT / "src/accelshare/vendors/profiles/nvidia.toml"
        self._shipped = [catalog.read_files([("nvidia.toml", file)])[0]]

    @cached_property
    def samples(self) -> Sequence[bytes]:
        return [file.read_bytes() for file in sorted((ROOT / "src/accelshare/vendors/profiles").glob("*.toml"))]

    def play(self, case: bytes) -> bool:
        self._file.write_bytes(case)
        sources, problems = catalog.read_files([("own.toml", self._file)])
        problems += survey([*self._shipped, sources]).problems
        assert all(len(str(problem)) < 5000 for problem in problems)
        return not problems


class HttpBytes(Door):
    """Bytes of a client: complete requests, or one refusal, whatever the pieces are."""

    name, share = "http", 100

    @cached_property
    def samples(self) -> Sequence[bytes]:
        body = (RECORDED / "bind-names.json").read_bytes()
        head = b"POST /accelshare/bind HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        chunked = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4;e=1\r\nabcd\r\n0\r\nT: 1\r\n\r\n"
        get = b"GET /metrics?x=%41 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\n\r\n"
        upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        return [head % len(body) + body, chunked, get * 3, upgrade]

    def play(self, case: bytes) -> bool:
        got: list[PendingRequest] = []
        reader = RequestReader(got.append, lambda: None, max_body_bytes=4096, max_head_bytes=2048)
        size = case[0] % 64 + 1 if case else 1
        for start in range(0, len(case), size):
            reader.feed(case[start : start + size])
            if reader.refused or reader.upgrade:
                break
        for each in got:
            assert each.request.path is not None
            assert len(each.request.body) <= 4096
            if each.refusal is not None:
                assert 400 <= each.refusal.status < 500, each.refusal
                assert b"Traceback" not in each.refusal.body
        return not reader.refused


class Http2Bytes(Door):
    """Bytes of an HTTP/2 client, whatever the pieces are: requests are handled, or the connection is closed with a reason."""

    name, share = "http2", 60

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    @cached_property
    def samples(self) -> Sequence[bytes]:
        f = http2_frames
        encoder = hpack.Encoder()
        head = [(":method", "POST"), (":path", "/accelshare/bind"), (":scheme", "https"), (":authority", "a")]
        start = f.PREFACE + f.settings({f.INITIAL_WINDOW_SIZE: 1000, f.MAX_FRAME_SIZE: 20_000})
        body = (RECORDED / "bind-names.json").read_bytes()
        request = f.frame(f.HEADERS, f.END_HEADERS, 1, encoder.encode(head)) + f.frame(f.DATA, f.END_STREAM, 1, body)
        again = f.frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, 3, encoder.encode(head))
        cut = encoder.encode([*head, ("x", "y" * 300)])
        long = f.frame(f.HEADERS, f.END_STREAM, 5, cut[:9]) + f.frame(f.CONTINUATION, f.END_HEADERS, 5, cut[9:])
        others = (
            f.frame(f.PING, 0, 0, b"12345678")
            + f.window_update(0, 500)
            + f.window_update(1, 9)
            + f.go_away(0, f.ErrorCode.NO_ERROR)
        )
        return [start + request + again + long, start + others + request + f.reset(1, f.ErrorCode.REFUSED_STREAM) + others]

    def play(self, case: bytes) -> bool:
        return self._loop.run_until_complete(self._play(case))

    async def _play(self, case: bytes) -> bool:
        connections = OpenConnections(max_bytes=100_000)
        served: list[HttpRequest] = []

        def handle(request: HttpRequest) -> http_messages.Response:
            served.append(request)
            return http_messages.Response(200, b"x" * 3000)

        connection = Http2Connection(handle, connections, address="a", max_body_bytes=4096, max_head_bytes=2048)
        transport = _Written(connection)
        connections.add(connection)
        connection.connection_made(transport)
        size = case[0] % 64 + 1 if case else 1
        for start in range(0, len(case), size):
            if transport.closed:
                break
            connection.data_received(case[start : start + size])
        assert all(len(request.body) <= 4096 and request.path is not None for request in served)
        assert not any(b"Traceback" in piece for piece in transport.pieces)
        refused = transport.closed
        transport.abort()
        assert not connections
        return bool(served) and not refused


class _Written(asyncio.Transport):
    """Keeps what a connection writes."""

    def __init__(self, connection: Http2Connection) -> None:
        super().__init__()
        self._connection = connection
        self.pieces: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.pieces.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._connection.connection_lost(None)

    def abort(self) -> None:
        self.close()


class WatchLines(JsonDoor):
    """Answers of an API server: lines of a watch, and Status bodies."""

    name, share = "api-answers", 60

    @cached_property
    def samples(self) -> Sequence[bytes]:
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "old", "details": {"retryAfterSeconds": 1}}
        return encoded({"type": "ADDED", "object": asking("a")}, {"type": "ERROR", "object": status}, status)

    def play(self, case: bytes) -> bool:
        from accelshare.kube.client import _event

        lines = Lines(max_bytes=100_000)
        error = from_answer(503, case, retry_after=text_of(case[:5]), request="GET /")
        assert str(error).isprintable()
        try:
            for line in [*lines.feed(case), lines.rest()]:
                if line:
                    _event(line, "watch")
        except (KubeError, LineTooLongError):
            return False
        return True


class DevicePlugin(Door):
    """kubelet's requests: cards are allocated or the call fails with a reason; a refusal leaves the waiting pods as they were."""

    name, share = "device-plugin", 15

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    @cached_property
    def samples(self) -> Sequence[bytes]:
        ids = unit_ids(0, 16)
        allocate = plugin_api.AllocateRequest()
        allocate.container_requests.add(device_ids=ids[:2])
        prefer = plugin_api.PreferredAllocationRequest()
        prefer.container_requests.add(available_device_ids=ids, must_include_device_ids=ids[:1], allocation_size=2)
        start = plugin_api.PreStartContainerRequest(device_ids=ids[:2])
        return [allocate.SerializeToString(), prefer.SerializeToString(), start.SerializeToString()]

    def play(self, case: bytes) -> bool:
        return self._loop.run_until_complete(self._play(case))

    async def _play(self, case: bytes) -> bool:
        from google.protobuf.message import DecodeError

        front = Front(arrival_s=0.0)
        front.pod_queue.pods.put(pod("waits", 0))
        taken = False
        for kind in (plugin_api.AllocateRequest, plugin_api.PreferredAllocationRequest):
            try:
                request = kind.FromString(case)
            except DecodeError:
                continue  # gRPC refuses it
            containers: list[Any] = list(request.container_requests)[:4]
            for container in containers:
                before = front.pod_queue.waiting
                try:
                    if isinstance(container, plugin_api.ContainerAllocateRequest):
                        await front.allocator.allocate("nvidia", whole=False, device_ids=list(container.device_ids)[:200])
                    else:
                        available, must = container.available_device_ids[:200], container.must_include_device_ids[:200]
                        size = container.allocation_size
                        await front.allocator.prefer("nvidia", whole=False, available=available, must=must, size=size)
                    taken = True
                except (NoWaitingPodError, AllocationError, VendorError, ValueError):
                    assert front.pod_queue.waiting == before
        return taken


class NriPackets(Door):
    """A runtime's bytes: frames, packets, requests. Every request gets one answer, and none is an internal error."""

    name, share = "nri", 60

    def __init__(self) -> None:
        front = Front()
        self._plugin = NriPlugin("accelshare", container_handler(front.devices, pod_store(pod("train", 0))))

    @cached_property
    def samples(self) -> Sequence[bytes]:
        sent: list[bytes] = []
        requests: list[bytes] = []
        for file in sorted(recording.RECORDED.glob("*.txt")):
            data = b"".join(data for who, data in recording.read(file) if who == recording.RUNTIME)
            sent.append(data)
            streams: dict[int, Packets] = {}
            for stream, content_ in mux.Frames().feed(data):
                requests += [each.data for each in streams.setdefault(stream, Packets()).feed(content_)]
        sandbox = PodSandbox(id="p", name="train", uid="train", namespace="default")
        container = Container(id="c", pod_sandbox_id="p", name="main", env=["A=1"])
        create = CreateContainerRequest(pod=sandbox, container=container).SerializeToString()
        requests.append(Request(service=PLUGIN_SERVICE, method="CreateContainer", payload=create).SerializeToString())
        return [*sent, *requests]

    def play(self, case: bytes) -> bool:
        taken = False
        try:
            packets = Packets()
            for _, content_ in mux.Frames().feed(case):
                taken = bool(list(packets.feed(content_))) or taken
        except WireError:
            taken = False
        (answer,) = Packets().feed(response_packet(1, case, self._plugin.answer))
        response = decode(Response, answer.data)
        assert response.status.code != Code.INTERNAL.value, response.status.message
        return taken or not response.status.code


class DriverOutputs(Door):
    """The outputs of vendors' tools: refused, or sure cards only."""

    name, share = "drivers", 100

    @cached_property
    def samples(self) -> Sequence[bytes]:
        csv = "0, GPU-368a683d-1111-2222-3333-0123456789ab, 16127, 00000000:3B:00.0, Disabled, T4\n"
        tables = [enflame_samples.HEADER + generation for generation in enflame_samples.GENERATIONS.values()]
        texts = [
            *tables,
            enflame_samples.BLOCK.format(size="Total Size"),
            kunlun_samples.table(kunlun_samples.row(0), kunlun_samples.row(1, node="/dev/xpu1")),
            kunlun_samples.P800,
            csv * 2,
            "index, name, serial, memory.total [MiB]\n0, STCP920, A1, 16384 MiB\n",
            "NPU: 0\n\tSTCP920\t\tBUS-ID: 0:65:00.0 (01PSF60000170610)\n",
            json.dumps(GMI),
            json.dumps(ROCM),
        ]
        return [text.encode() for text in texts]

    @cached_property
    def _rules(self) -> list[Any]:
        drivers = [profile.driver for profile in CATALOG if profile.driver is not None]
        return [driver.static.json for driver in drivers if driver.static is not None and driver.static.json is not None]

    def play(self, case: bytes) -> bool:
        text = text_of(case)
        taken = False
        for parser in (enflame_efsmi.parse_table, enflame_efsmi.parse_query, enflame_efsmi.parse_json):
            taken |= self._listing(lambda parser=parser: parser(text))
        for parser in (kunlun_smi.parse_table, kunlun_smi.parse_lines):
            taken |= self._listing(lambda parser=parser: parser(text))
        for fields in (nvidia_smi.FIELDS, nvidia_smi.OLD_FIELDS):
            taken |= self._listing(lambda fields=fields: nvidia_smi.parse_csv(text, fields))
        for rules in self._rules:
            taken |= self._listing(lambda rules=rules: card_json.read_json(text, rules))
        for read in (stream_tool.from_query, stream_tool.from_csv, stream_tool.from_list):
            try:
                read(text)
                taken = True
            except QueryFailed:
                continue
        return taken

    def _listing(self, parse: Any) -> bool:
        try:
            assert_sure(parse())
        except QueryFailed:
            return False
        return True


class Kubeconfigs(Door):
    name, share = "kubeconfig", 15

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._file = Path(self._directory.name) / "config"

    @cached_property
    def samples(self) -> Sequence[bytes]:
        text = """\
apiVersion: v1
current-context: main
clusters:
- name: c
  cluster: {server: "https://10.0.0.1:6443", insecure-skip-tls-verify: true, proxy-url: "http://p:3128"}
- name: d
  cluster: &d
    server: https://[::1]:6443
    certificate-authority-data: QQ==
users:
- name: u
  user: {token: abc}
- name: x
  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: none, args: [a], env: [{name: A, value: b}]}}
- name: y
  user: {username: a, password: b, client-certificate-data: QQ==, client-key-data: QQ==}
contexts:
- name: main
  context: {cluster: c, user: u, namespace: ml}
- name: other
  context: {cluster: d, user: x}
"""
        return [text.encode(), text.replace("main", "other").encode(), text.replace("user: u", "user: y").encode()]

    def play(self, case: bytes) -> bool:
        self._file.write_bytes(case)
        try:
            cluster = config.load(self._file, environ={})
        except KubeError:
            return False
        assert cluster.server.startswith(("http://", "https://"))
        return True


class SchedulerFiles(Door):
    """kube-scheduler's own configuration files: merged, or refused with a message."""

    name, share = "scheduler-files", 5

    @cached_property
    def samples(self) -> Sequence[bytes]:
        golden = ROOT / "tests/unit/install/scheduler/golden"
        own = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nclientConnection:\n  qps: 50\n"
        return [own, *(file.read_bytes() for file in sorted(golden.iterdir()))]

    def play(self, case: bytes) -> bool:
        desired = DesiredConfig("http://10.0.0.1:12345/accelshare", ("aliyun.com/gpu-mem",))
        try:
            document = documents.read(case, "config.yaml")
            documents.plain(document.data)
            content.merged(case, name="config.yaml", accepted=configurations(parse("1.36")), desired=desired)
        except InstallError:
            return False
        return True


class RuntimeFiles(Door):
    """Configuration files of container runtimes."""

    name, share = "runtime-files", 20

    @cached_property
    def samples(self) -> Sequence[bytes]:
        text = 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n[plugins."io.containerd.nri.v1.nri"]\ndisable = false\n'
        validator = '[plugins."io.containerd.nri.v1.nri".default_validator]\nenable = true\nrequired_plugins = ["accelshare"]\n'
        return [(text + validator).encode(), b"[crio.nri]\nenable_nri = true\n[crio.nri.default_validator]\nnri_enable = true\n"]

    def play(self, case: bytes) -> bool:
        layer = Path("/etc/containerd/config.toml")
        try:
            parsed = config_files.parse(layer, case)
            found = (config_files.Layer(layer, parsed),)
            containerd.nri_settings(containerd.Layers(found))
            crio.nri_settings(found)
        except config_files.UnreadableConfigError:
            return False
        return True


class OtherFiles(JsonDoor):
    """kubelet's checkpoint, agents' answers about use, pages of metrics, quantities, and text for people."""

    name, share = "other", 80

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._file = Path(self._directory.name) / checkpoint.FILE

    @cached_property
    def samples(self) -> Sequence[bytes]:
        entry = {"PodUID": "u", "ContainerName": "c", "ResourceName": "r", "DeviceIDs": {"0": ["a"]}, "AllocResp": "QQ=="}
        data = {"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {"r": ["a"]}}, "Checksum": 1}
        own = {"namespace": "ml", "name": "a", "uid": "u", "kind": "nvidia", "card": 0, "held_bytes": 5, "idle_s": 1.5}
        card = {"kind": "nvidia", "card": 0, "others": [{"pid": 7, "used_bytes": 3}]}
        use = {"node": "n1", "age_s": 1.0, "cards": [card], "pods": [own], "problems": {"kunlun": "no answer"}}
        return encoded(data, use, "1500m", "4Ki", "1e3")

    def play(self, case: bytes) -> bool:
        text = text_of(case)
        self._file.write_bytes(case)
        checkpoint.allocations(self._file.parent)
        checkpoint.registered(self._file.parent)
        series_of(b'accelshare_watch_up{what="pods"} ' + case)
        whole_number(text.strip('"'))
        thousandths(text.strip('"'))
        assert visible(text).isprintable()
        visible_json(text)
        try:
            usage.decoder.decode(case)
        except UnreadableError:
            return False
        return True


class DoctorObjects(JsonDoor):
    """Any object of a cluster, through the doctor's decoders and all of its checks."""

    name, share = "doctor", 15

    _KINDS: Final[Mapping[str, type[Any]]] = {
        "nodes": LiveNode,
        "pods": LivePod,
        "services": Service,
        "deployments": Workload,
        "daemon_sets": Workload,
        "leases": LiveLease,
    }

    @cached_property
    def samples(self) -> Sequence[bytes]:
        objects = Objects()
        objects.pods += [asking("waits"), asking("train", on="n1")]
        return encoded({part: getattr(objects, part) for part in self._KINDS})

    def play(self, case: bytes) -> bool:
        try:
            parts = Decoder(dict[str, list[msgspec.Raw]]).decode(case)
        except UnreadableError:
            return False
        read: dict[str, Any] = {}
        taken = True
        for part, kind in self._KINDS.items():
            objects: list[Any] = []
            for raw in parts.get(part, [])[:50]:
                try:
                    objects.append(Decoder(kind).decode(raw))
                except UnreadableError:
                    taken = False
            read[part] = tuple(objects)
        examine(LiveCluster(CATALOG, NOW, **read))
        return taken


def all_doors() -> list[Door]:
    """Every door, each with a state of its own."""
    return [
        Pods(),
        Nodes(),
        BinaryLists(),
        Annotations(),
        SchedulerCalls(),
        ExtenderCalls(),
        Facts(),
        Profiles(),
        HttpBytes(),
        Http2Bytes(),
        WatchLines(),
        DevicePlugin(),
        NriPackets(),
        DriverOutputs(),
        Kubeconfigs(),
        SchedulerFiles(),
        RuntimeFiles(),
        OtherFiles(),
        DoctorObjects(),
    ]
