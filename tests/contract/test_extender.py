"""The extender over real HTTP: responses, refusals, and failures of the API server."""

import asyncio
import json
import signal
from pathlib import Path

import aiohttp
import pytest

from accelshare import __version__
from tests.contract.fake_cluster import MEMORY, FakeCluster

PREFIXES = ["/gpushare-scheduler", "/xpushare-scheduler", "/gcushare-scheduler", "/accelshare"]


async def test_version_and_health_are_plain_text(fake_cluster: FakeCluster) -> None:
    await fake_cluster.start_extender()
    assert await fake_cluster.call("GET", "/version") == (200, __version__)
    for path in ("/healthz", "/livez", "/readyz"):
        assert await fake_cluster.call("GET", path) == (200, "ok")


async def test_it_is_not_ready_before_the_ledger_is_complete(fake_cluster: FakeCluster) -> None:
    """Alive at once, ready after both lists; until then filter is an error that kube-scheduler retries."""
    fake_cluster.node("n1", 16)
    pod = fake_cluster.pod("a", 4)
    fault = fake_cluster.api.faults.answer(503, method="GET", path="/api/v1/pods", times=10**6)
    fake_cluster.begin_extender()

    async def alive() -> bool:
        try:
            return (await fake_cluster.call("GET", "/livez"))[0] == 200
        except aiohttp.ClientError:
            return False

    await fake_cluster.until(alive, "it is alive")
    await fake_cluster.until(lambda: fault.hits > 0, "it tried to list pods")
    status, text = await fake_cluster.call("GET", "/readyz")
    assert (status, "pods not listed" in text) == (503, True)
    answer = await fake_cluster.filter(pod, "n1")
    assert "has not listed" in answer["Error"]
    fake_cluster.api.faults.clear()
    await fake_cluster.until(fake_cluster.is_ready, "it is ready")
    assert (await fake_cluster.filter(pod, "n1"))["NodeNames"] == ["n1"]


async def test_nothing_is_bound_before_pods_are_listed(fake_cluster: FakeCluster) -> None:
    """Nodes are listed and pods are not: a full card looks empty, so no pod is bound and none evicted."""
    fake_cluster.node("n1", 16)
    await fake_cluster.start_extender()
    assert await fake_cluster.bind(fake_cluster.pod("a", 16), "n1") == ""
    assert fake_cluster.extender is not None
    fake_cluster.extender.kill()
    second = fake_cluster.pod("b", 16)
    fake_cluster.api.faults.answer(503, method="GET", path="/api/v1/pods", times=10**6)
    fake_cluster.begin_extender()

    async def half() -> bool:
        try:
            return (await fake_cluster.call("GET", "/readyz"))[1] == "not ready: pods not listed yet"
        except aiohttp.ClientError:
            return False

    await fake_cluster.until(half, "only pods are missing")
    assert "has not listed pods" in await fake_cluster.bind(second, "n1")
    victims = {"n1": {"Pods": [{"UID": "x"}], "NumPDBViolations": 0}}
    for verb, asked in (("prioritize", {"NodeNames": ["n1"]}), ("preempt", {"NodeNameToMetaVictims": victims})):
        assert (await fake_cluster.call("POST", f"/accelshare/{verb}", {"Pod": second, **asked}))[0] == 503
    fake_cluster.api.faults.clear()
    await fake_cluster.until(fake_cluster.is_ready, "it is ready")
    assert "Insufficient GPU Memory" in await fake_cluster.bind(second, "n1")


@pytest.mark.parametrize("prefix", PREFIXES)
async def test_every_prefix_serves_every_verb(fake_cluster: FakeCluster, prefix: str) -> None:
    fake_cluster.node("n1", 16)
    fake_cluster.node("n2", 8)
    pod = fake_cluster.pod("a", 4)
    await fake_cluster.start_extender("--shortlist=0")
    assert (await fake_cluster.filter(pod, "n1", "n2", prefix=prefix))["NodeNames"] == ["n2", "n1"]
    asked = {"Pod": pod, "Nodes": None, "NodeNames": ["n1", "n2", "n3"]}
    assert await fake_cluster.post("prioritize", asked, prefix=prefix) == [
        {"Host": "n1", "Score": 9},
        {"Host": "n2", "Score": 10},
        {"Host": "n3", "Score": 0},
    ]
    preempt = {"Pod": pod, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "other"}], "NumPDBViolations": 0}}}
    assert (await fake_cluster.post("preempt", preempt, prefix=prefix))["NodeNameToMetaVictims"]["n1"]["Pods"] == [
        {"UID": "other"}
    ]
    meta = pod["metadata"]
    bind = {"PodName": "a", "PodNamespace": "default", "PodUID": meta["uid"], "Node": "n2"}
    assert await fake_cluster.post("bind", bind, prefix=prefix) == {"Error": ""}
    status, _ = await fake_cluster.call("GET", f"{prefix}/inspect/n2")
    assert status == 200


