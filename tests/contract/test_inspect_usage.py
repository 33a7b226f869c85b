"""`inspect` asks the agents who uses the cards, through the API server's proxy to their pods."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from accelshare.http.messages import JSON, TEXT, HttpRequest, Response
from accelshare.http.server import Server, listen
from accelshare.testing.api_server import FakeApiServer
from accelshare.wire import usage
from accelshare.wire.usage import CardUse, NodeUse, OtherProcess, PodUse
from tests.contract.test_inspect import XPUSHARE, InspectedCluster

GIB = 2**30
Page = Callable[[], Response]


class UsedCluster(InspectedCluster):
    """Nodes with agents that answer what a test says."""

    def __init__(self, api: FakeApiServer, directory: Path) -> None:
        super().__init__(api, directory)
        self.asked: list[str] = []
        self.page: Page = lambda: Response(404, b"the paths are /livez", TEXT)
        self.port = 0

    def handle(self, request: HttpRequest) -> Response:
        self.asked.append(request.path)
        return self.page()

    def agent(self, name: str, node: str, *, namespace: str = "kube-system") -> None:
        container = {"name": "agent", "image": "none", "ports": [{"name": "probes", "containerPort": self.port}]}
        metadata = {"name": name, "labels": {"accelshare.io/agent": "true"}}
        if namespace not in self.namespaces():
            self.api.store.create("namespaces", {"metadata": {"name": namespace}})
        content = {"metadata": metadata, "spec": {"nodeName": node, "containers": [container]}}
        self.api.store.create("pods", content, namespace=namespace)
        status = {"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}
        self.api.store.patch("pods", name, status, namespace=namespace, subresource="status")

    def namespaces(self) -> set[str]:
        return {version.object["metadata"]["name"] for version in self.api.store.list("namespaces").versions}

    def uid(self, name: str) -> str:
        return str(self.api.store.get("pods", name).object["metadata"]["uid"])

    def answers(self, *pods: PodUse, cards: tuple[CardUse, ...] = ()) -> None:
        self.page = lambda: Response(200, usage.write(NodeUse("minikube", 3.0, pods, cards)), JSON)

    def use(self, name: str, card: int, **numbers: Any) -> PodUse:
        return PodUse("default", name, self.uid(name), "kunlun", card, held_bytes=4500 * 2**20, **numbers)

    def example(self) -> None:
        """The xpushare guide's scene with an agent: one pod computes, the other has been idle for three hours."""
        self.xpu_pods()
        self.agent("agent-1", "minikube")
        self.answers(
            self.use("xpu-pod-0", 0, used_bytes=5 * GIB, utilisation=0.25, over_use=True),
            self.use("xpu-pod-1", 1, used_bytes=GIB, utilisation=0.0, idle_s=3 * 3600 + 120),
            cards=(
                CardUse("kunlun", 0, 6 * GIB, 0.25, GIB, (OtherProcess(7, GIB, "ml/x"),)),
                CardUse("kunlun", 1, GIB, 0.0, 0),
            ),
        )


@pytest.fixture
async def used(tmp_path: Path) -> AsyncIterator[UsedCluster]:
    async with FakeApiServer() as api:
        cluster = UsedCluster(api, tmp_path)
        listening = listen("127.0.0.1", 0)
        cluster.port = listening.getsockname()[1]
        server = Server(cluster.handle, listening, max_body_bytes=4096)
        server.start()
        yield cluster
        await server.stop()


async def test_the_wide_table_has_columns_of_use(used: UsedCluster) -> None:
    used.example()
    code, out, err = await used.accelshare("inspect", "-o", "wide")
    assert (code, err) == (0, "")
    head, first, second, third, _ = out.splitlines()
    assert "ENFORCED BY  MEMORY IN USE  UTILISATION  BY OTHERS  PODS" in head
    assert first.endswith("6.0 GiB        25%          1.0 GiB    default/xpu-pod-0 4500 (5.0 GiB, 25%, MORE THAN IT HOLDS)")
    assert second.endswith("1.0 GiB        0%           0          default/xpu-pod-1 4500 (1.0 GiB, 0%)")
    assert third.endswith("-              -            -          -")
    assert used.asked == ["/usage"]


async def test_the_json_has_the_numbers(used: UsedCluster) -> None:
    used.example()
    code, out, err = await used.accelshare("inspect", "-o", "json")
    assert (code, err) == (0, "")
    first, second, third, _ = json.loads(out)["nodes"][0]["cards"]
    assert first["use"] == {
        "used_bytes": 6 * GIB,
        "utilisation": 0.25,
        "used_by_others_bytes": GIB,
        "others": [{"pid": 7, "used_bytes": GIB, "pod": "ml/x"}],
    }
    (pod,) = second["pods"]
    assert pod["use"] == {
        "held_bytes": 4500 * 2**20,
        "used_bytes": GIB,
        "utilisation": 0.0,
        "idle_s": 3 * 3600 + 120,
        "over_use": False,
    }
    assert "use" not in third


