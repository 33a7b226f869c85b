"""One request and one list, against a real HTTP server."""

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from accelshare.kube.client import Page
from accelshare.kube.config import Cluster, load
from accelshare.kube.credentials import TokenFile, static_token
from accelshare.kube.errors import ApiError, BadAnswer, Conflict, Expired, Forbidden, TooManyRequests, Unreachable
from accelshare.wire import kubernetes_pb2 as messages
from accelshare.wire.decoding import PROTOBUF_MAGIC
from accelshare.wire.protobuf import PODS
from tests.unit.kube import kubeconfigs
from tests.unit.kube.kubeconfigs import b64
from tests.unit.kube.pki import Authority
from tests.unit.kube.support import Naps, asking, client_of, hang_up, refusal, serving, until_error, unused_url

# Asking


async def test_a_request_arrives_as_it_was_meant() -> None:
    got: list[Any] = []

    async def note(request: web.BaseRequest) -> web.StreamResponse:
        got.append((request.method, request.path_qs, await request.read(), request.headers))
        return web.Response(text="answer", status=201)

    async with asking(note, user_agent="accelshare/1") as client:
        answer = await client.request(
            "PATCH", "/api/v1/x", body=b"{}", content_type="application/merge-patch+json", params={"labelSelector": "a=b,c!=d+e"}
        )
    method, path, body, headers = got[0]
    assert answer == b"answer"
    assert (method, body) == ("PATCH", b"{}")
    assert path.startswith("/api/v1/x?labelSelector=a")
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert headers["User-Agent"] == "accelshare/1"
    assert "Authorization" not in headers


async def test_parameters_survive_the_url() -> None:
    """A continue token or a selector with +, = and & must arrive as it was."""

    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response(dict(request.query))

    params = {"continue": "a+b/c==&d", "labelSelector": "x in (a,b),!y"}
    async with asking(echo) as client:
        assert json.loads(await client.request("GET", "/", params=params)) == params


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("packed", [False, True])
async def test_a_body_that_the_server_forwards_is_bounded(status: int, packed: bool) -> None:
    """A node can answer for its pods, and would fill the memory of whoever asks."""
    sent: list[int] = []

    async def flood(request: web.BaseRequest) -> web.StreamResponse:
        if packed:
            body = gzip.compress(b"0" * (64 << 20))
            return web.Response(status=status, body=body, headers={"Content-Encoding": "gzip"})
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                await response.write(b"0" * (1 << 16))
                sent.append(1)
        return response

    async with asking(flood) as client:
        with pytest.raises(BadAnswer, match="longer than 1000000 bytes"):
            await client.request("GET", "/", most_bytes=1_000_000)
    assert len(sent) < 1000


async def test_a_body_of_the_most_bytes_is_read() -> None:
    async def answer(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=gzip.compress(b"0" * 1000), headers={"Content-Encoding": "gzip"})

    async with asking(answer) as client:
        assert await client.request("GET", "/", most_bytes=1000) == b"0" * 1000


async def test_a_server_with_a_path_keeps_it() -> None:
    """Rancher and other gateways put the cluster under a path."""

    async def where(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=request.path)

    async with serving(where) as url, client_of(Cluster(f"{url}/k8s/clusters/c-1")) as client:
        assert await client.request("GET", "/api/v1/pods") == b"/k8s/clusters/c-1/api/v1/pods"


async def test_credentials_go_with_every_request() -> None:
    async def who(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=request.headers.get("Authorization", "nobody"))

    async with serving(who) as url, client_of(Cluster(url, credentials=static_token("abc"))) as client:
        assert await client.request("GET", "/") == b"Bearer abc"


