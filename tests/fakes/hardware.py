"""The cards of a fake host: the data file of the fake library and tool.

Belongs here: writing that file, and the options that point a driver at the fakes. Never: what a driver should find.
"""

import asyncio
import contextlib
import fcntl
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from accelshare.vendors.drivers.driver import Driver, Health, HostCard, Options, Roots

PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Hardware:
    """One vendor's fakes in a folder of their own, with the host's trees beside them."""

    folder: Path

    @classmethod
    def copied(cls, built: Path, into: Path) -> "Hardware":
        """A copy, so that no test shares a loaded library with another."""
        shutil.copytree(built, into, dirs_exist_ok=True)
        return cls(into)

    def has(self, *cards: Mapping[str, object], **settings: object) -> None:
        """From now on the machine has these cards; settings are `init`, `hang` and `crash`."""
        lines = [f"{key}={value}" for key, value in settings.items()]
        lines += ["card " + ", ".join(f"{key}={value}" for key, value in card.items()) for card in cards]
        fresh = self.folder / "cards.fresh"
        fresh.write_text("\n".join(lines) + "\n", encoding="utf-8")
        fresh.rename(self.folder / "cards")

    def xid(self, uuid: str, number: int) -> None:
        """The card reports an XID; `?` is a card that NVML cannot name."""
        fresh = self.folder / "xids.fresh"
        fresh.write_text(f"{uuid} {number}\n", encoding="utf-8")
        fresh.rename(self.folder / "xids")

    def runs(self, *processes: tuple[str, int, int, int], type: str = "C") -> None:
        """From now on these processes use the cards: uuid, pid, MiB (-1: not available) and percent (-1: none) of each."""
        fresh = self.folder / "processes.fresh"
        lines = (f"{uuid} {pid} {mib} {percent} {type}\n" for uuid, pid, mib, percent in processes)
        fresh.write_text("".join(lines), encoding="utf-8")
        fresh.rename(self.folder / "processes")

    def limits(self) -> str:
        """The memory limits that processes have set, one line each; read while no process writes them."""
        with contextlib.suppress(FileNotFoundError), (self.folder / "limits").open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            return file.read()
        return ""

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def tool(self, name: str, script: str) -> str:
        """A tool of the test's own making, run by sh."""
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        file.chmod(0o755)
        return str(file)

    def prints(self, name: str, text: str, *, code: int = 0) -> str:
        """A tool that prints this text, whatever it is asked."""
        (self.folder / f"{name}.text").write_text(text, encoding="utf-8")
        return self.tool(name, f"cat '{self.folder / name}.text'; exit {code}")

    def tree(self, path: str, text: str) -> None:
        """A file below this machine's dev, proc or sys."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def options(
        self,
        *,
        libraries: tuple[str, ...] = ("/nowhere/lib.so",),
        tools: tuple[str, ...] = ("/nowhere/tool",),
        timeout_s: float = 10.0,
    ) -> Options:
        roots = Roots(dev=self.folder / "dev", proc=self.folder / "proc", sys=self.folder / "sys")
        return Options(roots=roots, libraries=libraries, tools=tools, timeout_s=timeout_s, every_s=0.01)


class Watching:
    """A watch of these cards, whose next change is awaited with patience and no longer."""

    def __init__(self, driver: Driver, cards: list[HostCard]) -> None:
        self._changes: AsyncIterator[Health] = driver.watch_health(cards)

    async def next(self) -> Health:
        async with asyncio.timeout(PATIENCE_S):
            return await anext(self._changes)

    async def __aenter__(self) -> "Watching":
        return self

    async def __aexit__(self, *_: object) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._changes.aclose()  # type: ignore[attr-defined]


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
