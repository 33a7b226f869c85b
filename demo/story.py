"""The demo from curtain to curtain: the acts, what came of each pod, the tables, the sum.

Belongs here: the order of things and the words about them. Never: how any of it is done.
"""

import asyncio
import signal
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from accelshare.ledger.nouns import Slice
from accelshare.report import tables
from accelshare.report.view import rows
from accelshare.testing.fake_kubelet import Admitted
from accelshare.vendors import catalog as catalogs
from accelshare.vendors.catalog import Catalog
from demo import playlist
from demo.agreement import disagreements, given, offered_though_taken, told
from demo.errors import DemoError
from demo.page import Page
from demo.playlist import Act
from demo.scheduler import Bound, Scheduler, Waits
from demo.stage import Stage, set_up
from demo.view import PodView, View, look
from demo.workloads import pods_of

ROOT: Final = Path(__file__).parents[1]


async def tell(page: Page, *, keep: bool, begun_s: float) -> None:
    played = playlist.load()
    catalog = catalogs.load([played.profiles_directory])
    page.line("accelshare demo: the original guides' workloads, and a few more, under one extender", "title")
    started_s = time.perf_counter()
    async with set_up(played=played, catalog=catalog) as stage:
        page.field("API server", f"{stage.api_url}, in memory, inside this process, and so are the kubelets")
        ready_s = time.perf_counter() - started_s
        page.field("extender", f"{stage.extender_url}, the real one, process {stage.extender.pid}, ready in {ready_s:.1f} s")
        story = Story(stage, catalog, page)
        await story.nodes()
        for act in played.acts:
            await story.play(act)
        await story.end(begun_s)
        if keep:
            await _kept(stage, catalog, page)


class Story:
    """One run: who waits, and the words for what happens."""

    def __init__(self, stage: Stage, catalog: Catalog, page: Page) -> None:
        self._stage = stage
        self._catalog = catalog
        self._page = page
        self._scheduler = Scheduler(stage.session, f"{stage.extender_url}/accelshare")
        self._waiting: list[str] = []  # kube-scheduler's queue of pods that fitted nowhere, oldest first

    async def nodes(self) -> None:
        """Begin when every agent delivers its cards, and the extender has heard of it."""
        for node in self._stage.nodes.values():
            await self._stage.until(node.on_duty, f"{node.name} delivers its cards")
            await node.tell_address()
        view = await self._look()
        addresses = [address.address for node in view.nodes.values() for address in (node.status and node.status.addresses) or ()]

        async def heard() -> bool:
            shown = await self._stage.inspected()
            return all(f'"{address}"' in shown for address in addresses)

        await self._stage.until(heard, "the extender has heard of every node")
        for number, node in enumerate(self._stage.nodes.values()):
            cards = f"{len(told(view.nodes[node.name])[node.profile.name].cards)}×{node.profile.noun}"
            words = f"{node.name:20}{cards}, handed out by the real agent, process {node.agent.pid}"
            self._page.field("" if number else "nodes", words)

    async def play(self, act: Act) -> None:
        self._page.title(act.title)
        for file in act.apply:
            for manifest in playlist.manifests(file):
                for pod in pods_of(manifest):
                    await self._stage.create(pod)
                    name = f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"
                    await self._schedule(name)
        if act.delete:
            await self._release(act.delete)

    async def end(self, begun_s: float) -> None:
        """The tables that `inspect` prints, an audit of all books, and the sum."""

        async def assigned() -> bool:
            pods = (await self._look()).pods.values()
            return all(_is_assigned(pod, self._catalog) for pod in pods if pod.fact.node)

        await self._stage.until(assigned, "every agent has read kubelet's book and noted on each pod that it has its cards")
        view = await self._look()
        ledger = view.ledger()
        for profile in self._catalog:
            self._page.title(profile.title)
            self._page.table(tables.summary(rows(ledger), profile))
        if problems := ledger.check():
            raise DemoError("the book does not add up: " + "; ".join(problems))
        bound = [pod for pod in view.pods.values() if pod.fact.node]
        for pod in bound:
            self._compare(pod, view)
        self._page.line()
        waiting = len(view.pods) - len(bound)
        self._page.line(
            f"{len(bound)} pods bound, {waiting} waiting with a reason, no card oversold; for each of the {len(bound)}", "title"
        )
        took_s = time.perf_counter() - begun_s
        self._page.line(f"its record, kubelet's book and what its container was given agree; {took_s:.1f} s.", "title")
        self._page.line(f"Next: {ROOT / 'README.md'}; the manifests are in {ROOT / 'examples'}.")

    async def _schedule(self, name: str, *, again: bool = False) -> None:
        view = await self._look()
        pod = view.pods.get(name)
        if pod is None:
            raise DemoError(f"pod {name} asks for no card of any vendor; there is nothing to show")
        match await self._scheduler.cycle(pod, view):
            case Bound(node):
                if again:
                    self._waiting.remove(name)
                admitted = await self._admitted(pod, node)
                # Not what the extender answered but what the API server now holds is where the pod is.
                view = await self._look()
                self._compare(view.pods[name], view)
                slices = view.pods[name].fact.slices
                self._page.pod(pod.fact.name, _asks(pod, self._catalog), f"→ {node}  {_cards(slices)}", "good")
                for seen in given(admitted, self._catalog):
                    self._page.aside(f"container gets {seen}")
            case Waits(sentence) if not again:
                self._waiting.append(name)
                self._page.pod(pod.fact.name, _asks(pod, self._catalog), "waits:", "bad")
                self._page.aside(sentence)

    async def _admitted(self, pod: PodView, node: str) -> Admitted:
        """What its kubelet took for it, once kubelet also counts the cards that are taken as such."""
        fact, kubelet = pod.fact, self._stage.nodes[node].kubelet
        full_name = f"{fact.namespace}/{fact.name}"

        async def decided() -> bool:
            return fact.uid in kubelet.admitted or full_name in kubelet.rejected

        await self._stage.until(decided, f"the kubelet of {node} has decided about {full_name}")
        if full_name in kubelet.rejected:
            raise DemoError(f"the kubelet of {node} rejected {full_name}: {kubelet.rejected[full_name]}")

        async def counted() -> bool:
            view = await self._look()
            return not offered_though_taken(view.nodes[node], (other.fact for other in view.pods.values()), self._catalog)

        await self._stage.until(counted, f"{node} offers no card in slices that is held whole, and none whole that is in slices")
        return kubelet.admitted[fact.uid]

    def _compare(self, pod: PodView, view: View) -> None:
        node = pod.fact.node
        admitted = self._stage.nodes[node].kubelet.admitted.get(pod.fact.uid)
        if admitted is None:
            raise DemoError(f"{pod.fact.name} is bound to {node}, but its kubelet does not have it")
        if wrong := list(disagreements(pod.fact, admitted, view.nodes[node], self._catalog)):
            raise DemoError("the books do not agree: " + "; ".join(wrong))

    async def _release(self, name: str) -> None:
        pod = (await self._look()).pods.get(name)
        if pod is None or not pod.fact.node:
            raise DemoError(f"pod {name} cannot leave: it is not bound")
        cards = f"cards {','.join(str(slice_.index) for slice_ in pod.fact.slices)}"
        kubelet = self._stage.nodes[pod.fact.node].kubelet
        kubelet.ending.clear()
        await self._stage.delete(name)
        if _held_by(pod, await self._look()) != len(pod.fact.slices) or pod.fact.uid not in kubelet.admitted:
            raise DemoError(f"{name} has not ended, but its {cards} count as free")
        before = len(self._waiting)
        await self._retry()
        if len(self._waiting) != before:
            raise DemoError(f"a waiting pod was given cards that {name} still holds")
        self._page.pod(pod.fact.name, "is terminating", f"{cards} stay taken, the {before} waiting pods wait on", "")
        kubelet.ending.set()

        async def heard() -> bool:
            shown = await self._stage.inspected()
            return bool(shown) and pod.fact.uid not in shown

        # kube-scheduler would come again with a growing pause; here it comes once, when the extender knows.
        await self._stage.until(heard, f"the extender has heard that {name} is gone")
        self._page.pod(pod.fact.name, "has ended", f"{cards} are free again", "")
        await self._retry()

    async def _retry(self) -> None:
        """A pod's change wakes every waiting pod, as in kube-scheduler."""
        for name in list(self._waiting):
            await self._schedule(name, again=True)

    async def _look(self) -> View:
        return await look(self._stage.client, self._catalog)


