"""The board that all caretakers read and write: one ConfigMap, with what is wanted and how each node stands.

Belongs here: its keys and words. Never: what a node should do about them.

    wanted: applied                      or `restored`; written by the chart and by `manage --restore-all`
    node.cp-1: applied                   waiting, applying, applied, restoring, restored, or `failed: why`
    attempt.cp-1: 5f0c…                  what failed there, so that the same is not tried again and again

The ConfigMap is never created here: where there is none, nothing is wanted, and nobody touches a scheduler.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from accelshare.kube import named_data
from accelshare.kube.client import Client
from accelshare.kube.named_data import Place, Stored

WANTED: Final = "wanted"
APPLIED: Final = "applied"
RESTORED: Final = "restored"
APPLYING: Final = "applying"
RESTORING: Final = "restoring"
WAITING: Final = "waiting"
FAILED: Final = "failed: "
_NODE: Final = "node."
_ATTEMPT: Final = "attempt."
# All nodes share one object of at most 1 MiB, and a person has to read it.
_LONGEST: Final = 4000


@dataclass(frozen=True, slots=True)
class StateConfigMap:
    """One reading of it."""

    wanted: str
    states: Mapping[str, str]  # by node
    attempts: Mapping[str, str]
    version: str
    uid: str

    def in_the_way_of(self, node: str) -> list[str]:
        """Nodes that failed, or that ended in the middle: asked by whoever has the turn, so that nobody else can be at work."""
        return sorted(name for name, state in self.states.items() if name != node and (has_failed(state) or state == APPLYING))


def has_failed(state: str) -> bool:
    return state.startswith(FAILED)


def failed(why: str) -> str:
    text = f"{FAILED}{why}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


async def read(client: Client, place: Place) -> StateConfigMap | None:
    found = await named_data.read(client, place)
    return None if found is None else _state_map(found)


async def tell(
    client: Client, place: Place, node: str, state: str, *, attempt: str = "", version: str | None = None
) -> StateConfigMap:
    """How this node stands. With a version: Conflict if anything on the board has changed since."""
    changes = {f"{_NODE}{node}": state, f"{_ATTEMPT}{node}": attempt or None}
    return _state_map(await named_data.change(client, place, changes, version=version))


async def ask_to_restore(client: Client, place: Place, state_map: StateConfigMap) -> StateConfigMap:
    """Want everything back as it was. A failure of before says nothing about that, so it is wiped."""
    changes: dict[str, str | None] = {WANTED: RESTORED}
    changes |= {f"{_NODE}{node}": WAITING for node, state in state_map.states.items() if state != RESTORED}
    return _state_map(await named_data.change(client, place, changes, version=state_map.version))


def _state_map(found: Stored) -> StateConfigMap:
    def named(prefix: str) -> dict[str, str]:
        return {key.removeprefix(prefix): value for key, value in found.data.items() if key.startswith(prefix)}

    return StateConfigMap(found.data.get(WANTED, APPLIED), named(_NODE), named(_ATTEMPT), found.version, found.uid)
