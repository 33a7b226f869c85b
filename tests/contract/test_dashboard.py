"""The dashboard over HTTP, by `accelshare dashboard` and by the extender: it shows the ledger, and only to its readers."""

import asyncio
import contextlib
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from accelshare.dashboard.routes import MOST_READERS
from accelshare.http.messages import JSON, TEXT, Response
from accelshare.wire import usage
from accelshare.wire.usage import CardUse, NodeUse, OtherProcess, PodUse
from cluster.https import free_port
from cluster.waiting import wait_until_async
from tests.contract.dashboard_process import DashboardClient, Object, answering_agent, next_event, run_dashboard
from tests.contract.fake_cluster import LIMIT_S, MEMORY, FakeCluster

GIB = 2**30
TOKEN = "a-token-of-enough-characters"


def complete(snapshot: Object) -> bool:
    return bool(snapshot["nodes"])


def cards(snapshot: Object) -> dict[str, list[int]]:
    return {node["name"]: [card["used"] for card in node["cards"]] for node in snapshot["nodes"]}


async def test_the_command_shows_what_the_extender_counts(fake_cluster: FakeCluster) -> None:
    """Nodes, cards, pods and waiting pods; and the same again after a bind, without a new request of the reader."""
    fake_cluster.node("n1", 16, 16, model="<img src=x onerror=alert(1)>")
    fake_cluster.node("n2", 8)
    await fake_cluster.start_extender()
    assert await fake_cluster.bind(fake_cluster.pod("a", 12), "n1") == ""
    fake_cluster.pod("big", 20)
    async with run_dashboard(fake_cluster) as page:
        snapshot = await page.until(lambda s: s["totals"]["waiting"] == 1, "the first snapshot")
        assert cards(snapshot) == await fake_cluster.used()
        (card,) = [card for node in snapshot["nodes"] for card in node["cards"] if card["pods"]]
        assert [(pod["namespace"], pod["name"], pod["units"]) for pod in card["pods"]] == [("default", "a", 12)]
        (waiting,) = snapshot["waiting"]
        assert waiting["request"] == "20 GiB GPU"
        assert waiting["reasons"] == [
            {"code": "larger-than-any-card", "text": "Insufficient GPU Memory in one device", "nodes": 2}
        ]
        assert snapshot["totals"]["vendors"] == [
            {"kind": "nvidia", "cards": 3, "unhealthy": 0, "size": 40, "used": 12, "unit": "GiB"}
        ]
        assert len(snapshot["history"]) == 1
        async with fake_cluster.session.get(f"http://127.0.0.1:{page.port}/api/events") as stream:
            assert stream.content_type == "text/event-stream"
            first = await next_event(stream)
            assert (first["event"], cards(first["data"])) == ("snapshot", cards(snapshot))
            assert await fake_cluster.bind(fake_cluster.pod("b", 8), "n2") == ""
            update = await next_event(stream)
            while cards(update["data"]) != {"n2": [8]}:  # the new pod alone may come first
                update = await next_event(stream)
            assert update["event"] == "update"


async def test_the_extender_serves_its_own_ledger(fake_cluster: FakeCluster) -> None:
    port = free_port()
    fake_cluster.node("n1", 16)
    await fake_cluster.start_extender(f"--dashboard={port}")
    page = DashboardClient(fake_cluster.session, port, fake_cluster.extender)
    assert cards(await page.until(complete, "the node is shown")) == {"n1": [0]}
    async with fake_cluster.session.get(f"http://127.0.0.1:{port}/api/events") as stream:
        await next_event(stream)
        assert await fake_cluster.bind(fake_cluster.pod("a", 4), "n1") == ""
        snapshot = await page.until(lambda s: cards(s) == {"n1": [4]}, "the bound pod is shown")
    assert cards(snapshot) == await fake_cluster.used()
    status, text, _ = await page.get("/api/explain?namespace=default&name=a")
    assert (status, "default/a is on node n1" in text) == (200, True)


