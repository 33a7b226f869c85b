"""The synchronous client on real sockets: TLS, pages, gzip, retries, proxies, and every failure with a message."""

import gzip
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from accelshare.kube.config import Cluster
from accelshare.kube.credentials import Presented, static_token
from accelshare.kube.errors import BadAnswer, ConfigError, Forbidden, NotFound, TooManyRequests, Unauthorized, Unreachable
from accelshare.kube.sync_client import SyncClient
from accelshare.kube.tls import Pem, Tls
from tests.unit.kube.pki import Authority

Answer = tuple[int, dict[str, str], bytes]


class Server(ThreadingHTTPServer):
    """Gives prepared answers, and records the requests."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str, dict[str, str]], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.connections = 0

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.path, headers))
        status, extra, body = self.server.answer(self.path, headers)
        self.send_response(status)
        for name, value in extra.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(answer: Callable[[str, dict[str, str]], Answer], tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    with Server(answer) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def asking(
    answer: Callable[[str, dict[str, str]], Answer], **cluster: object
) -> Iterator[tuple[SyncClient, Server, list[float]]]:
    naps: list[float] = []
    with serving(answer) as server:
        here = Cluster(f"http://127.0.0.1:{server.port}", **cluster)  # type: ignore[arg-type]
        with SyncClient(here, user_agent="test/1", sleep=naps.append) as client:
            yield client, server, naps


def ok(value: object) -> Answer:
    return 200, {}, json.dumps(value).encode()


def status(code: int, message: str = "no", **headers: str) -> Answer:
    return code, headers, json.dumps({"kind": "Status", "code": code, "reason": "R", "message": message}).encode()


def test_a_request_has_a_user_agent_and_keeps_the_connection() -> None:
    with asking(lambda path, _: ok(path), credentials=static_token("secret")) as (client, server, _):
        assert client.get("/a", {"x": "1 2"}) == b'"/a?x=1+2"'
        assert client.get("/b") == b'"/b"'
        assert server.connections == 1
        headers = server.asked[0][1]
        assert (headers["authorization"], headers["user-agent"]) == ("Bearer secret", "test/1")


def test_a_list_is_read_to_its_last_page() -> None:
    def answer(path: str, _: dict[str, str]) -> Answer:
        more = "continue=tok%2Fen" in path
        return ok({"metadata": {} if more else {"continue": "tok/en"}, "items": [{"second": 2}] if more else [{"first": 1}]})

    with asking(answer) as (client, server, _):
        assert [json.loads(bytes(raw)) for raw in client.items("/list", {"fieldSelector": "a!=b"}, limit=1)] == [
            {"first": 1},
            {"second": 2},
        ]
        assert [path for path, _ in server.asked] == [
            "/list?fieldSelector=a%21%3Db&limit=1",
            "/list?fieldSelector=a%21%3Db&limit=1&continue=tok%2Fen",
        ]


def test_a_compressed_answer_is_read() -> None:
    with asking(lambda *_: (200, {"Content-Encoding": "gzip"}, gzip.compress(b"[1]"))) as (client, _, _):
        assert client.get("/x") == b"[1]"
    with (
        asking(lambda *_: (200, {"Content-Encoding": "gzip"}, b"not gzip")) as (client, _, _),
        pytest.raises(BadAnswer, match="not the gzip"),
    ):
        client.get("/x")


@pytest.mark.parametrize(("code", "kind"), [(403, Forbidden), (404, NotFound), (401, Unauthorized)])
def test_a_refused_request_is_not_repeated(code: int, kind: type[Exception]) -> None:
    with asking(lambda *_: status(code, "because")) as (client, server, naps):
        with pytest.raises(kind, match="because"):
            client.get("/x")
        assert len(server.asked) == (2 if code == 401 else 1), "a 401 may be a token that has just been renewed"
        assert naps == []


def test_a_busy_server_is_retried_after_the_time_it_requests() -> None:
    answers = [status(429, **{"Retry-After": "2"}), status(503), ok(1)]
    with asking(lambda *_: answers.pop(0)) as (client, _, naps):
        assert client.get("/x") == b"1"
        assert naps == [2.0, 0.4]
    with asking(lambda *_: status(429, **{"Retry-After": "60"})) as (client, server, naps):
        with pytest.raises(TooManyRequests):
            client.get("/x")
        assert (len(server.asked), naps) == (3, [5.0, 5.0])


def test_a_token_that_was_refused_is_renewed_once() -> None:
    class Renewing:
        at_hand = True

        def __init__(self) -> None:
            self.word = "old"

        def present(self) -> Presented:
            return Presented(f"Bearer {self.word}")

        def refused(self, _: Presented) -> None:
            self.word = "new"

    def answer(_: str, headers: dict[str, str]) -> Answer:
        return ok(1) if headers["authorization"] == "Bearer new" else status(401)

    with asking(answer, credentials=Renewing()) as (client, _, _):
        assert client.get("/x") == b"1"


def test_a_server_that_is_no_api_server_is_reported() -> None:
    with asking(lambda *_: (200, {}, b"<html>login</html>")) as (client, _, _), pytest.raises(BadAnswer, match="not a list"):
        list(client.items("/x"))


def test_an_unreachable_server_is_reported_at_once() -> None:
    naps: list[float] = []
    with SyncClient(Cluster("http://127.0.0.1:1"), user_agent="t", sleep=naps.append) as client:
        with pytest.raises(Unreachable, match=r"GET http://127\.0\.0\.1:1/x: Connection refused"):
            client.get("/x")
        assert naps == []


def test_a_connection_that_was_closed_meanwhile_is_opened_again() -> None:
    with asking(lambda *_: ok(1)) as (client, server, _):
        client.get("/x")
        assert client._connection is not None
        assert client._connection.sock is not None
        client._connection.sock.shutdown(2)
        assert client.get("/x") == b"1"
        assert server.connections == 2


def test_the_path_of_the_servers_address_is_kept() -> None:
    with serving(lambda path, _: ok(path)) as server:
        here = Cluster(f"http://127.0.0.1:{server.port}/k8s/clusters/c-1")
        with SyncClient(here, user_agent="t") as client:
            assert client.get("/api/v1/nodes") == b'"/k8s/clusters/c-1/api/v1/nodes"'


def test_a_proxy_receives_the_whole_url() -> None:
    with serving(lambda path, _: ok(path)) as proxy:
        here = Cluster("http://api.example:8080", proxy_url=f"http://127.0.0.1:{proxy.port}")
        with SyncClient(here, user_agent="t") as client:
            assert client.get("/api/v1/nodes") == b'"http://api.example:8080/api/v1/nodes"'
    with (
        SyncClient(Cluster("http://api.example", proxy_url="https://proxy.example"), user_agent="t") as client,
        pytest.raises(ConfigError, match="it must be http://"),
    ):
        client.get("/x")


def test_tls_with_a_client_certificate_and_a_name_that_is_not_the_address(tmp_path: Path) -> None:
    authority = Authority()
    me = authority.issue("me")
    with serving(lambda path, _: ok(path), tls=authority.server(tmp_path, "api.internal", clients=authority)) as server:
        address = f"https://127.0.0.1:{server.port}"
        ca, chain, key = (Pem(name, inline=pem) for name, pem in (("ca", authority.pem), ("c", me.chain_pem), ("k", me.key_pem)))
        tls = Tls(ca=ca, certificate=chain, key=key, server_name="api.internal")
        with SyncClient(Cluster(address, tls=tls), user_agent="t") as client:
            assert client.get("/x") == b'"/x"'
        with (
            SyncClient(Cluster(address, tls=Tls(ca=ca, certificate=chain, key=key)), user_agent="t") as client,
            pytest.raises(Unreachable, match="its certificate is not trusted: IP address mismatch"),
        ):
            client.get("/x")


def test_a_proxy_opens_a_tunnel_to_a_server_behind_tls() -> None:
    """CONNECT with the proxy's own password; the tunnel is refused here, and the message states it."""
    seen: list[bytes] = []

    def refuse() -> None:
        for _ in range(2):  # the request is repeated once, as after any lost connection
            connection, _address = listening.accept()
            with connection:
                seen.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=refuse)
        thread.start()
        proxy = f"http://me:pass%20word@127.0.0.1:{listening.getsockname()[1]}"
        with (
            SyncClient(Cluster("https://api.example:6443", proxy_url=proxy), user_agent="t") as client,
            pytest.raises(Unreachable, match="Tunnel connection failed: 403 Forbidden"),
        ):
            client.get("/x")
        thread.join(10)
    assert seen[0].startswith(b"CONNECT api.example:6443 HTTP/1")
    assert b"Proxy-Authorization: Basic bWU6cGFzcyB3b3Jk\r\n" in seen[0]
