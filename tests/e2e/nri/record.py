"""`python -m tests.e2e.nri.record`, as root: records a real containerd's NRI traffic again, for the contract tests to replay."""

import asyncio
import contextlib
import tempfile
from pathlib import Path

from accelshare.agent.nri.protocol.connection import serve
from accelshare.agent.nri.protocol.plugin import EventSelector, creation_and_start
from cluster.versions import CONTAINERD_VERSION
from tests.contract.agent.nri import recording
from tests.contract.agent.nri.cards import Cards
from tests.contract.agent.nri.plugins import creation_and_validation
from tests.e2e.nri.containerd_alone import IMAGE, ContainerdAlone
from tests.e2e.nri.cri import Cri, CriError


async def record(containerd: ContainerdAlone, proxy: Path, select_events: EventSelector) -> list[tuple[str, bytes]]:
    """Record a session: two containers exist; one is created and started, one refused, one fails by a bug."""
    turns: list[tuple[str, bytes]] = []
    connected = asyncio.Event()

    async def copy(who: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            turns.append((who, data))
            writer.write(data)
        writer.close()

    async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        runtime_reader, runtime_writer = await asyncio.open_unix_connection(str(containerd.nri_socket))
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(copy(recording.PLUGIN, reader, runtime_writer), copy(recording.RUNTIME, runtime_reader, writer))

    async with await asyncio.start_unix_server(between, str(proxy)):
        plugin = asyncio.create_task(
            serve(proxy, "accelshare", 10, Cards(), select_events=select_events, on_connected=lambda *_: connected.set())
        )
        await connected.wait()
        assert containerd.cri is not None
        await asyncio.to_thread(_use, containerd.cri, containerd.cgroup)
        plugin.cancel()
        await asyncio.gather(plugin, return_exceptions=True)
    return turns


def _use(cri: Cri, cgroup: str) -> None:
    pod = cri.run_pod("later", cgroup=cgroup, annotations={"accelshare.io/card": "0"})
    cri.start(cri.create(pod, "train", image=IMAGE, env={"CARD": "7", "MODE": "fast"}))
    for name in ("refused", "broken"):
        with contextlib.suppress(CriError):
            cri.create(pod, name, image=IMAGE)


def main() -> None:
    for select_events, name in ((creation_and_start, ""), (creation_and_validation, recording.VALIDATED)):
        recording.write(recording.RECORDED / f"containerd-{CONTAINERD_VERSION}{name}.txt", recorded(select_events))


def recorded(select_events: EventSelector) -> list[tuple[str, bytes]]:
    with ContainerdAlone() as containerd, tempfile.TemporaryDirectory() as directory:
        assert containerd.cri is not None
        pod = containerd.cri.run_pod("before", cgroup=containerd.cgroup)
        for name in ("one", "two"):
            containerd.cri.start(containerd.cri.create(pod, name, image=IMAGE))
        return asyncio.run(record(containerd, Path(directory) / "proxy.sock", select_events))


if __name__ == "__main__":
    main()