async def test_a_reader_that_reconnects_to_a_new_process_gets_everything(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16)
    port = free_port()
    async with run_dashboard(fake_cluster, port=port) as page:
        await page.until(complete, "the node is shown")
        async with fake_cluster.session.get(f"http://127.0.0.1:{port}/api/events") as stream:
            last = (await next_event(stream))["id"]
        headers = {"Last-Event-ID": last}
        fake_cluster.pod("p", 4)
        async with fake_cluster.session.get(f"http://127.0.0.1:{port}/api/events", headers=headers) as stream:
            assert (await next_event(stream))["event"] == "update"
    async with run_dashboard(fake_cluster, port=port) as page:
        await page.until(complete, "the node is shown again")
        async with fake_cluster.session.get(f"http://127.0.0.1:{port}/api/events", headers=headers) as stream:
            event = await next_event(stream)
    assert (event["event"], [node["name"] for node in event["data"]["nodes"]]) == ("snapshot", ["n1"])


async def test_quotas_of_managed_resources_are_shown(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16)
    status = {"hard": {f"requests.{MEMORY}": "64", "pods": "10"}, "used": {f"requests.{MEMORY}": "12"}}
    fake_cluster.api.store.create("resourcequotas", {"metadata": {"name": "q"}, "status": status}, namespace="default")
    async with run_dashboard(fake_cluster) as page:
        snapshot = await page.until(lambda s: complete(s) and s["namespaces"], "the quota is shown")
    (namespace,) = snapshot["namespaces"]
    assert namespace["quotas"] == [{"quota": "q", "kind": "nvidia", "resource": MEMORY, "hard": 64, "used": 12}]


async def test_who_may_not_read_quotas_sees_the_rest(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16)
    fake_cluster.api.faults.answer(403, method="GET", path="/api/v1/resourcequotas", times=10**6)
    async with run_dashboard(fake_cluster) as page:
        snapshot = await page.until(lambda s: complete(s) and s["interrupted"], "the missing right is shown")
    assert list(snapshot["interrupted"]) == ["resourcequotas"]
    assert cards(snapshot) == {"n1": [0]}


async def test_the_use_of_cards_is_beside_their_shares_where_it_is_known(fake_cluster: FakeCluster) -> None:
    """The agents are asked through the API server while someone reads; one that does not sample is asked once."""
    fake_cluster.node("n1", 16)
    fake_cluster.node("n2", 16)
    await fake_cluster.start_extender()
    pod = fake_cluster.pod("a", 12)
    assert await fake_cluster.bind(pod, "n1") == ""
    use = PodUse("default", "a", pod["metadata"]["uid"], "nvidia", 0, 12 * GIB, 3 * GIB, 0.25)
    process = OtherProcess(7, GIB, "<img src=x>")
    page_of_n1 = usage.write(NodeUse("n1", 3.0, (use,), (CardUse("nvidia", 0, 4 * GIB, 0.25, GIB, (process,)),)))
    asked = 0

    def not_sampling() -> Response:
        nonlocal asked
        asked += 1
        return Response(404, b"the paths are /livez", TEXT)

    async with (
        answering_agent(fake_cluster, "n1", lambda: Response(200, page_of_n1, JSON)),
        answering_agent(fake_cluster, "n2", not_sampling),
        run_dashboard(fake_cluster) as page,
    ):
        await page.until(complete, "the nodes are shown")
        assert asked == 0, "nobody reads yet"
        async with fake_cluster.session.get(f"http://127.0.0.1:{page.port}/api/events") as stream:
            await next_event(stream)
            snapshot = await page.until(lambda s: any("use" in card for n in s["nodes"] for card in n["cards"]), "use is shown")
        (card,) = next(node["cards"] for node in snapshot["nodes"] if node["name"] == "n1")
        assert card["use"] == {"used_bytes": 4 * GIB, "utilisation": 0.25}
        of_pod = {"used_bytes": 3 * GIB, "utilisation": 0.25, "over_use": False, "held_bytes": 12 * GIB}
        assert card["pods"][0]["use"] == of_pod
        assert snapshot["use_notes"] == []
        assert asked == 1


