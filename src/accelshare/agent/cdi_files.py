"""Writes the CDI files of this node's cards when the cards change, again if that failed or another program changed them, and
removes files that no pod uses.

Belongs here: which of our files are in the CDI directory. Never: what is in a file (vendors/cdi.py).

A container that restarts while the agent is away needs the file, so a file stays when the agent ends while pods use its kind.
"""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from accelshare.agent.discovery.device_inventory import DeviceInventory, VendorCards
from accelshare.vendors import cdi
from accelshare.vendors.problems import VendorError
from accelshare.vendors.profile import Profile

log = logging.getLogger(__name__)
LARGEST_FILE: Final = 4 << 20
RETRY_S: Final = 5.0
_SUFFIXES: Final = (".json", ".yaml", ".yml")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def specifications(directories: Iterable[Path]) -> list[object]:
    """The content of the CDI specifications in these directories, without files that cannot be read."""
    contents: list[object] = []
    for directory in directories:
        for file in sorted(directory.glob("*")):
            if file.suffix not in _SUFFIXES:
                continue
            try:
                with file.open("rb") as opened:
                    text = opened.read(LARGEST_FILE)
                contents.append(json.loads(text) if file.suffix == ".json" else yaml.load(text, Loader=_Loader))  # noqa: S506 – safe
            except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
                log.debug("cdi path=%s outcome=unreadable error=%r", file, str(error))
    return contents


class CdiFiles:
    def __init__(
        self, directory: Path, devices: DeviceInventory, *, exists: Callable[[str], bool], retry_s: float = RETRY_S
    ) -> None:
        self._directory = directory
        self._devices = devices
        self._exists = exists
        self._retry_s = retry_s
        self.complete = True  # no file is missing because it could not be written
        self._written: dict[Path, bytes] = {}  # as they must be

    async def run(self) -> None:
        """Write again what could not be written, say while the disk was full, and what is not there any more, say after a
        clean-up of the directory: no card may change for months.
        """
        while True:
            await asyncio.sleep(self._retry_s)
            if not self.complete or any(_read(path) != content for path, content in self._written.items()):
                self.write()

    def write(self) -> None:
        """Write a file for each kind that is given by CDI names; remove those of other kinds."""
        self.complete = True
        self._written = {}
        for kind in self._devices.kinds.values():
            rules = kind.profile.container
            if "cdi" in rules.strategy and rules.cdi.write_spec and kind.cards:
                self.complete &= self._write(kind)
            else:
                self._remove(kind.profile)

    def remove_unused(self, used: Collection[str]) -> None:
        """Remove the files of all kinds but those that pods of this node use. No other file is written again."""
        self.complete = True
        self._written = {}
        for kind in self._devices.kinds.values():
            if kind.profile.name not in used:
                self._remove(kind.profile)

    def _write(self, kind: VendorCards) -> bool:
        """False: it can be tried again."""
        cards = [card.found for card in kind.cards.values()]
        path = self._directory / cdi.file_name(kind.profile)
        try:
            content = cdi.spec(kind.profile, cards, exists=self._exists).encode()
            self._written[path] = content
            if _read(path) == content:
                return True
            self._directory.mkdir(parents=True, exist_ok=True)
            _replace(path, content)
        except (OSError, VendorError) as error:  # VendorError: something of a card is unknown, say its minor number
            log.warning("cdi kind=%s path=%s outcome=failed error=%r", kind.profile.name, path, str(error))
            return isinstance(error, VendorError)  # only another card helps
        log.info("cdi kind=%s path=%s cards=%d outcome=written", kind.profile.name, path, len(cards))
        return True

    def _remove(self, profile: Profile) -> None:
        path = self._directory / cdi.file_name(profile)
        try:
            path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("cdi kind=%s path=%s outcome=failed error=%r", profile.name, path, str(error))
            return
        log.info("cdi kind=%s path=%s outcome=removed", profile.name, path)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _replace(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_bytes(content)
        os.replace(fresh, path)  # noqa: PTH105 – atomic, also over an existing file
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