async def test_the_shortlist_is_as_long_as_the_flag_says(fake_cluster: FakeCluster) -> None:
    names = [f"n{number}" for number in range(6)]
    for name in names:
        fake_cluster.node(name, 16)
    pod = fake_cluster.pod("a", 4)
    await fake_cluster.start_extender("--shortlist=3")
    assert (await fake_cluster.filter(pod, *names))["NodeNames"] == ["n0", "n1", "n2"]
    assert (await fake_cluster.filter(pod, *reversed(names)))["NodeNames"] == ["n0", "n1", "n2"]
    pod["spec"]["topologySpreadConstraints"] = [{"whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1, "topologyKey": "zone"}]
    assert (await fake_cluster.filter(pod, *names))["NodeNames"] == names


async def test_every_refused_node_has_its_reason_in_the_right_map(fake_cluster: FakeCluster) -> None:
    for name, size in (("full", 16), ("small", 8), ("fits", 16), ("cardless", 0)):
        fake_cluster.node(name, *([size] if size else []))
    await fake_cluster.start_extender()
    assert await fake_cluster.bind(fake_cluster.pod("filler", 16), "full") == ""
    answer = await fake_cluster.filter(fake_cluster.pod("a", 12), "full", "small", "fits", "cardless", "unheard")
    assert answer["NodeNames"] == ["fits"]
    unresolvable = {
        "small": "Insufficient GPU Memory in one device",
        "cardless": "node has no GPU to share",
        "unheard": "node is not known to accelshare yet",
    }
    assert answer["FailedAndUnresolvableNodes"] == unresolvable
    assert answer["FailedNodes"] == {"full": "Insufficient GPU Memory in one device", **unresolvable}


async def test_prioritize_counts_down_from_ten_and_breaks_ties_by_name(fake_cluster: FakeCluster) -> None:
    names = [f"n{number:02}" for number in range(15)]
    for name in names:
        fake_cluster.node(name, 16)
    pod = fake_cluster.pod("a", 4)
    await fake_cluster.start_extender()
    answer = await fake_cluster.post("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": list(reversed(names))})
    assert {row["Host"]: row["Score"] for row in answer} == {name: max(0, 10 - place) for place, name in enumerate(names)}


async def test_filter_prioritize_and_preempt_write_nothing(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16)
    pod = fake_cluster.pod("a", 4)
    await fake_cluster.start_extender()
    revision = fake_cluster.api.store.revision
    for _ in range(20):
        await fake_cluster.filter(pod, "n1")
        await fake_cluster.post("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": ["n1"]})
        await fake_cluster.post("preempt", {"Pod": pod, "NodeNameToMetaVictims": {"n1": {"Pods": [], "NumPDBViolations": 0}}})
    assert fake_cluster.api.store.revision == revision
    assert await fake_cluster.used() == {"n1": [0]}


async def test_a_bind_is_one_write_and_safe_to_repeat(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16)
    fake_cluster.node("n2", 16)
    pod = fake_cluster.pod("a", 4)
    await fake_cluster.start_extender()
    revision = fake_cluster.api.store.revision
    assert await asyncio.gather(*(fake_cluster.bind(pod, "n1") for _ in range(5))) == [""] * 5
    assert await fake_cluster.bind(pod, "n1") == ""
    assert fake_cluster.api.store.revision == revision + 1
    assert fake_cluster.cards("a") == [0]
    assert "already bound to node n1" in await fake_cluster.bind(pod, "n2")
    assert await fake_cluster.used() == {"n1": [4], "n2": [0]}