async def test_no_agent_is_asked_if_the_user_does_not_want_it(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16)
    asked: list[int] = []

    def answer() -> Response:
        asked.append(1)
        return Response(404, b"", TEXT)

    async with answering_agent(fake_cluster, "n1", answer), run_dashboard(fake_cluster, "--no-usage") as page:
        await page.until(complete, "the node is shown")
        async with fake_cluster.session.get(f"http://127.0.0.1:{page.port}/api/events") as stream:
            await next_event(stream)
            fake_cluster.node("n2", 16)
            snapshot = await page.until(lambda s: len(s["nodes"]) == 2, "the next snapshot")
        assert all("use" not in card for node in snapshot["nodes"] for card in node["cards"])
        assert asked == []


async def test_an_explanation_is_what_explain_prints(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16)
    fake_cluster.pod("big", 20)
    async with run_dashboard(fake_cluster) as page:
        await page.until(complete, "the node is shown")
        status, text, _ = await page.get("/api/explain?namespace=default&name=big")
        assert status == 200
        explanation = json.loads(text)
        words = [sys.executable, "-m", "accelshare", "explain", "big", f"--kubeconfig={fake_cluster.directory / 'kubeconfig'}"]
        done = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        printed = (await done.communicate())[0].decode()
        for part in (
            explanation["headline"],
            *explanation["mistakes"],
            explanation["in_short"],
            explanation["nodes"][0]["verdict"],
        ):
            assert part in printed
        assert (await page.get("/api/explain?namespace=default&name=gone"))[0] == 404
        assert (await page.get("/api/explain?namespace=../..&name=a%2Fb"))[0] == 404
        assert (await page.get("/api/explain"))[0] == 400
        assert (await page.get("/api/explain?namespace=default&name=big&c=3&d=4&e=5"))[0] == 400


async def test_every_response_forbids_what_the_page_does_not_need(fake_cluster: FakeCluster) -> None:
    async with run_dashboard(fake_cluster) as page:
        await wait_until_async(page.snapshot, "it serves", LIMIT_S, 0.05)
        for path in ("/", "/dashboard.js", "/dashboard.css", "/api/snapshot", "/nothing"):
            _, text, headers = await page.get(path)
            policy = headers["content-security-policy"]
            assert policy.startswith(
                "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:"
            )
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
            assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), f"{path} names another host"
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert (await page.get("/api/snapshot", method=method))[0] == 405
        status, text, _ = await page.get("/api/snapshot", Host="evil.example")
        assert (status, "nodes" in text) == (421, False)


async def test_with_a_token_file_only_the_token_opens_it(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16)
    file = fake_cluster.directory / "token"
    file.write_text(TOKEN)
    async with run_dashboard(fake_cluster, f"--token-file={file}") as page:
        good = {"Authorization": f"Bearer {TOKEN}"}
        await wait_until_async(lambda: page.snapshot(**good), "it serves", LIMIT_S, 0.05)
        for path in ("/api/snapshot", "/api/events", "/api/explain?namespace=a&name=b"):
            for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
                assert (await page.get(path, **header))[0] == 401
        assert (await page.get("/"))[0] == 200, "the page itself has no data"


async def test_a_reader_whose_token_is_replaced_gets_no_more_changes(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16)
    file = fake_cluster.directory / "token"
    file.write_text(TOKEN)
    good = {"Authorization": f"Bearer {TOKEN}"}
    async with run_dashboard(fake_cluster, f"--token-file={file}") as page:
        await wait_until_async(lambda: page.snapshot(**good), "it serves", LIMIT_S, 0.05)
        async with fake_cluster.session.get(f"http://127.0.0.1:{page.port}/api/events", headers=good) as stream:
            assert b"n1" in await stream.content.readuntil(b"\n\n")
            file.write_text(TOKEN[::-1] + "-new")
            fake_cluster.node("late", 16)
            async with asyncio.timeout(LIMIT_S):
                assert b"late" not in await stream.read()