async def test_the_originals_tables_ask_nobody_and_do_not_change(used: UsedCluster) -> None:
    used.example()
    assert await used.run(used.plugin("xpushare")) == (0, XPUSHARE, "")
    assert await used.accelshare("inspect") == (0, XPUSHARE, "")
    assert used.asked == []


async def test_use_is_shown_below_the_originals_table_where_it_is_wanted(used: UsedCluster) -> None:
    used.example()
    code, out, err = await used.accelshare("inspect", "--usage")
    assert (code, err) == (0, "")
    assert out.startswith(XPUSHARE + "\nNODE ")
    assert "xpu-pod-1  4.4 GiB  1.0 GiB  0%           3h2m" in out


async def test_idle_pods_are_listed(used: UsedCluster) -> None:
    used.example()
    code, out, err = await used.accelshare("inspect", "--idle")
    assert (code, err) == (0, "")
    head, *lines = out.splitlines()
    assert [line.split() for line in lines] == [
        ["default", "xpu-pod-1", "minikube", "XPU1", "4.4", "GiB", "1.0", "GiB", "3h2m"],
    ]
    assert head.split() == ["NAMESPACE", "NAME", "NODE", "CARDS", "HELD", "IN", "USE", "IDLE"]
    assert len((await used.accelshare("inspect", "--idle", "3"))[1].splitlines()) == 2
    assert len((await used.accelshare("inspect", "--idle=4"))[1].splitlines()) == 1
    _, out, _ = await used.accelshare("inspect", "--idle", "1", "-o", "json")
    (pod,) = json.loads(out)["idle"]
    assert (pod["name"], pod["cards"], pod["idle_s"]) == ("xpu-pod-1", ["XPU1"], 3 * 3600 + 120)


async def test_idle_pods_of_nodes_that_do_not_answer_are_not_known(used: UsedCluster) -> None:
    used.xpu_pods()
    _, out, err = await used.accelshare("inspect", "--idle")
    assert len(out.splitlines()) == 1
    assert err == "nothing is known about the use of minikube: does the agent run with --usage?\n"


async def test_agents_that_do_not_sample_change_nothing(used: UsedCluster) -> None:
    used.xpu_pods()
    plain = await used.accelshare("inspect", "-o", "wide", "--no-usage")
    assert used.asked == []
    used.agent("agent-1", "minikube")
    assert await used.accelshare("inspect", "-o", "wide") == plain
    assert used.asked == ["/usage"]


async def test_nobody_is_asked_if_that_is_not_wanted(used: UsedCluster) -> None:
    used.example()
    _, out, _ = await used.accelshare("inspect", "-o", "wide", "--no-usage")
    assert "MEMORY IN USE" not in out
    assert used.asked == []


async def test_without_the_permission_one_line_says_so(used: UsedCluster) -> None:
    used.example()
    used.api.faults.answer(403, path="/proxy/", times=100)
    code, out, err = await used.accelshare("inspect", "-o", "wide")
    assert (code, "default/xpu-pod-0 4500" in out, "MEMORY IN USE" in out) == (0, True, False)
    assert err.count("\n") == 1
    assert "pods/proxy" in err


async def test_an_agent_that_cannot_be_reached_leaves_a_dash_and_a_line(used: UsedCluster) -> None:
    used.example()
    used.example_node("stream")
    stream = json.loads((await used.accelshare("inspect", "--vendor=stream", "-o", "json", "--no-usage"))[1])["nodes"][0]["name"]
    used.agent("agent-2", stream)
    used.api.faults.answer(503, path="agent-2:", times=100)
    code, out, err = await used.accelshare("inspect", "-o", "wide")
    assert code == 0
    assert err.startswith(f"{stream}: use is not shown: ")
    (line, *_) = [line for line in out.splitlines() if line.startswith(stream)]
    assert line.split()[-4:] == ["-", "-", "-", "-"]


async def test_a_pod_that_pretends_to_be_an_agent_is_not_believed(used: UsedCluster) -> None:
    used.example()
    used.agent("agent-9", "minikube", namespace="evil")
    _, out, err = await used.accelshare("inspect", "-o", "wide")
    assert "MEMORY IN USE" not in out
    assert "evil, kube-system" in err
    assert used.asked == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"node": 7}', b"[" * 100_000, b" " * (usage.LONGEST + 1)])
async def test_an_answer_that_cannot_be_read_is_no_traceback(used: UsedCluster, body: bytes) -> None:
    used.example()
    used.page = lambda: Response(200, body, JSON)
    code, out, err = await used.accelshare("inspect", "-o", "wide")
    assert (code, "default/xpu-pod-0 4500" in out) == (0, True)
    assert err.startswith("minikube: use is not shown: ")
    assert err.count("\n") == 1