async def test_two_pods_race_for_the_last_card(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16)
    racers = [fake_cluster.pod(name, 9) for name in "ab"]
    await fake_cluster.start_extender()
    errors = await asyncio.gather(*(fake_cluster.bind(pod, "n1") for pod in racers))
    assert sorted(errors) == ["", "node n1: Insufficient GPU Memory in one device"]
    assert await fake_cluster.used() == {"n1": [9]}


@pytest.mark.parametrize("lost", ["drop_after", "drop_before"])
async def test_after_a_lost_response_the_pod_is_read(fake_cluster: FakeCluster, lost: str) -> None:
    fake_cluster.node("n1", 16)
    pod = fake_cluster.pod("a", 4)
    await fake_cluster.start_extender()
    fault = getattr(fake_cluster.api.faults, lost)(method="POST", path="/binding$")
    assert await fake_cluster.bind(pod, "n1") == ""
    assert fault.hits == 1
    assert (fake_cluster.read("a")["spec"]["nodeName"], fake_cluster.cards("a")) == ("n1", [0])
    assert await fake_cluster.used() == {"n1": [4]}


@pytest.mark.parametrize("code", [400, 403, 422, 500])
async def test_a_failed_bind_holds_nothing_and_has_its_reason(fake_cluster: FakeCluster, code: int) -> None:
    fake_cluster.node("n1", 16)
    pod = fake_cluster.pod("a", 16)
    await fake_cluster.start_extender()
    fake_cluster.api.faults.answer(code, method="POST", path="/binding$")
    assert str(code) in await fake_cluster.bind(pod, "n1")

    async def free() -> bool:
        return await fake_cluster.used() == {"n1": [0]}

    if code == 500:  # its storage may still carry it out, until the pod was changed
        await fake_cluster.until(free, "the card is free")
    assert await free()
    assert "annotations" not in fake_cluster.read("a")["metadata"]
    assert await fake_cluster.bind(pod, "n1") == ""
    assert await fake_cluster.used() == {"n1": [16]}


async def test_a_bind_in_doubt_keeps_its_card_and_is_offered_nowhere_else(fake_cluster: FakeCluster) -> None:
    """The API server gets the POST and does not respond: the pod may be bound, so no other pod gets its card."""
    fake_cluster.node("n1", 16)
    fake_cluster.node("n2", 16)
    pod, other = fake_cluster.pod("a", 16), fake_cluster.pod("b", 16)
    await fake_cluster.start_extender("--shortlist=0")
    fake_cluster.api.faults.drop_before(method="POST", path="/a/binding$", times=10**6)
    fake_cluster.api.faults.answer(503, method="GET", path="/pods/a$", times=10**6)
    fake_cluster.api.faults.answer(503, method="PATCH", path="/pods/a/status$", times=10**6)
    assert await fake_cluster.bind(pod, "n1") != ""
    assert (await fake_cluster.filter(pod, "n1", "n2"))["NodeNames"] == ["n1"]
    assert (await fake_cluster.filter(other, "n1", "n2"))["NodeNames"] == ["n2"]
    assert "may already be bound" in await fake_cluster.bind(pod, "n2")
    fake_cluster.api.faults.clear()
    assert await fake_cluster.bind(pod, "n1") == ""
    assert await fake_cluster.used() == {"n1": [16], "n2": [0]}


async def test_a_pod_that_is_gone_or_another_is_not_bound(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16)
    pod = fake_cluster.pod("a", 4)
    await fake_cluster.start_extender()
    ghost = json.loads(json.dumps(pod))
    ghost["metadata"]["uid"] = "another"
    assert "uid" in await fake_cluster.bind(ghost, "n1")
    ghost["metadata"]["name"] = "../../nodes/n1"
    assert "it must be lower-case" in await fake_cluster.bind(ghost, "n1")
    ghost["metadata"]["name"] = "nobody"
    assert "pod default/nobody is gone" in await fake_cluster.bind(ghost, "n1")
    assert await fake_cluster.used() == {"n1": [0]}