async def test_the_api_server_can_check_tokens(fake_cluster: FakeCluster) -> None:
    """Its TokenReview names the user, its SubjectAccessReviews say what the user may list."""
    from accelshare.dashboard.access import ApiServerUsers
    from accelshare.kube import config
    from accelshare.kube.client import Client

    asked: list[str] = []

    class Reviewing(Client):
        async def request(self, method: str, path: str, **more: Any) -> bytes:
            spec = json.loads(more["body"])["spec"]
            if path.endswith("tokenreviews"):
                asked.append(spec["token"])
                known = spec["token"] in ("admin", "guest")
                return json.dumps({"status": {"authenticated": known, "user": {"username": spec["token"]}}}).encode()
            return json.dumps({"status": {"allowed": spec["user"] == "admin"}}).encode()

    kubeconfig = fake_cluster.api.write_kubeconfig(fake_cluster.directory / "kubeconfig")
    async with Reviewing(config.load(kubeconfig), user_agent="test") as client:
        users = ApiServerUsers(client)
        assert [await users.allows(token) for token in ("admin", "guest", "nobody", "", "admin")] == [
            True,
            False,
            False,
            False,
            True,
        ]
    assert asked == ["admin", "guest", "nobody"], "an answer is used again for a while"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dashboard", "--listen=0.0.0.0:0"], "token file"),
        (["dashboard", "--listen=nowhere"], "is not PORT or HOST:PORT"),
        (["dashboard", "--listen=127.0.0.1:0", "--namespace=defalt"], "there is no namespace 'defalt'; did you mean default?"),
        (["extender", "--dashboard=0.0.0.0:0", "--listen=127.0.0.1:0"], "token file"),
        (["extender", "--dashboard-host=x"], "need --dashboard"),
    ],
)
async def test_an_open_or_an_empty_dashboard_is_refused(fake_cluster: FakeCluster, words: list[str], message: str) -> None:
    kubeconfig = fake_cluster.api.write_kubeconfig(fake_cluster.directory / "kubeconfig")
    command_line = [sys.executable, "-m", "accelshare", *words, f"--kubeconfig={kubeconfig}"]
    done = await asyncio.create_subprocess_exec(*command_line, stderr=asyncio.subprocess.PIPE)
    errors = (await asyncio.wait_for(done.communicate(), LIMIT_S))[1].decode()
    assert done.returncode != 0
    assert message in errors
    assert "Traceback" not in errors


async def test_an_interrupt_ends_it_while_the_api_server_does_not_answer(fake_cluster: FakeCluster) -> None:
    asked = asyncio.Event()

    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    kubeconfig = fake_cluster.api.write_kubeconfig(fake_cluster.directory / "kubeconfig")
    async with await asyncio.start_server(keep_silent, "127.0.0.1", 0) as server:
        silent = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        kubeconfig.write_text(re.sub(r"http://[\d.:]+", silent, kubeconfig.read_text()))
        words = [sys.executable, "-m", "accelshare", "dashboard", "--listen=127.0.0.1:0", f"--kubeconfig={kubeconfig}"]
        process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
        try:
            await asyncio.wait_for(asked.wait(), LIMIT_S)
            process.send_signal(signal.SIGINT)
            errors = (await asyncio.wait_for(process.communicate(), LIMIT_S))[1].decode()
        finally:
            if process.returncode is None:
                process.kill()
        assert (process.returncode, errors.strip()) == (1, "Aborted!"), "by the interrupt, and not by a time limit"


async def test_readers_are_bounded(fake_cluster: FakeCluster) -> None:
    fake_cluster.node("n1", 16)
    async with run_dashboard(fake_cluster) as page, contextlib.AsyncExitStack() as streams:
        await page.until(complete, "the node is shown")
        session = await streams.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        url = f"http://127.0.0.1:{page.port}/api/events"
        for _ in range(MOST_READERS):
            stream = await streams.enter_async_context(session.get(url))
            assert stream.status == 200
        async with session.get(url) as refused:
            assert refused.status == 503


def test_the_page_is_three_files_of_this_package() -> None:
    folder = Path(__file__).parents[2] / "src/accelshare/dashboard/page"
    assert sorted(file.name for file in folder.iterdir()) == ["dashboard.css", "dashboard.js", "index.html"]
    markup = (folder / "index.html").read_text()
    assert not re.search(r"<style|style=| on[a-z]+=|<script(?! src=\"dashboard.js\" defer></script>)", markup), (
        "inline code or style"
    )
    script = (folder / "dashboard.js").read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", script)
