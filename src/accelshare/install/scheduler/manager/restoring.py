"""Everything back on every control-plane node: asked for on the board, waited for, and told line by line.

Belongs here: asking and waiting. Never: touching a host; each node's caretaker does that.
"""

import asyncio
import time
from collections.abc import Callable

from accelshare.install.errors import InstallError
from accelshare.install.scheduler.manager import state_configmap as boards
from accelshare.install.scheduler.manager.state_configmap import StateConfigMap
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, KubeError
from accelshare.kube.leases import Lease
from accelshare.kube.named_data import Place

Say = Callable[[str], None]
_EVERY_S = 0.5


async def restore_all(client: Client, place: Place, lease: Lease, *, limit_s: float, say: Say) -> None:
    """Return when every node that has a caretaker says that it is restored; raise in words if one cannot."""
    state_map = await _ask(client, place)
    if state_map is None:
        say(f"there is no {place}: nothing was put in")
        return
    if not state_map.states:
        say(f"{place} names no node: nothing was put in")
    deadline = time.monotonic() + limit_s
    told: dict[str, str] = {}
    silence = ""  # why the API server did not answer lately; it may come back, as the managers hope too
    while True:
        for node, state in sorted(state_map.states.items()):
            if told.get(node) != state:
                say(f"{node}: {state}")
                told[node] = state
        open_nodes = {node: state for node, state in state_map.states.items() if state != boards.RESTORED}
        if not open_nodes:
            await lease.remove()
            return
        if all(map(boards.has_failed, open_nodes.values())):
            raise InstallError(f"not restored on {', '.join(sorted(open_nodes))}; {_help(place, min(open_nodes))}")
        if time.monotonic() >= deadline:
            raise InstallError(
                f"not restored within {limit_s:g} s on {', '.join(sorted(open_nodes))}: "
                f"{silence or 'is the manager running there?'} {_help(place, min(open_nodes))}"
            )
        await asyncio.sleep(_EVERY_S)
        try:
            again = await boards.read(client, place)
        except KubeError as error:
            silence = f"{error};"
            continue
        silence = ""
        if again is None:
            raise InstallError(f"{place} is gone, so that nobody can say how the nodes stand")
        state_map = again


async def _ask(client: Client, place: Place) -> StateConfigMap | None:
    while True:
        state_map = await boards.read(client, place)
        if state_map is None:
            return None
        try:
            return await boards.ask_to_restore(client, place, state_map)
        except Conflict:
            continue  # a node has just told something


def _help(place: Place, node: str) -> str:
    return (
        "`accelshare scheduler-config restore` on that machine does it by hand; if it is gone for good, take its line off: "
        f'kubectl -n {place.namespace} patch configmap {place.name} --type merge -p \'{{"data":{{"node.{node}":null}}}}\''
    )
