"""Compares HTTP servers and clients: our own, uvicorn, aiohttp, http.client and h2. `python -m bench.http_stacks`.

Belongs here: the same request through each of them, in turn. Never: a cluster, or what a request means.

Each server runs in a process of its own, on uvloop, and answers /cpu with the CPU seconds that it has used.
"""

import argparse
import asyncio
import importlib
import importlib.util
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from http.client import HTTPConnection
from typing import Any, Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded
from h2.settings import SettingCodes

from accelshare.http import http2_frames
from accelshare.http.http2_connection import Http2Connection
from accelshare.http.messages import Response
from accelshare.http.open_connections import OpenConnections
from bench.procfs import memory
from bench.tables import table

NODE_COUNTS: Final = (1_000, 5_000)
HTTP2_NODE_COUNTS: Final = (1, 100, 1_000)
PODS: Final = 10_000
PAGE: Final = 500
BIND: Final = b'{"apiVersion":"v1","kind":"Binding","target":{"kind":"Node","name":"node-1"}}' + b" " * 400
ANSWER: Final = b'{"NodeNames":["node-1"],"FailedNodes":{},"Error":""}'
POD: Final = b'{"metadata":{"name":"pod"},"spec":{"x":"' + b"x" * 4_600 + b'"}}'
LIST: Final = b'{"metadata":{"resourceVersion":"1"},"items":[' + b",".join([POD] * PAGE) + b"]}"
OWN: Final = "accelshare"


def answer(path: str) -> bytes:
    """What every server answers."""
    if path == "/cpu":
        return b"%f" % time.process_time()
    return LIST if path == "/pods" else ANSWER


# Servers.


async def serve_own(port: int) -> None:
    from accelshare.http.server import Server, listen

    async with Server(lambda request: Response(200, answer(request.path)), listen("127.0.0.1", port), max_body_bytes=1 << 26):
        await asyncio.Event().wait()


async def serve_uvicorn(port: int) -> None:
    uvicorn = importlib.import_module("uvicorn")  # not among our requirements: pip install uvicorn

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        body = answer(scope["path"])
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(app, port=port, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False)
    await uvicorn.Server(config).serve()


