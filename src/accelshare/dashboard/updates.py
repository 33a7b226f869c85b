"""What changed between snapshots, for readers that each have seen another one.

Belongs here: numbering snapshots, and the message that brings a reader from any of them to the newest. Never: sockets.

There is no queue for a reader: each remembers only the number of what it has. A slow reader misses snapshots in between and still
gets everything that changed, so memory does not grow with readers.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from accelshare.dashboard.snapshot import DashboardSnapshot, encode

MOST_REMOVED: Final = 4096  # names of removed nodes that are remembered for readers that have not heard of it


class Message(Struct, frozen=True):
    """A server-sent event: `snapshot` replaces everything, `update` only what it names."""

    event: str
    id: str
    data: bytes

    def encode(self) -> bytes:
        # JSON has no line break of its own, so one data line is enough.
        return b"event: %b\nid: %b\ndata: %b\n\n" % (self.event.encode(), self.id.encode(), self.data)


class Updates:
    def __init__(self, generation: str) -> None:
        """`generation` differs between processes: a reader of another one gets the whole snapshot."""
        self._generation = generation
        self._number = 0
        self._nodes: dict[str, bytes] = {}
        self._sections: dict[str, bytes] = {}
        self._changed: dict[str, int] = {}  # node → the number of the snapshot that changed it
        self._sections_changed: dict[str, int] = {}
        self._removed: dict[str, int] = {}  # node → the number of the snapshot without it; oldest first
        self._forgotten = 0  # removals up to this number are not all remembered
        self._messages: dict[int, Message] = {}  # from which number → the message to the newest
        self._published = asyncio.Event()

    @property
    def number(self) -> int:
        """Of the newest snapshot; 0: there is none yet."""
        return self._number

    def publish(self, snapshot: DashboardSnapshot) -> bool:
        """Make this the newest snapshot; False if nothing differs from the last one."""
        nodes = [name for name, part in snapshot.nodes.items() if self._nodes.get(name) != part]
        sections = [name for name, part in snapshot.sections.items() if self._sections.get(name) != part]
        removed = self._nodes.keys() - snapshot.nodes.keys()
        if self._number and not (nodes or sections or removed):
            return False
        self._number += 1
        self._changed.update(dict.fromkeys(nodes, self._number))
        self._sections_changed.update(dict.fromkeys(sections, self._number))
        for name in nodes:
            self._removed.pop(name, None)
        for name in removed:
            del self._changed[name]
            self._removed[name] = self._number
        while len(self._removed) > MOST_REMOVED:
            name = next(iter(self._removed))
            self._forgotten = self._removed.pop(name)
        self._nodes, self._sections = dict(snapshot.nodes), dict(snapshot.sections)
        self._messages.clear()
        self._published.set()
        self._published = asyncio.Event()
        return True

    async def wait_after(self, number: int) -> None:
        """Wait until there is a newer snapshot than this one."""
        while self._number <= number:
            await self._published.wait()

    def seen_by(self, event_id: str) -> int:
        """The number of the snapshot that a reader with this last event id has; 0: none of ours."""
        generation, _, text = event_id.rpartition(".")
        if generation != self._generation or not (text.isascii() and text.isdigit() and len(text) < 20):
            return 0
        number = int(text)
        return number if self._forgotten <= number <= self._number else 0

    def message(self, number: int) -> Message:
        """What a reader of this snapshot needs to have the newest; for 0 all of it."""
        if number < self._forgotten:
            number = 0
        message = self._messages.get(number)
        if message is None:
            message = self._messages[number] = self._full() if number == 0 else self._update(number)
        return message

    def _full(self) -> Message:
        return self._message("snapshot", self._nodes.values(), self._sections, ())

    def _update(self, number: int) -> Message:
        nodes = [self._nodes[name] for name, at in self._changed.items() if at > number]
        sections = {name: self._sections[name] for name, at in self._sections_changed.items() if at > number}
        return self._message("update", nodes, sections, [name for name, at in self._removed.items() if at > number])

    def _message(self, event: str, nodes: Iterable[bytes], sections: Mapping[str, bytes], removed: Iterable[str]) -> Message:
        parts = [b'"nodes":[' + b",".join(nodes) + b"]", b'"removed":' + encode(list(removed))]
        parts += [b'"%b":%b' % (name.encode(), part) for name, part in sections.items()]
        return Message(event, f"{self._generation}.{self._number}", b"{" + b",".join(parts) + b"}")
