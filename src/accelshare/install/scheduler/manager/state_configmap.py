"""The state ConfigMap of the scheduler manager: the wanted state, the state of each node, and restoring all nodes.

Belongs here: its keys and values, and waiting until every node is restored. Never: changing a host (`node_reconciler.py`).

    wanted: applied                      or `restored`; written by the chart and by `manage --restore-all`
    node.cp-1: applied                   waiting, applying, applied, restoring, restored, or `failed: why`
    attempt.cp-1: 5f0c…                  the attempt that failed there, so that it is not repeated

The ConfigMap is never created here: without one nothing is wanted, and no kube-scheduler is changed.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from accelshare.install.errors import InstallError
from accelshare.kube import named_data
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, KubeError
from accelshare.kube.leases import Lease
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
_LONGEST: Final = 4000  # all nodes share one object of at most 1 MiB
_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class StateConfigMap:
    """The ConfigMap as it was read."""

    wanted: str
    states: Mapping[str, str]  # by node
    attempts: Mapping[str, str]
    version: str
    uid: str

    def blocking(self, node: str) -> list[str]:
        """Other nodes that failed or were interrupted. Called by the holder of the Lease, so no other node is at work."""
        return sorted(name for name, state in self.states.items() if name != node and (has_failed(state) or state == APPLYING))


def has_failed(state: str) -> bool:
    return state.startswith(FAILED)


def failed(why: str) -> str:
    text = f"{FAILED}{why}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


async def read(client: Client, place: Place) -> StateConfigMap | None:
    stored = await named_data.read(client, place)
    return None if stored is None else _state_map(stored)


async def write_state(
    client: Client, place: Place, node: str, state: str, *, attempt: str = "", version: str | None = None
) -> StateConfigMap:
    """Write the state of this node. With a version: Conflict if anything in the ConfigMap has changed since."""
    changes = {f"{_NODE}{node}": state, f"{_ATTEMPT}{node}": attempt or None}
    return _state_map(await named_data.change(client, place, changes, version=version))


async def request_restore(client: Client, place: Place, state_map: StateConfigMap) -> StateConfigMap:
    """Request that every node is restored. Earlier failures do not matter for a restore, so they are cleared."""
    changes: dict[str, str | None] = {WANTED: RESTORED}
    changes |= {f"{_NODE}{node}": WAITING for node, state in state_map.states.items() if state != RESTORED}
    return _state_map(await named_data.change(client, place, changes, version=state_map.version))


def _state_map(stored: Stored) -> StateConfigMap:
    def named(prefix: str) -> dict[str, str]:
        return {key.removeprefix(prefix): value for key, value in stored.data.items() if key.startswith(prefix)}

    return StateConfigMap(stored.data.get(WANTED, APPLIED), named(_NODE), named(_ATTEMPT), stored.version, stored.uid)


async def restore_all(client: Client, place: Place, lease: Lease, *, limit_s: float, say: Callable[[str], None]) -> None:
    """Return when every node in the ConfigMap is restored. Raises InstallError if one cannot be."""
    state_map = await _request(client, place)
    if state_map is None:
        say(f"there is no {place}: nothing was applied")
        return
    if not state_map.states:
        say(f"{place} names no node: nothing was applied")
    deadline = time.monotonic() + limit_s
    printed: dict[str, str] = {}
    unreachable = ""  # the last error of the API server, which may come back
    while True:
        for node, state in sorted(state_map.states.items()):
            if printed.get(node) != state:
                say(f"{node}: {state}")
                printed[node] = state
        open_nodes = {node: state for node, state in state_map.states.items() if state != RESTORED}
        if not open_nodes:
            await lease.remove()
            return
        if all(map(has_failed, open_nodes.values())):
            raise InstallError(f"not restored on {', '.join(sorted(open_nodes))}; {_help(place, min(open_nodes))}")
        if time.monotonic() >= deadline:
            raise InstallError(
                f"not restored within {limit_s:g} s on {', '.join(sorted(open_nodes))}: "
                f"{unreachable or 'is the manager running there?'} {_help(place, min(open_nodes))}"
            )
        await asyncio.sleep(_POLL_S)
        try:
            again = await read(client, place)
        except KubeError as error:
            unreachable = f"{error};"
            continue
        unreachable = ""
        if again is None:
            raise InstallError(f"{place} was deleted, so the state of the nodes is not known")
        state_map = again


async def _request(client: Client, place: Place) -> StateConfigMap | None:
    while True:
        state_map = await read(client, place)
        if state_map is None:
            return None
        try:
            return await request_restore(client, place, state_map)
        except Conflict:
            continue  # a node has just written its state


def _help(place: Place, node: str) -> str:
    return (
        "run `accelshare scheduler-config restore` on that machine; if the machine is gone, remove its entry: "
        f'kubectl -n {place.namespace} patch configmap {place.name} --type merge -p \'{{"data":{{"node.{node}":null}}}}\''
    )