async def test_a_pod_that_requests_no_card_is_bound_without_a_record(fake_cluster: FakeCluster) -> None:
    """kube-scheduler sends pods that name a managed resource, whatever the amount."""
    fake_cluster.node("n1", 16)
    pod = fake_cluster.pod("zero", 0)
    await fake_cluster.start_extender()
    assert (await fake_cluster.filter(pod, "n1", "n2"))["NodeNames"] == ["n1", "n2"]
    assert await fake_cluster.bind(pod, "n1") == ""
    assert fake_cluster.read("zero")["spec"]["nodeName"] == "n1"
    assert "accelshare.io/assignment" not in (fake_cluster.read("zero")["metadata"].get("annotations") or {})


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
async def test_broken_json_gets_an_error(fake_cluster: FakeCluster, verb: str) -> None:
    await fake_cluster.start_extender()
    for body in (b"", b"{", b"[]", b'{"Pod": 1}', b"[" * 50_000, b"\xff\xfe"):
        status, text = await fake_cluster.call("POST", f"/accelshare/{verb}", body)
        answer = json.loads(text)
        assert status == (200 if verb in ("filter", "bind") else 400), body
        assert "message" in answer.get("Error", answer.get("error")), body
        assert await fake_cluster.is_ready(), body


async def test_absurd_numbers_get_an_error(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16)
    pod = fake_cluster.pod("a", 4)
    await fake_cluster.start_extender()
    for absurd in ("9" * 40, "1e99", "-5", "0.5", "99999999999"):
        pod["spec"]["containers"][0]["resources"]["limits"][MEMORY] = absurd
        answer = await fake_cluster.filter(pod, "n1")
        assert (answer["Error"], answer["NodeNames"]) == ("", [])
        assert "whole number" in answer["FailedAndUnresolvableNodes"]["n1"]


