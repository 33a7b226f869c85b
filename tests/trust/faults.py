"""The kinds of faults on the control plane. Each is one small function: it strikes, lasts, and leaves everything as it was.

Belongs here: the table of kinds. Never: when they strike (plan.py), what is right meanwhile (history.py).
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from cluster.process import Process
from tests.e2e.extender_replicas import LEASE
from tests.trust.fault_proxy import FaultProxy
from tests.trust.stage import Stage

Strike = Callable[[Stage, float, Random], Awaitable[None]]
TAKEOVER_S: Final = 8.0  # a Lease of 3 s, and the new holder's first steps
BINDING: Final = "POST .*/binding$"
REQUESTS: Final = r"^(POST|PATCH|PUT|GET) "
GARBAGE: Final = (
    "",
    "null",
    "{",
    "[" * 5000,
    '{"enflame": {"cards": [{"index": -1, "size": 99999999999, "id": "x"}]}}',
    '{"enflame": {"cards": [{"index": 0, "size": 16, "id": "same"}, {"index": 1, "size": 16, "id": "same"}]}}',
    '{"enflame": 7, "no-such-vendor": {"cards": []}}',
    "\u202e\u0007 not an inventory",
)
JUMPS_S: Final = (2.0, 60.0, 3600.0, 400 * 86400.0)
CENTURIES: Final = ("1970-01-01T00:00:00.000000Z", "2999-12-31T23:59:59.000000Z")
IN_FLIGHT: Final = ("", "*", "-1 " + "x " * 500, "\u202e\u0007")  # of no term: a forged list of pods would be believed


@dataclass(frozen=True, slots=True)
class Kind:
    strike: Strike
    part: str  # faults of one part never overlap
    weight: int = 2


# Processes.


async def _paused(process: Process, lasts_s: float) -> None:
    process.pause()
    try:
        await asyncio.sleep(lasts_s)
    finally:
        process.resume()


async def kill_holder(stage: Stage, _lasts_s: float, _chance: Random) -> None:
    stage.holder().process.kill()  # the supervisor starts it again


async def kill_standby(stage: Stage, _lasts_s: float, _chance: Random) -> None:
    stage.standby().process.kill()


async def kill_both(stage: Stage, _lasts_s: float, _chance: Random) -> None:
    for replica in stage.replicas.all:
        replica.process.kill()


async def stop_holder(stage: Stage, _lasts_s: float, _chance: Random) -> None:
    stage.holder().process.terminate()


async def pause_holder(stage: Stage, lasts_s: float, _chance: Random) -> None:
    await _paused(stage.holder().process, lasts_s)


async def pause_standby(stage: Stage, lasts_s: float, _chance: Random) -> None:
    await _paused(stage.standby().process, lasts_s)


async def kill_scheduler(stage: Stage, lasts_s: float, _chance: Random) -> None:
    assert stage.scheduler is not None
    stage.scheduler_stays_down += 1
    try:
        stage.scheduler.kill()
        await asyncio.sleep(lasts_s / 4)
    finally:
        stage.scheduler_stays_down -= 1


async def pause_scheduler(stage: Stage, lasts_s: float, _chance: Random) -> None:
    assert stage.scheduler is not None
    await _paused(stage.scheduler, lasts_s)


async def kill_api_server(stage: Stage, lasts_s: float, _chance: Random) -> None:
    stage.plane.api_server.kill()
    await asyncio.sleep(lasts_s / 2)
    await asyncio.to_thread(stage.plane.restart_api_server)


async def pause_api_server(stage: Stage, lasts_s: float, _chance: Random) -> None:
    await _paused(stage.plane.api_server, lasts_s)


async def kill_etcd(stage: Stage, lasts_s: float, _chance: Random) -> None:
    stage.plane.etcd.kill()
    await asyncio.sleep(lasts_s / 2)
    await asyncio.to_thread(stage.plane.restart_etcd)


async def pause_etcd(stage: Stage, lasts_s: float, _chance: Random) -> None:
    await _paused(stage.plane.etcd, lasts_s)


# Connections from kube-scheduler.


async def cut_scheduler(stage: Stage, lasts_s: float, _chance: Random) -> None:
    await stage.links.scheduler.cut()
    await asyncio.sleep(lasts_s / 2)
    stage.links.scheduler.restore()


async def stall_scheduler(stage: Stage, lasts_s: float, _chance: Random) -> None:
    stage.links.scheduler.stall()
    await asyncio.sleep(lasts_s)
    stage.links.scheduler.restore()
    # What stalled before stays dead, and kube-scheduler would find that out one connection after the other.
    await stage.links.scheduler.cut()
    stage.links.scheduler.restore()


async def slow_scheduler(stage: Stage, lasts_s: float, chance: Random) -> None:
    stage.links.scheduler.slow(chance.uniform(0.05, 1.5))
    await asyncio.sleep(lasts_s)
    stage.links.scheduler.restore()


async def tear_scheduler(stage: Stage, lasts_s: float, chance: Random) -> None:
    stage.links.scheduler.tear(chance.randint(1, 20))
    await asyncio.sleep(lasts_s)
    stage.links.scheduler.restore()


async def cut_scheduler_from_api(stage: Stage, lasts_s: float, _chance: Random) -> None:
    await stage.links.scheduler_to_api.cut()
    await asyncio.sleep(lasts_s / 2)
    stage.links.scheduler_to_api.restore()


async def stall_scheduler_from_api(stage: Stage, lasts_s: float, _chance: Random) -> None:
    stage.links.scheduler_to_api.stall()
    await asyncio.sleep(lasts_s)
    await stage.links.scheduler_to_api.cut()
    stage.links.scheduler_to_api.restore()


# Connections from an extender, nearly always the holder, to the API server.


@contextlib.asynccontextmanager
async def _disturbed(stage: Stage, lasts_s: float, chance: Random) -> AsyncIterator[FaultProxy]:
    replica = stage.holder() if chance.random() < 0.8 else stage.standby()
    proxy = stage.proxy_of(replica)
    try:
        yield proxy
        await asyncio.sleep(lasts_s)
    finally:
        proxy.restore()


async def cut_extender(stage: Stage, lasts_s: float, chance: Random) -> None:
    async with _disturbed(stage, lasts_s, chance) as proxy:
        proxy.cut()


async def slow_extender(stage: Stage, lasts_s: float, chance: Random) -> None:
    async with _disturbed(stage, lasts_s, chance) as proxy:
        proxy.slow(chance.uniform(0.02, 0.8))


async def tear_extender(stage: Stage, lasts_s: float, chance: Random) -> None:
    async with _disturbed(stage, lasts_s / 2, chance) as proxy:
        proxy.tear()


async def close_watches(stage: Stage, _lasts_s: float, _chance: Random) -> None:
    for proxy in stage.links.extenders.values():
        proxy.close_watches()


async def expire_watches(stage: Stage, _lasts_s: float, _chance: Random) -> None:
    for proxy in stage.links.extenders.values():
        proxy.expire_watches()


async def stall_watches(stage: Stage, lasts_s: float, chance: Random) -> None:
    async with _disturbed(stage, lasts_s, chance) as proxy:
        proxy.stall_watches()


async def fail_over_to_stale(stage: Stage, lasts_s: float, _chance: Random) -> None:
    """The standby misses binds and deletions, and must not decide before it has learned of them."""
    standby = stage.standby()
    proxy = stage.proxy_of(standby)
    proxy.stall_watches()
    try:
        await _wait_for_binds(stage, 3, limit_s=2 * lasts_s)
        stage.holder().process.kill()
        await _wait_for(standby.decides, TAKEOVER_S)
        await asyncio.sleep(1.0)
    finally:
        proxy.restore()


async def _wait_for_binds(stage: Stage, count: int, *, limit_s: float) -> None:
    enough = stage.history.binds + count

    async def bound() -> bool:
        return stage.history.binds >= enough

    await _wait_for(bound, limit_s)


async def _wait_for(condition: Callable[[], Awaitable[bool]], limit_s: float) -> None:
    """Or until the time is over, as it is when another fault keeps the condition from coming true.

    By the clock: a condition may take the end of asyncio.timeout for that of its own request, and this would wait for ever.
    """
    until = time.monotonic() + limit_s
    while not await condition() and time.monotonic() < until:
        await asyncio.sleep(0.05)


def _answers(status: int) -> Strike:
    async def strike(stage: Stage, lasts_s: float, chance: Random) -> None:
        async with _disturbed(stage, lasts_s / 2, chance) as proxy:
            proxy.respond(status, chance.choice((REQUESTS, BINDING, "GET .*/pods", "PATCH ", "(PUT|POST) .*leases")))

    return strike


async def lose_binds(stage: Stage, lasts_s: float, chance: Random) -> None:
    async with _disturbed(stage, lasts_s, chance) as proxy:
        proxy.lose(BINDING)


async def hold_binds(stage: Stage, lasts_s: float, _chance: Random) -> None:
    """Binds arrive seconds late."""
    proxy = stage.proxy_of(stage.holder())
    proxy.hold(BINDING)
    try:
        await asyncio.sleep(lasts_s)
        proxy.hold("")
        await asyncio.sleep(lasts_s / 2)
    finally:
        proxy.restore()
        proxy.release_late()


async def hold_binds_past_failover(stage: Stage, lasts_s: float, _chance: Random) -> None:
    """The extender that sent them is killed; they arrive when the other has decided about the same cards."""
    holder, standby = stage.holder(), stage.standby()
    proxy = stage.proxy_of(holder)
    proxy.hold(BINDING)

    async def held() -> bool:
        return bool(proxy.held)

    try:
        await _wait_for(held, 2 * lasts_s)
        holder.process.kill()
        proxy.hold("")
        await _wait_for(standby.decides, TAKEOVER_S)
        await _wait_for_binds(stage, 3, limit_s=lasts_s)
    finally:
        proxy.restore()
        proxy.release_late()


# Clocks, and the Lease by which extenders agree who decides.


async def jump_clock(stage: Stage, lasts_s: float, chance: Random) -> None:
    """Of one extender, forward or back, and later the whole way to the right time again."""
    replica = stage.holder() if chance.random() < 0.6 else stage.standby()
    clock = stage.clocks[replica.name]
    try:
        clock.move(chance.choice((1, -1)) * chance.choice(JUMPS_S))
        await asyncio.sleep(lasts_s)
    finally:
        clock.move(0)


async def misdate_lease(stage: Stage, lasts_s: float, chance: Random) -> None:
    """A writer with a wrong clock: the Lease seems to be renewed in another century, again and again."""
    ends = asyncio.get_running_loop().time() + lasts_s
    while asyncio.get_running_loop().time() < ends:
        await stage.patch(LEASE, {"spec": {"renewTime": chance.choice(CENTURIES), "acquireTime": chance.choice(CENTURIES)}})
        await asyncio.sleep(chance.uniform(0.2, 1.5))


async def usurp_lease(stage: Stage, _lasts_s: float, chance: Random) -> None:
    """Somebody who is no extender names itself the holder, and never renews."""
    spec = {
        "holderIdentity": "stranger",
        "renewTime": chance.choice(CENTURIES),
        "leaseDurationSeconds": chance.choice((1, 3, 5)),
        "leaseTransitions": chance.choice((0, 7, 2**31 - 1)),
    }
    notes = {"accelshare.io/binds-in-flight": chance.choice(IN_FLIGHT), "accelshare.io/settled-at-transition": "garbage"}
    await stage.patch(LEASE, {"metadata": {"annotations": notes}, "spec": spec})


async def delete_lease(stage: Stage, _lasts_s: float, _chance: Random) -> None:
    await stage.delete(LEASE)


# Objects.


async def remove_cards(stage: Stage, lasts_s: float, chance: Random) -> None:
    node = stage.some_node(chance)
    kept = [card for card in stage.cards_of(node) if chance.random() < 0.5]
    await _with_cards(stage, node, kept, lasts_s)


async def shrink_cards(stage: Stage, lasts_s: float, chance: Random) -> None:
    node = stage.some_node(chance)
    await _with_cards(stage, node, [card | {"size": 6} for card in stage.cards_of(node)], lasts_s)


async def sicken_cards(stage: Stage, lasts_s: float, chance: Random) -> None:
    node = stage.some_node(chance)
    await _with_cards(stage, node, [card | {"healthy": chance.random() < 0.5} for card in stage.cards_of(node)], lasts_s)


async def _with_cards(stage: Stage, node: str, cards: list[dict[str, object]], lasts_s: float) -> None:
    try:
        await stage.write_cards(node, cards)
        await asyncio.sleep(lasts_s)
    finally:
        await stage.write_cards(node, stage.cards_of(node))


async def garble_inventory(stage: Stage, lasts_s: float, chance: Random) -> None:
    node = stage.some_node(chance)
    try:
        await stage.write_inventory(node, chance.choice(GARBAGE))
        await asyncio.sleep(lasts_s)
    finally:
        await stage.write_cards(node, stage.cards_of(node))


async def recreate_node(stage: Stage, lasts_s: float, chance: Random) -> None:
    await stage.recreate_node(stage.some_node(chance), pause_s=lasts_s / 2)


KINDS: Final[Mapping[str, Kind]] = {
    "extender that decides: SIGKILL": Kind(kill_holder, "extenders", 4),
    "extender that stands by: SIGKILL": Kind(kill_standby, "extenders"),
    "both extenders: SIGKILL": Kind(kill_both, "extenders", 1),
    "extender that decides: SIGTERM": Kind(stop_holder, "extenders"),
    "extender that decides: SIGSTOP, SIGCONT": Kind(pause_holder, "extenders", 4),
    "extender that stands by: SIGSTOP, SIGCONT": Kind(pause_standby, "extenders", 1),
    "kube-scheduler: SIGKILL": Kind(kill_scheduler, "kube-scheduler"),
    "kube-scheduler: SIGSTOP, SIGCONT": Kind(pause_scheduler, "kube-scheduler"),
    "kube-apiserver: SIGKILL": Kind(kill_api_server, "API server"),
    "kube-apiserver: SIGSTOP, SIGCONT": Kind(pause_api_server, "API server"),
    "etcd: SIGKILL": Kind(kill_etcd, "API server"),
    "etcd: SIGSTOP, SIGCONT": Kind(pause_etcd, "API server"),
    "kube-scheduler to extender: connections cut": Kind(cut_scheduler, "scheduler link"),
    "kube-scheduler to extender: connections stalled": Kind(stall_scheduler, "scheduler link"),
    "kube-scheduler to extender: connections slowed": Kind(slow_scheduler, "scheduler link"),
    "kube-scheduler to extender: answers torn": Kind(tear_scheduler, "scheduler link"),
    "kube-scheduler to API server: connections cut": Kind(cut_scheduler_from_api, "scheduler to API server"),
    "kube-scheduler to API server: connections stalled": Kind(stall_scheduler_from_api, "scheduler to API server"),
    "extender to API server: connections cut": Kind(cut_extender, "extender link"),
    "extender to API server: connections slowed": Kind(slow_extender, "extender link"),
    "extender to API server: answers torn": Kind(tear_extender, "extender link"),
    "extender's watches closed": Kind(close_watches, "extender link"),
    "extender's watches stalled": Kind(stall_watches, "extender link", 3),
    "standby's watches stalled, then the other extender killed": Kind(fail_over_to_stale, "extender link", 3),
    "extender's watches: 410": Kind(expire_watches, "extender link"),
    "answers to the extender: 409": Kind(_answers(409), "extender link"),
    "answers to the extender: 410": Kind(_answers(410), "extender link", 1),
    "answers to the extender: 429": Kind(_answers(429), "extender link"),
    "answers to the extender: 500": Kind(_answers(500), "extender link"),
    "bind carried out, its answer lost": Kind(lose_binds, "extender link", 4),
    "bind delayed for seconds": Kind(hold_binds, "extender link"),
    "bind delayed, its extender killed": Kind(hold_binds_past_failover, "extender link", 3),
    "extender's clock jumped": Kind(jump_clock, "extender clock"),
    "extenders' Lease: times of another century": Kind(misdate_lease, "lease"),
    "extenders' Lease: taken by a stranger": Kind(usurp_lease, "lease"),
    "extenders' Lease: deleted": Kind(delete_lease, "lease", 1),
    "inventory: cards removed under pods": Kind(remove_cards, "nodes"),
    "inventory: cards shrunk under pods": Kind(shrink_cards, "nodes"),
    "inventory: cards unhealthy": Kind(sicken_cards, "nodes"),
    "inventory: garbage": Kind(garble_inventory, "nodes"),
    "node deleted, created again with other cards": Kind(recreate_node, "nodes"),
}
WEIGHTS: Final = {name: kind.weight for name, kind in KINDS.items()}