async def _kept(stage: Stage, catalog: Catalog, page: Page) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    prefixes = ["/accelshare", *(profile.http.prefix for profile in catalog if profile.http.prefix)]
    page.title("Still running until Ctrl-C:")
    for url in (*(f"{stage.extender_url}{prefix}/inspect" for prefix in prefixes), f"{stage.extender_url}/metrics"):
        page.line(f"  curl {url}")
    page.line(f"  curl {stage.api_url}/api/v1/pods")
    page.line(f"  tail -f {stage.extender.log.parent}/*.log")
    await ended.wait()


def _held_by(pod: PodView, view: View) -> int:
    """How many cards the cluster's objects say it holds."""
    return sum(1 for node in rows(view.ledger()) for card in node.cards for held in card.pods if held.uid == pod.fact.uid)


def _is_assigned(pod: PodView, catalog: Catalog) -> bool:
    """Whether its record says, for every vendor that has a word for it, that its container has its cards."""
    annotations = pod.object["metadata"].get("annotations", {})
    keys = {catalog[slice_.kind].annotations.assigned for slice_ in pod.fact.slices if not slice_.whole}
    return all(annotations.get(key) == "true" for key in keys if key is not None)


def _asks(pod: PodView, catalog: Catalog) -> str:
    """What its manifest says of cards, in its own words."""
    return ", ".join(f"{name}: {amount // 1000}" for name, amount in pod.fact.needs if catalog.by_resource(name))


def _cards(slices: Sequence[Slice]) -> str:
    """`card 0`, `cards 2,3 with 4500 each`, `cards 1,2 whole`; one such group for each thing asked."""
    groups = []
    for (_, units, whole), same in groupby(slices, key=lambda slice_: (slice_.kind, slice_.units, slice_.whole)):
        indexes = [str(slice_.index) for slice_ in same]
        how = " whole" if whole else f" with {units} each" if len(indexes) > 1 else ""
        groups.append(f"card{'s' if len(indexes) > 1 else ''} {','.join(indexes)}{how}")
    return ", ".join(groups)
