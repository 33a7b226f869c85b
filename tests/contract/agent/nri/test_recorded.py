"""Recorded bytes of a real containerd, sent to the plugin again: it answers the same bytes."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from accelshare.agent.limits.cgroups import container_group, pod_group
from accelshare.agent.nri.protocol.messages import environment
from accelshare.agent.nri.protocol.plugin import creation_and_start
from tests.contract.agent.nri import recording
from tests.contract.agent.nri.cards import Cards
from tests.contract.agent.nri.plugins import WAIT_S, Plugins, creation_and_validation

RECORDINGS = sorted(recording.RECORDED.glob("*.txt"))


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.stem)
async def test_the_plugin_answers_a_real_runtime_as_recorded(file: Path, socket: Path, plugins: Plugins) -> None:
    turns = recording.read(file)
    played: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for who, sent in turns:
                if who == recording.RUNTIME:
                    writer.write(sent)
                else:
                    assert await reader.readexactly(len(sent)) == sent
            played.set_result(None)
        except (AssertionError, asyncio.IncompleteReadError) as error:
            if not played.done():
                played.set_exception(error)
        finally:
            writer.close()

    cards = Cards()
    validated = file.stem.endswith(recording.VALIDATED)
    async with await asyncio.start_unix_server(play, str(socket)):
        events = plugins.start(cards, select_events=creation_and_validation if validated else creation_and_start)
        await asyncio.wait_for(played, WAIT_S)
        assert await events.first() == "connected containerd v2.4.2"
        plugins.tasks[0].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await plugins.tasks[0]

    assert cards.seen[0][0] == ("before",)
    assert sorted(cards.seen[0][1]) == ["one", "two"]
    train, refused, broken = cards.created
    assert (train.name, refused.name, broken.name) == ("train", "refused", "broken")
    assert environment(train)["CARD"] == "7"
    # ContainerLimits need the cgroups of container and pod, which the runtime names before it makes the container.
    assert pod_group(cards.pod_groups[0]) == container_group(train.linux.cgroups_path).parent
    assert container_group(train.linux.cgroups_path).name == train.id
    if validated:
        assert cards.started == []
        return
    assert container_group(cards.started[0].linux.cgroups_path).name == cards.started[0].id
    assert environment(cards.started[0])["CARD"] == "0", "a container is shown at its start as we made it"
    assert [device.path for device in cards.started[0].linux.devices] == ["/dev/card0"]


def test_there_are_recordings() -> None:
    assert RECORDINGS
