"""Any bytes of a peer get an answer or end the connection; nothing hangs, and no other exception is raised."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from socket import socketpair

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelshare.agent.nri.protocol import connection, mux
from accelshare.agent.nri.protocol.errors import GoneError, WireError
from accelshare.agent.nri.protocol.link import Link
from accelshare.agent.nri.protocol.messages import PLUGIN_SERVICE, decode
from accelshare.agent.nri.protocol.nri_pb2 import Container, PodSandbox
from accelshare.agent.nri.protocol.plugin import IGNORED_CALLS, NriPlugin
from accelshare.agent.nri.protocol.ttrpc import Packets, PacketType, RequestHandler, packet
from accelshare.agent.nri.protocol.ttrpc_pb2 import Request, Response
from accelshare.testing.fake_runtime import FakeRuntime
from tests.contract.agent.nri import recording
from tests.contract.agent.nri.cards import Cards
from tests.contract.agent.nri.plugins import WAIT_S, Plugins

RUNTIME_BYTES = b"".join(sent for who, sent in recording.read(next(recording.RECORDED.glob("*.txt"))) if who == recording.RUNTIME)
METHODS = ("Configure", "Synchronize", "CreateContainer", "StartContainer", "StateChange", "Dance", *IGNORED_CALLS)


def receive(chunks: Sequence[bytes]) -> None:
    """The runtime sends this, and no more. WireError if the plugin disconnects before."""

    async def play() -> None:
        link, _, writer = await linked(NriPlugin("accelshare", Cards()).answer)
        for chunk in chunks:
            writer.write(chunk)
            await asyncio.sleep(0)
        if not writer.transport.is_closing():
            writer.write_eof()
        try:
            await asyncio.wait_for(link.run(), WAIT_S)
        finally:
            writer.close()

    asyncio.run(play())


async def linked(answer: RequestHandler) -> tuple[Link, asyncio.StreamReader, asyncio.StreamWriter]:
    """A plugin's link, and the runtime's end of its socket."""
    ours, theirs = socketpair()
    link = Link(serves=mux.PLUGIN, calls=mux.RUNTIME, handler=answer)
    await asyncio.get_running_loop().create_connection(lambda: link, sock=ours)
    return (link, *await asyncio.open_connection(sock=theirs))


@settings(deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=5))
def test_any_bytes(chunks: list[bytes]) -> None:
    try:
        receive(chunks)
    except WireError:
        pass


@settings(deadline=None)
@given(st.data())
def test_a_real_runtimes_bytes_with_damage(data: st.DataObject) -> None:
    raw = bytearray(RUNTIME_BYTES)
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        receive([bytes(raw)])
    except WireError:
        pass


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(METHODS), st.binary(max_size=100)), min_size=1, max_size=8))
async def test_every_call_has_one_answer(calls: list[tuple[str, bytes]]) -> None:
    """Without an answer the runtime would go on."""
    link, reader, writer = await linked(NriPlugin("accelshare", Cards()).answer)
    for number, (method, payload) in enumerate(calls):
        request = Request(service=PLUGIN_SERVICE, method=method, payload=payload).SerializeToString()
        writer.write(mux.frames(mux.PLUGIN, packet(2 * number + 1, PacketType.REQUEST, request)))
    frames, packets = mux.Frames(), Packets()
    answers: dict[int, Response] = {}
    async with asyncio.timeout(WAIT_S):
        while len(answers) < len(calls):
            for _, content in frames.feed(await reader.read(65536)):
                answers.update({one.call: decode(Response, one.data) for one in packets.feed(content)})
    assert sorted(answers) == [2 * number + 1 for number in range(len(calls))]
    writer.close()
    await link.run()


async def test_a_peer_that_sends_garbage_is_disconnected_and_dialled_again(
    socket: Path, plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one may be a runtime."""
    monkeypatch.setattr(connection, "RETRY_S", 0.01)
    dialled = 0

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dialled
        dialled += 1
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()  # until the plugin hangs up
        writer.close()

    plugins.start(Cards())
    async with await asyncio.start_unix_server(babble, str(socket)):
        async with asyncio.timeout(WAIT_S):
            while dialled < 3:
                await asyncio.sleep(0.01)
    async with FakeRuntime(socket) as one:
        await asyncio.wait_for(one.until_plugins(), WAIT_S)
        one.run_pod(PodSandbox(id="p", name="pod", uid="uid", namespace="ml"))
        assert (await one.create_container("p", Container(id="c", name="train"))).devices


async def test_a_runtime_that_sends_the_wrong_kind_of_packet_is_disconnected() -> None:
    for stream, kind in ((mux.PLUGIN, PacketType.RESPONSE), (mux.RUNTIME, PacketType.REQUEST), (mux.PLUGIN, PacketType.DATA)):
        link, _, writer = await linked(NriPlugin("a", Cards()).answer)
        writer.write(mux.frames(stream, packet(1, kind, b"")))
        with pytest.raises(WireError, match=f"packet of type {kind.value} on stream {stream}"):
            await asyncio.wait_for(link.run(), WAIT_S)
        with pytest.raises((GoneError, WireError)):
            await link.call("s", "m", b"", timeout_s=WAIT_S)
        writer.close()


async def test_a_peer_that_calls_and_never_reads_is_not_read_either() -> None:
    """Otherwise its answers would use up memory."""
    asked = 0

    def answer(_request: Request) -> bytes:
        nonlocal asked
        asked += 1
        return bytes(100_000)

    link, reader, writer = await linked(answer)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    call = mux.frames(
        mux.PLUGIN, packet(1, PacketType.REQUEST, Request(service=PLUGIN_SERVICE, method="CreateContainer").SerializeToString())
    )
    writer.write(call * 500)
    for _ in range(2000):  # turns of the one loop on which all of this happens
        await asyncio.sleep(0)
    assert 0 < asked < 50
    writer.transport.resume_reading()  # type: ignore[attr-defined]
    async with asyncio.timeout(WAIT_S):
        while asked < 500:
            await reader.read(65536)
    writer.close()
    await asyncio.wait_for(link.run(), WAIT_S)


async def test_frames_of_unknown_streams_are_dropped() -> None:
    link, reader, writer = await linked(NriPlugin("a", Cards()).answer)
    request = Request(service=PLUGIN_SERVICE, method="Shutdown").SerializeToString()
    writer.write(mux.frames(9, b"noise") + mux.frames(mux.PLUGIN, packet(1, PacketType.REQUEST, request)))
    assert await asyncio.wait_for(reader.readexactly(18), WAIT_S) == mux.frames(mux.PLUGIN, packet(1, PacketType.RESPONSE, b""))
    writer.close()
    await link.run()