async def serve_aiohttp(port: int) -> None:
    from aiohttp import web

    async def handle(request: web.BaseRequest) -> web.Response:
        await request.read()
        return web.Response(body=answer(request.path), content_type="application/json")

    runner = web.ServerRunner(web.Server(handle, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


SERVERS: Final[dict[str, Callable[[int], Coroutine[Any, Any, None]]]] = {
    OWN: serve_own,
    "uvicorn": serve_uvicorn,
    "aiohttp": serve_aiohttp,
}


class ServerProcess:
    """One server in a process of its own, asked over one connection."""

    def __init__(self, name: str, port: int) -> None:
        self.name, self.port = name, port
        self._process = subprocess.Popen([sys.executable, "-m", "bench.http_stacks", "--serve", name, "--port", str(port)])
        self.connection = HTTPConnection("127.0.0.1", port)
        while self._process.poll() is None:
            try:
                self.first_answer_cpu_s = float(self.ask("GET", "/cpu"))
            except ConnectionRefusedError:
                self.connection.close()
                time.sleep(0.02)
            else:
                return
        raise RuntimeError(f"the server {name} ended with {self._process.returncode}")

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        self.connection.request(method, path, body, {"Content-Type": "application/json"})
        return self.connection.getresponse().read()

    def cpu_us(self, body: bytes, calls: int) -> float:
        """The server's CPU microseconds for one filter call."""
        before = float(self.ask("GET", "/cpu"))
        for _ in range(calls):
            self.ask("POST", "/filter", body)
        return (float(self.ask("GET", "/cpu")) - before) / calls * 1e6

    @property
    def rss_mb(self) -> float:
        return memory(self._process.pid).rss_mb

    def stop(self) -> None:
        self.connection.close()
        self._process.terminate()
        self._process.wait()


def measure_servers(servers: Iterable[ServerProcess], *, rounds: int, calls: int) -> str:
    bodies = {nodes: _filter_body(nodes) for nodes in NODE_COUNTS}
    cpu_us: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for nodes, body in bodies.items():
            for server in servers:
                cpu_us.setdefault((server.name, nodes), []).append(server.cpu_us(body, calls))
    rows = []
    for server in servers:
        costs = [_versus(cpu_us[server.name, nodes], cpu_us[OWN, nodes]) for nodes in NODE_COUNTS]
        rows.append((server.name, *costs, f"{server.first_answer_cpu_s * 1000:.0f}", f"{server.rss_mb:.0f}"))
    heads = [f"CPU µs a filter call, {nodes:,} names" for nodes in NODE_COUNTS]
    return table(("server", *heads, "CPU ms to the first answer", "RSS, MB"), rows)


# HTTP/2, in this process and without sockets: only reading requests and writing responses.


def http2_requests(body: bytes, calls: int) -> list[bytes]:
    """What a client sends: first its preface and a request, then the further requests of one connection."""
    client = H2Connection()
    client.initiate_connection()
    client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
    server = H2Connection(H2Configuration(client_side=False))
    server.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
    client.receive_data(server.data_to_send())
    client.outbound_flow_control_window = 2**31 - 1
    sent = []
    for stream in range(1, 2 * calls, 2):
        head = [(":method", "POST"), (":path", "/filter"), (":scheme", "https"), (":authority", "extender:12345")]
        head += [("content-type", "application/json"), ("content-length", str(len(body))), ("user-agent", "Go-http-client/2.0")]
        client.send_headers(stream, head)
        for start in range(0, len(body), 16_384):
            client.send_data(stream, body[start : start + 16_384], end_stream=start + 16_384 >= len(body))
        sent.append(client.data_to_send())
        client.receive_data(http2_answer(stream))
    return sent


def http2_answer(stream: int) -> bytes:
    """A response, so that the client's connection forgets the stream."""
    block = http2_frames.response_head(Response(200, b""))
    return http2_frames.frame(http2_frames.HEADERS, http2_frames.END_HEADERS | http2_frames.END_STREAM, stream, block)


async def own_http2(sent: list[bytes]) -> None:
    connections = OpenConnections(max_bytes=1 << 30)
    connection = Http2Connection(
        lambda request: Response(200, answer(request.path)),
        connections,
        address="",
        max_body_bytes=1 << 26,
        max_head_bytes=1 << 16,
    )
    connection.connection_made(_NoTransport())
    for data in sent:
        connection.data_received(data)


async def h2_http2(sent: list[bytes]) -> None:
    connection = H2Connection(H2Configuration(client_side=False, header_encoding=None))
    connection.initiate_connection()
    bodies: dict[int, list[bytes]] = {}
    for data in sent:
        for event in connection.receive_data(data):
            if isinstance(event, DataReceived):
                bodies.setdefault(event.stream_id, []).append(event.data)
                connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamEnded):
                b"".join(bodies.pop(event.stream_id))
                body = answer("/filter")
                head = [(":status", "200"), ("content-type", "application/json"), ("content-length", str(len(body)))]
                connection.send_headers(event.stream_id, head)
                connection.send_data(event.stream_id, body, end_stream=True)
        connection.data_to_send()


class _NoTransport(asyncio.Transport):
    def write(self, data: object) -> None: ...

    def is_closing(self) -> bool:
        return False


def measure_http2(*, rounds: int, calls: int) -> str:
    costs: dict[tuple[str, int], list[float]] = {}
    for nodes in HTTP2_NODE_COUNTS:
        sent = http2_requests(_filter_body(nodes), calls)
        for _ in range(rounds):
            for name, serve in ((OWN, own_http2), ("h2", h2_http2)):
                start = time.process_time()
                asyncio.run(serve(sent))
                costs.setdefault((name, nodes), []).append((time.process_time() - start) / calls * 1e6)
    rows = [(name, *(_versus(costs[name, nodes], costs[OWN, nodes]) for nodes in HTTP2_NODE_COUNTS)) for name in (OWN, "h2")]
    return table(("HTTP/2", *(f"CPU µs a filter call, {nodes:,} names" for nodes in HTTP2_NODE_COUNTS)), rows)


# Clients.


async def own_client(port: int, *, binds: int, pages: int) -> tuple[float, float]:
    from accelshare.kube.client import Client
    from accelshare.kube.config import Cluster

    async with Client(Cluster(f"http://127.0.0.1:{port}"), user_agent="bench") as client:
        return await _client_cost(
            lambda: client.request("POST", "/bind", body=BIND), lambda: client.request("GET", "/pods"), binds, pages
        )


async def aiohttp_client(port: int, *, binds: int, pages: int) -> tuple[float, float]:
    import aiohttp

    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as session:

        async def ask(method: str, path: str, body: bytes | None = None) -> bytes:
            async with session.request(method, path, data=body) as response:
                return await response.read()

        return await _client_cost(lambda: ask("POST", "/bind", BIND), lambda: ask("GET", "/pods"), binds, pages)


async def _client_cost(
    bind: Callable[[], Awaitable[bytes]], page: Callable[[], Awaitable[bytes]], binds: int, pages: int
) -> tuple[float, float]:
    """CPU microseconds for a bind, and CPU milliseconds for all pages of the list."""
    await bind()
    start = time.process_time()
    for _ in range(binds):
        await bind()
    between = time.process_time()
    for _ in range(pages):
        await page()
    return (between - start) / binds * 1e6, (time.process_time() - between) * 1000


async def blocking_client(port: int, *, binds: int, pages: int) -> tuple[float, float]:
    connection = HTTPConnection("127.0.0.1", port)

    async def ask(method: str, path: str, body: bytes | None = None) -> bytes:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        return connection.getresponse().read()

    return await _client_cost(lambda: ask("POST", "/bind", BIND), lambda: ask("GET", "/pods"), binds, pages)


CLIENTS: Final = {OWN: own_client, "aiohttp": aiohttp_client, "http.client": blocking_client}
_INSPECT: Final = "import accelshare.inspect_cli.command, accelshare.inspect_cli.cluster_reader"  # on http.client
IMPORTS: Final = {
    "a bare Python": "pass",
    "inspect on http.client": _INSPECT,
    "inspect, asyncio and our own client": f"{_INSPECT}, accelshare.kube.client, asyncio; asyncio.run(asyncio.sleep(0))",
    "inspect and aiohttp": f"{_INSPECT}, aiohttp, asyncio; asyncio.run(asyncio.sleep(0))",
}


def measure_clients(port: int, *, rounds: int, calls: int) -> str:
    import uvloop

    costs: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for name, client in CLIENTS.items():
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                costs.setdefault(name, []).append(runner.run(client(port, binds=calls, pages=PODS // PAGE)))
    rows = [
        (name, *(_versus([cost[part] for cost in own], [cost[part] for cost in costs[OWN]]) for part in (0, 1)))
        for name, own in costs.items()
    ]
    return table(("client", "CPU µs a bind", f"CPU ms a list of {PODS:,} pods"), rows)


def measure_imports(*, rounds: int) -> str:
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, code in IMPORTS.items():
            found.setdefault(name, []).append(_child_cpu_ms(code))
    bare = min(found["a bare Python"])
    least = {name: min(times) - bare for name, times in found.items()}
    rows = [(name, f"{cost:.0f}", f"{cost / least['inspect on http.client']:.2f}") for name, cost in least.items()]
    return table(("imports of", "CPU ms over a bare Python, least", "ratio"), rows)


def _child_cpu_ms(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def _filter_body(nodes: int) -> bytes:
    names = ",".join(f'"node-{number:05d}.example.internal"' for number in range(nodes))
    return f'{{"Pod":{{"metadata":{{"name":"p","namespace":"d","uid":"u"}}}},"NodeNames":[{names}]}}'.encode()


def _versus(costs: list[float], own: list[float]) -> str:
    """The median, and the median of the ratios to our own in the same round."""
    ratio = statistics.median(cost / base for cost, base in zip(costs, own, strict=True))
    return f"{statistics.median(costs):.0f} ({ratio:.2f} ×)"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.http_stacks", description="Compare HTTP servers and clients.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=300, help="in each round")
    parser.add_argument("--serve", choices=SERVERS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=18471, help="the first of three")
    options = parser.parse_args()
    if options.serve:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(SERVERS[options.serve](options.port))
        return
    names = [name for name in SERVERS if name == OWN or importlib.util.find_spec(name)]
    servers = [ServerProcess(name, options.port + number) for number, name in enumerate(names)]
    try:
        print(measure_servers(servers, rounds=options.rounds, calls=options.calls), end="\n\n")
        print(measure_clients(servers[0].port, rounds=options.rounds, calls=options.calls), end="\n\n")
    finally:
        for server in servers:
            server.stop()
    print(measure_http2(rounds=options.rounds, calls=options.calls), end="\n\n")
    print(measure_imports(rounds=options.rounds))


if __name__ == "__main__":
    main()