async def test_a_body_of_100_mb_is_refused_before_it_is_read(fake_cluster: FakeCluster) -> None:
    await fake_cluster.start_extender()
    reader, writer = await asyncio.open_connection("127.0.0.1", fake_cluster.port)
    writer.write(b"POST /accelshare/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 30)
    assert b"413" in answer.split(b"\r\n")[0]
    assert b"--max-body-mib" in answer
    writer.close()


async def test_a_chunked_body_that_becomes_too_large_is_refused(fake_cluster: FakeCluster) -> None:
    await fake_cluster.start_extender("--max-body-mib=1")

    async def chunks() -> object:
        for _ in range(64):
            yield b" " * 65536

    url = f"http://127.0.0.1:{fake_cluster.port}/accelshare/filter"
    try:
        async with fake_cluster.session.post(url, data=chunks()) as answer:
            assert answer.status == 413
    except aiohttp.ClientError:
        pass  # it hung up on us while we were still sending, which is its right
    assert await fake_cluster.is_ready()


async def test_the_error_for_a_wrong_path_lists_the_right_ones(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("node-1", 16)
    await fake_cluster.start_extender()
    for method, path, status, words in (
        ("GET", "/nothing", 404, "prefixes are /accelshare, /gcushare-scheduler"),
        ("POST", "/accelshare/explode", 404, "has filter, prioritize, preempt, bind, inspect"),
        ("GET", "/accelshare/filter", 405, "takes POST, not GET"),
        ("POST", "/accelshare/inspect", 405, "takes GET, not POST"),
        ("POST", "/version", 405, "takes GET"),
        ("GET", "/accelshare/inspect/node-2", 404, "did you mean node-1?"),
        ("GET", "/gcushare-scheduler/inspect/zzz", 404, "node 'zzz' is not known"),
    ):
        got, text = await fake_cluster.call(method, path)
        assert (got, words in text) == (status, True), text


async def test_a_pod_refused_before_capacity_was_freed_is_touched(fake_cluster: FakeCluster) -> None:
    """kube-scheduler saw the end of a pod before we did, was refused, and would not retry for minutes."""
    fake_cluster.node("n1", 16)
    first, waits = fake_cluster.pod("first", 9), fake_cluster.pod("waits", 14)
    await fake_cluster.start_extender()
    assert await fake_cluster.bind(first, "n1") == ""
    assert (await fake_cluster.filter(waits, "n1"))["NodeNames"] == []
    fake_cluster.api.store.delete("pods", "first", options={"gracePeriodSeconds": 0})
    await fake_cluster.until(
        lambda: "accelshare.io/requeued" in (fake_cluster.read("waits")["metadata"].get("annotations") or {}), "it is touched"
    )
    assert (await fake_cluster.filter(waits, "n1"))["NodeNames"] == ["n1"]
    assert "accelshare_pods_requeued_total 1.0" in (await fake_cluster.call("GET", "/metrics"))[1]


async def test_metrics_count_what_was_decided(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16)
    pod = fake_cluster.pod("a", 4)
    await fake_cluster.start_extender()
    await fake_cluster.filter(pod, "n1", "n2")
    await fake_cluster.bind(pod, "n1")
    _, text = await fake_cluster.call("GET", "/metrics")
    assert 'accelshare_decisions_total{outcome="served",verb="filter"} 1.0' in text
    assert 'accelshare_decisions_total{outcome="bound",verb="bind"} 1.0' in text
    assert 'accelshare_refused_nodes_total{reason="unknown-node"} 1.0' in text
    assert "accelshare_ready 1.0" in text
    assert 'accelshare_decision_seconds_count{verb="filter"} 1.0' in text


async def test_retried_requests_are_counted(fake_cluster: FakeCluster) -> None:
    fake_cluster.api.faults.answer(503, method="GET", path="/api/v1/pods", times=2)
    await fake_cluster.start_extender()
    assert "accelshare_api_retries_total 2.0" in (await fake_cluster.call("GET", "/metrics"))[1]


async def test_sigterm_finishes_what_is_in_flight(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16)
    pod = fake_cluster.pod("a", 4)
    process = await fake_cluster.start_extender()
    fault = fake_cluster.api.faults.delay(1.0, method="POST", path="/binding$")
    binding = asyncio.create_task(fake_cluster.bind(pod, "n1"))
    await fake_cluster.until(lambda: fault.hits, "the bind is on its way")
    process.terminate()
    assert await binding == ""
    await fake_cluster.until(lambda: not process.running, "it has ended")
    assert process.exit_code == 0


async def test_logs_are_one_line_a_decision_and_can_be_json(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    fake_cluster.node("n1", 16)
    pod = fake_cluster.pod("a", 4)
    file = tmp_path / "extender.json"
    await fake_cluster.start_extender("--log-format=json", f"--log-file={file}")
    await fake_cluster.filter(pod, "n1")
    await fake_cluster.bind(pod, "n1")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    (filtered,) = [line for line in lines if line["event"] == "filter"]
    (bound,) = [line for line in lines if line["event"] == "bind"]
    assert (filtered["pod"], filtered["named"], filtered["outcome"]) == ("default/a", "n1", "served")
    assert (bound["node"], bound["cards"], bound["outcome"]) == ("n1", "nvidia/0", "bound")
    assert filtered["time"].endswith("Z")


async def test_the_log_file_rotates(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    fake_cluster.node("n1", 16)
    pod = fake_cluster.pod("a" * 200, 4)
    file = tmp_path / "extender.log.txt"
    await fake_cluster.start_extender(f"--log-file={file}", "--log-file-mib=1", "--log-files=2")
    for _ in range(9):
        await asyncio.gather(*(fake_cluster.filter(pod, "n1") for _ in range(400)))
    assert {path.name for path in tmp_path.glob("extender.log.txt*")} == {file.name, f"{file.name}.1"}
    assert file.stat().st_size < 2**20


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--tls-cert=LICENSE"], "--tls-key"),
        (["--client-ca=LICENSE"], "needs --tls-cert"),
        (["--listen=nowhere"], "is not HOST:PORT"),
        (["--kubeconfig=/nonexistent"], "does not exist"),
        (["--policy=magic"], "'binpack'"),
        (["--tls-cert=LICENSE", "--tls-key=LICENSE"], "cannot be used"),
    ],
)
async def test_wrong_flags_are_an_error(fake_cluster: FakeCluster, flags: list[str], words: str) -> None:
    process = fake_cluster.begin_extender(*flags)
    await fake_cluster.until(lambda: not process.running, "it has ended")
    assert process.exit_code not in (0, None, -signal.SIGKILL)
    assert words in process.last_lines()
    assert "Traceback" not in process.last_lines()


async def test_a_port_in_use_is_an_error(fake_cluster: FakeCluster) -> None:
    await fake_cluster.start_extender()
    first = fake_cluster.extender
    second = fake_cluster.begin_extender()
    await fake_cluster.until(lambda: not second.running, "the second has ended")
    assert f"cannot listen on 127.0.0.1:{fake_cluster.port}" in second.last_lines()
    fake_cluster.extender = first
