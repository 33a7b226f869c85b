"""One sample of a node: drivers that answer, fail and do not tell."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from accelshare.agent.usage.history import UsageHistory
from accelshare.agent.usage.sampler import HIDDEN, NOT_TOLD, UsageSampler
from accelshare.vendors.drivers.driver import CardProcess, DriverError
from accelshare.wire import usage
from accelshare.wire.usage import PodUse
from tests.unit.agent.builders import pod_store
from tests.unit.agent.usage.builders import GIB, KIND, cards, inventory, pod, uid

ID = "c" * 64


class Source:
    """A driver that answers what the test says."""

    def __init__(self, answer: Mapping[str, Sequence[CardProcess]] | Exception | None) -> None:
        self.answer = answer
        self.closed = False

    async def processes(self) -> Mapping[str, Sequence[CardProcess]] | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def close_processes(self) -> None:
        self.closed = True


class Reactions:
    """In place of OverUse."""

    def __init__(self) -> None:
        self.seen: list[list[PodUse]] = []

    async def react(self, uses: list[PodUse]) -> None:
        self.seen.append(uses)


def sampler(source: Source, proc: Path, reactions: Reactions | None = None) -> UsageSampler:
    return UsageSampler(
        "n1",
        inventory(cards()),
        pod_store(pod("a", 4, 0)),
        {KIND: source, "absent": Source(None)},
        UsageHistory(),
        reactions or Reactions(),  # type: ignore[arg-type]
        proc=proc,
        every_s=0.001,
        clock=asyncio.get_running_loop().time,
    )


def in_pod(proc: Path, pid: int, name: str) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{uid(name)}/{ID}\n")


async def test_a_sample_says_what_each_pod_uses(tmp_path: Path) -> None:
    in_pod(tmp_path, 7, "a")
    reactions = Reactions()
    sampled = sampler(Source({"id0": [CardProcess(7, GIB, 0.5), CardProcess(8, GIB, 0.1)], "id1": []}), tmp_path, reactions)
    assert sampled.latest() is None
    await sampled.sample()
    latest = sampled.latest()
    assert latest is not None
    assert [(use.name, use.used_bytes, use.utilisation) for use in latest.pods] == [("a", GIB, 0.5)]
    assert [(use.card, use.used_by_others_bytes) for use in latest.cards] == [(0, GIB), (1, 0)]
    assert latest.problems == {}
    assert reactions.seen == [list(latest.pods)]
    assert usage.decoder.decode(usage.write(latest)) == latest


async def test_a_driver_that_fails_leaves_no_old_numbers(tmp_path: Path) -> None:
    source = Source({"id0": [], "id1": []})
    sampled = sampler(source, tmp_path)
    await sampled.sample()
    for error, text in ((DriverError(["NVML: gone"]), "NVML: gone"), (ZeroDivisionError("oh"), "ZeroDivisionError: oh")):
        source.answer = error
        await sampled.sample()
        latest = sampled.latest()
        assert latest is not None
        assert (latest.pods, latest.cards) == ((), ())
        assert text in latest.problems[KIND]


async def test_a_driver_that_does_not_tell_is_named(tmp_path: Path) -> None:
    sampled = sampler(Source(None), tmp_path)
    await sampled.sample()
    latest = sampled.latest()
    assert latest is not None
    assert latest.problems == {KIND: NOT_TOLD}


async def test_an_agent_that_does_not_see_the_hosts_processes_says_so(tmp_path: Path) -> None:
    """Otherwise every pod would look idle."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026532999]")
    for process in ("self", "1"):
        (tmp_path / process).mkdir(exist_ok=True)
        (tmp_path / process / "cgroup").write_text("0::/\n")
    sampled = sampler(Source({"id0": [], "id1": []}), tmp_path)
    await sampled.sample()
    latest = sampled.latest()
    assert latest is not None
    assert (latest.pods, latest.problems) == ((), {KIND: HIDDEN})


async def test_it_samples_again_and_again_and_closes_its_drivers(tmp_path: Path) -> None:
    source, reactions = Source({"id0": [], "id1": []}), Reactions()
    running = asyncio.create_task(sampler(source, tmp_path, reactions).run())
    async with asyncio.timeout(20):
        while len(reactions.seen) < 3:
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert source.closed