async def test_a_401_reads_the_token_file_again_once(tmp_path: Path) -> None:
    """A token that was replaced less than a minute ago costs one extra round trip, not a failure."""
    file = tmp_path / "token"
    file.write_text("old")

    async def only_new(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers["Authorization"] == "Bearer new":
            return web.Response(text="in")
        file.write_text("new")
        return refusal(401)

    async with serving(only_new) as url, client_of(Cluster(url, credentials=TokenFile(file))) as client:
        assert await client.request("POST", "/", body=b"{}") == b"in"


async def test_connections_are_kept() -> None:
    ports: set[int] = set()

    async def note(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        return web.Response()

    async with asking(note) as client:
        for _ in range(3):
            await client.request("POST", "/", body=b"{}")
    assert len(ports) == 1


async def test_a_redirect_is_not_followed() -> None:
    """Its target would get our token."""

    async def away(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})

    async with asking(away) as client:
        with pytest.raises(ApiError) as caught:
            await client.request("GET", "/")
    assert caught.value.status == 302


async def test_a_refusal_is_raised_with_the_servers_message() -> None:
    async def no(request: web.BaseRequest) -> web.StreamResponse:
        return refusal(403, "Forbidden", 'pods is forbidden: User "x" cannot list')

    async with asking(no) as client:
        with pytest.raises(Forbidden, match=r"GET http.*/api/v1/pods: 403 Forbidden: pods is forbidden"):
            await client.request("GET", "/api/v1/pods")


async def test_after_close_nothing_is_sent() -> None:
    async def ok(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response()

    naps = Naps()
    async with asking(ok, sleep=naps) as client:
        await client.request("GET", "/")
        await client.close()
        with pytest.raises(Unreachable, match="closed"):
            await client.request("GET", "/")
    assert naps.taken == []


# No answer


async def test_a_refused_connection_means_not_sent() -> None:
    async with client_of(Cluster(unused_url())) as client:
        with pytest.raises(Unreachable) as caught:
            await client.request("POST", "/", body=b"{}")
    assert not caught.value.sent
    assert caught.value.__cause__ is not None


async def test_a_name_that_does_not_resolve_means_never_sent() -> None:
    async with client_of(Cluster("http://no-such-host.invalid")) as client:
        with pytest.raises(Unreachable) as caught:
            await client.request("POST", "/", body=b"{}")
    assert not caught.value.sent


async def test_a_connection_that_breaks_may_have_carried_it_out() -> None:
    async def broken(request: web.BaseRequest) -> web.StreamResponse:
        return hang_up(request)

    async with asking(broken) as client:
        with pytest.raises(Unreachable) as caught:
            await client.request("POST", "/", body=b"{}")
    assert caught.value.sent


async def test_an_incomplete_response_is_unreachable() -> None:
    async def half(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"half")
        return hang_up(request)

    async with asking(half) as client:
        with pytest.raises(Unreachable):
            await client.request("POST", "/", body=b"{}")


async def test_silence_ends_with_the_time_limit() -> None:
    async def never(request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            await asyncio.Event().wait()
        return web.Response()

    async with asking(never) as client:
        await client.request("GET", "/")  # so that there is a connection, which takes its time on a busy machine
        with pytest.raises(Unreachable, match=r"within 0\.05 s") as caught:
            await client.request("POST", "/", body=b"{}", timeout_s=0.05)
    assert caught.value.sent


# Asking again


@pytest.mark.parametrize("fault", [429, 503, None])
async def test_a_get_that_the_server_deferred_is_retried(fault: int | None) -> None:
    calls: list[str] = []
    reasons: list[str] = []

    async def third_time(request: web.BaseRequest) -> web.StreamResponse:
        calls.append(request.path)
        if len(calls) == 3:
            return web.Response(text="ok")
        return refusal(fault) if fault else hang_up(request)

    naps = Naps()
    async with asking(third_time, sleep=naps, on_retry=reasons.append) as client:
        assert await client.request("GET", "/x") == b"ok"
    # A connection that was closed under a GET is tried once more at once, without a wait.
    assert naps.taken == ([0.1, 0.2] if fault else [0.1])
    assert len(reasons) == len(naps.taken)
    assert "GET http" in reasons[0]


async def test_a_get_is_not_retried_for_ever() -> None:
    calls: list[str] = []

    async def never(request: web.BaseRequest) -> web.StreamResponse:
        calls.append(request.path)
        return refusal(429, "TooManyRequests")

    async with asking(never) as client:
        with pytest.raises(TooManyRequests):
            await client.request("GET", "/x")
    assert len(calls) == 4


async def test_retry_after_is_honoured_up_to_a_limit() -> None:
    answers = iter([refusal(429, Retry_After="2"), refusal(429, Retry_After="3600"), web.Response(text="ok")])

    async def scripted(request: web.BaseRequest) -> web.StreamResponse:
        return next(answers)

    naps = Naps()
    async with asking(scripted, sleep=naps) as client:
        await client.request("GET", "/x")
    assert naps.taken == [2.0, 5.0]


async def test_retries_have_jitter() -> None:
    """Random 0 halves the wait, random 1 leaves it."""
    answers = iter([refusal(503), web.Response(text="ok")])

    async def scripted(request: web.BaseRequest) -> web.StreamResponse:
        return next(answers)

    naps = Naps()
    async with asking(scripted, sleep=naps, random=lambda: 0.0) as client:
        await client.request("GET", "/x")
    assert naps.taken == [0.05]


@pytest.mark.parametrize(("method", "fault"), [("POST", 503), ("PATCH", 429), ("DELETE", 503), ("GET", 500), ("GET", 404)])
async def test_nothing_else_is_retried(method: str, fault: int) -> None:
    """Only the caller knows whether a write may happen twice, and a refusal is final."""
    calls: list[str] = []

    async def no(request: web.BaseRequest) -> web.StreamResponse:
        calls.append(request.method)
        return refusal(fault)

    async with asking(no) as client:
        with pytest.raises(ApiError):
            await client.request(method, "/x", body=b"{}" if method != "GET" else None)
    assert calls == [method]


# Lists


def listing(numbers: range, *, more: str = "", version: str = "7") -> web.Response:
    items = [{"metadata": {"name": f"p{number}"}} for number in numbers]
    return web.json_response({"kind": "PodList", "metadata": {"resourceVersion": version, "continue": more}, "items": items})


def names(pages: list[Page]) -> list[str]:
    return [json.loads(bytes(raw))["metadata"]["name"] for page in pages for raw in page.items]


async def test_a_list_is_read_in_pages() -> None:
    asked: list[dict[str, str]] = []

    async def paged(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(dict(request.query))
        return listing(range(2, 3)) if "continue" in request.query else listing(range(2), more="next+/=")

    async with asking(paged) as client:
        pages = [page async for page in client.pages("/api/v1/pods", params={"fieldSelector": "a=b"}, limit=2)]
    assert names(pages) == ["p0", "p1", "p2"]
    assert [page.resource_version for page in pages] == ["7", "7"]
    assert asked == [
        {"fieldSelector": "a=b", "limit": "2"},
        {"fieldSelector": "a=b", "limit": "2", "continue": "next+/="},
    ]


async def test_a_list_may_be_compressed() -> None:
    body = json.dumps({"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "p0"}}] * 100}).encode()

    async def packed(request: web.BaseRequest) -> web.StreamResponse:
        assert "gzip" in request.headers["Accept-Encoding"]
        return web.Response(body=gzip.compress(body), headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})

    async with asking(packed) as client:
        assert len(names([page async for page in client.pages("/x")])) == 100


async def test_a_client_near_its_api_server_asks_for_no_compression() -> None:
    async def plain(request: web.BaseRequest) -> web.StreamResponse:
        assert request.headers["Accept-Encoding"] == "identity"
        return listing(range(1))

    async with asking(plain, compressed=False) as client:
        assert names([page async for page in client.pages("/x")]) == ["p0"]


def pods_message(*names: str, more: str = "", version: str = "7") -> bytes:
    pods = [messages.Pod(metadata=messages.ObjectMeta(name=name)) for name in names]
    listed = messages.PodList(metadata=messages.ListMeta(resource_version=version, continue_token=more), items=pods)
    return PROTOBUF_MAGIC + messages.PodListEnvelope(list=listed).SerializeToString()


async def test_a_list_may_come_in_protobuf() -> None:
    async def binary(request: web.BaseRequest) -> web.StreamResponse:
        assert request.headers["Accept"].startswith("application/vnd.kubernetes.protobuf")
        return web.Response(body=pods_message("p0", "p1"))

    async with asking(binary) as client:
        (page,) = [page async for page in client.pages("/api/v1/pods", messages=PODS)]
    assert [pod.metadata.name for pod in page.items] == ["p0", "p1"]
    assert page.resource_version == "7"


async def test_a_long_list_in_protobuf_comes_as_one_response_from_the_api_servers_cache() -> None:
    """Not older than the first page, which the API server read from etcd or knows to be the newest."""
    asked: list[dict[str, str]] = []

    async def long(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(dict(request.query))
        if "limit" in request.query:
            return web.Response(body=pods_message("p0", more="next"))
        response = web.StreamResponse()
        await response.prepare(request)
        body = pods_message(*(f"p{number}" for number in range(500)), version="9")
        for start in range(0, len(body), 1000):
            await response.write(body[start : start + 1000])
        return response

    async with asking(long) as client:
        pages = [page async for page in client.pages("/api/v1/pods", params={"fieldSelector": "a=b"}, messages=PODS)]
    assert [pod.metadata.name for page in pages for pod in page.items] == [f"p{number}" for number in range(500)]
    assert {page.resource_version for page in pages} == {"9"}
    assert asked == [
        {"fieldSelector": "a=b", "limit": "100"},
        {"fieldSelector": "a=b", "resourceVersion": "7", "resourceVersionMatch": "NotOlderThan"},
    ]


async def test_a_long_list_that_has_become_empty_is_one_page_with_its_version() -> None:
    async def emptied(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=pods_message("p0", more="next") if "limit" in request.query else pods_message(version="9"))

    async with asking(emptied) as client:
        assert [page async for page in client.pages("/x", messages=PODS)] == [Page(items=(), resource_version="9")]


def empty_without_version() -> web.Response:
    return web.Response(body=pods_message(version=""))


def too_new() -> web.Response:
    return refusal(504)


def in_json() -> web.Response:
    return listing(range(2))


def cut_off() -> web.Response:
    return web.Response(body=pods_message("p0", "p1")[:-5])


def not_utf_8() -> web.Response:
    return web.Response(body=pods_message("p0", "p1").replace(b"p1", b"\xff\xff"))


def only_a_part() -> web.Response:
    return web.Response(body=pods_message("p0", more="next"))


def without_version() -> web.Response:
    return web.Response(body=pods_message("p0", "p1", version=""))


@pytest.mark.parametrize("answer", [too_new, in_json, cut_off, not_utf_8, only_a_part, without_version, empty_without_version])
async def test_a_long_list_that_does_not_come_as_one_response_is_read_in_pages(answer: Callable[[], web.Response]) -> None:
    asked: list[str] = []

    async def paged(request: web.BaseRequest) -> web.StreamResponse:
        limit, token = request.query.get("limit", ""), request.query.get("continue", "")
        asked.append(f"{limit} {token}")
        if not limit:
            return answer()
        return web.Response(body=pods_message("p1") if token else pods_message("p0", more="next"))

    async with asking(paged) as client:
        pages = [page async for page in client.pages("/x", messages=PODS)]
    assert [pod.metadata.name for page in pages[-2:] for pod in page.items] == ["p0", "p1"]
    assert asked == ["100 ", " ", "1000 ", "1000 next"]


async def test_a_long_list_of_a_server_without_protobuf_is_read_in_pages() -> None:
    asked: list[str] = []

    async def only_json(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.query["limit"])
        return listing(range(1, 2)) if "continue" in request.query else listing(range(1), more="next")

    async with asking(only_json) as client:
        assert names([page async for page in client.pages("/x", messages=PODS)]) == ["p0", "p1"]
    assert asked == ["100", "1000", "1000"]


async def test_a_server_without_protobuf_answers_in_json() -> None:
    async def only_json(request: web.BaseRequest) -> web.StreamResponse:
        return listing(range(2))

    async with asking(only_json) as client:
        assert names([page async for page in client.pages("/x", messages=PODS)]) == ["p0", "p1"]


async def test_a_page_that_cannot_be_read_in_protobuf_is_read_in_json() -> None:
    """A user can store text that is not UTF-8, by a request in protobuf; in JSON the API server replaces it."""
    asked: list[tuple[str, bool]] = []

    async def damaged(request: web.BaseRequest) -> web.StreamResponse:
        accepts_json_only = request.headers["Accept"] == "application/json"
        asked.append((request.query.get("continue", ""), accepts_json_only))
        if "continue" not in request.query and "limit" in request.query:
            return web.Response(body=pods_message("p0", more="next"))
        return listing(range(1, 2)) if accepts_json_only else not_utf_8()

    async with asking(damaged) as client:
        first, second = [page async for page in client.pages("/x", messages=PODS)]
    assert [pod.metadata.name for pod in first.items] == ["p0"]
    assert names([second]) == ["p1"]
    assert asked == [("", False), ("", False), ("", False), ("next", False), ("next", True)]


async def test_a_list_in_protobuf_without_a_version_is_a_bad_answer() -> None:
    async def empty(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=PROTOBUF_MAGIC)

    async with asking(empty) as client:
        with pytest.raises(BadAnswer):
            _ = [page async for page in client.pages("/x", messages=PODS)]


async def test_null_items_are_an_empty_list() -> None:
    async def empty(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": None})

    async with asking(empty) as client:
        assert [page async for page in client.pages("/x")] == [Page(items=[], resource_version="7")]


async def test_a_continue_token_that_is_too_old_raises_gone() -> None:
    async def expired(request: web.BaseRequest) -> web.StreamResponse:
        return refusal(410, "Expired") if "continue" in request.query else listing(range(1), more="old")

    async with asking(expired) as client:
        seen, error = await until_error(client.pages("/x"))
    assert isinstance(error, Expired)
    assert names(seen) == ["p0"]


@pytest.mark.parametrize("body", [b"<html>please log in</html>", b"[]", b'{"items":[]}', b'{"metadata":{},"items":[]}'])
async def test_a_response_that_is_no_list_is_a_bad_answer(body: bytes) -> None:
    async def page(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body)

    async with asking(page) as client:
        with pytest.raises(BadAnswer):
            _ = [page async for page in client.pages("/x")]


async def test_a_conflict_while_many_ask_hurts_only_the_one() -> None:
    async def odd(request: web.BaseRequest) -> web.StreamResponse:
        return refusal(409) if request.path == "/1" else web.Response(text="ok")

    async with asking(odd) as client:
        answers = await asyncio.gather(
            *(client.request("POST", f"/{number}", body=b"") for number in range(3)), return_exceptions=True
        )
    assert [type(answer) for answer in answers] == [bytes, Conflict, bytes]


# Through a proxy


@asynccontextmanager
async def proxying(asked: list[str]) -> AsyncIterator[str]:
    """A proxy that records the first line of each connection. CONNECT opens a tunnel; a plain request gets a response."""
    pipes: set[asyncio.Task[None]] = set()

    async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
        sink.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(head.splitlines()[0])
        if not head.startswith("CONNECT "):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nway")
            writer.close()
            return
        port = head.split()[1].rpartition(":")[2]
        back, forth = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        for task in (asyncio.create_task(pipe(reader, forth)), asyncio.create_task(pipe(back, writer))):
            pipes.add(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*pipes, return_exceptions=True)


async def test_https_uses_the_proxys_tunnel(tmp_path: Path) -> None:
    """The proxy resolves the name; TLS is with the API server, under tls-server-name."""

    async def ok(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="through")

    ca, asked = Authority(), list[str]()
    async with serving(ok, tls=ca.server(tmp_path, "kubernetes")) as url, proxying(asked) as proxy:
        port = url.rpartition(":")[2]
        cluster = {
            "server": f"https://api.invalid:{port}",
            "certificate-authority-data": b64(ca.pem),
            "tls-server-name": "kubernetes",
            "proxy-url": proxy,
        }
        async with client_of(load(kubeconfigs.write(tmp_path / "config", cluster=cluster), environ={})) as client:
            assert await client.request("GET", "/") == b"through"
    assert asked == [f"CONNECT api.invalid:{port} HTTP/1.1"]


async def test_http_is_forwarded_by_the_proxy() -> None:
    asked: list[str] = []
    async with proxying(asked) as proxy, client_of(Cluster("http://api.invalid:8080", proxy_url=proxy)) as client:
        assert await client.request("GET", "/x") == b"way"
    assert asked == ["GET http://api.invalid:8080/x HTTP/1.1"]
