"""Runs the demo: the scenario's steps, each pod's outcome, the tables and the summary.

Belongs here: the order of the steps and what is printed about them. Never: starting processes, scheduling, checking.
"""

import asyncio
import signal
import tempfile
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
from demo.checks import disagreements, oversold_resources, published_cards, visible_cards
from demo.cluster import EXTENDER, DemoCluster, start_cluster
from demo.output import DemoOutput
from demo.own_vendor import own_scenario
from demo.scenario import DemoError, DemoStep, Scenario, load_scenario, manifests, pods_of
from demo.scheduler import DemoScheduler, Scheduled, Unschedulable
from demo.snapshot import DemoSnapshot, PodSnapshot, take_snapshot

ROOT: Final = Path(__file__).parents[1]


async def run(output: DemoOutput, *, keep: bool, started_s: float, profiles: Path | None = None) -> None:
    """Run the whole scenario, or one for the user's own profiles; `started_s` is when the program started."""
    with tempfile.TemporaryDirectory(prefix="a-") as folder:
        scenario = load_scenario() if profiles is None else own_scenario(profiles, Path(folder))
        what = "the original guides' workloads, and a few more" if profiles is None else f"the vendors of {profiles}"
        output.line(f"accelshare demo: {what}, under one extender", "title")
        await _play(scenario, output, keep=keep, started_s=started_s)


async def _play(scenario: Scenario, output: DemoOutput, *, keep: bool, started_s: float) -> None:
    catalog = catalogs.load([scenario.profiles_directory])
    cluster_started_s = time.perf_counter()
    program = (*EXTENDER, f"--profiles={scenario.profiles_directory}")
    async with start_cluster(program, scenario=scenario, catalog=catalog) as cluster:
        output.field("API server", f"{cluster.api_url}, a fake in this process, as the kubelets are")
        ready_s = time.perf_counter() - cluster_started_s
        output.field(
            "extender", f"{cluster.extender_url}, the real one, process {cluster.extender.pid}, ready in {ready_s:.1f} s"
        )
        demo = Demo(cluster, catalog, output)
        await demo.wait_for_nodes()
        for step in scenario.steps:
            await demo.run_step(step)
        await demo.finish(started_s)
        if keep:
            await _keep_running(cluster, catalog, output)


class Demo:
    """One run of the scenario, and the pods that wait."""

    def __init__(self, cluster: DemoCluster, catalog: Catalog, output: DemoOutput) -> None:
        self._cluster = cluster
        self._catalog = catalog
        self._output = output
        self._scheduler = DemoScheduler(cluster.session, f"{cluster.extender_url}/accelshare")
        self._waiting: list[str] = []  # the unschedulable pods, oldest first

    async def wait_for_nodes(self) -> None:
        """Wait until every agent delivers its cards and the extender knows all nodes."""
        for node in self._cluster.nodes.values():
            await self._cluster.until(node.is_ready, f"{node.name} delivers its cards")
            await node.publish_address()
        snapshot = await self._snapshot()
        addresses = [
            address.address for node in snapshot.nodes.values() for address in (node.status and node.status.addresses) or ()
        ]

        async def all_known() -> bool:
            inspect = await self._cluster.inspect()
            return all(f'"{address}"' in inspect for address in addresses)

        await self._cluster.until(all_known, "the extender knows every node")
        for number, node in enumerate(self._cluster.nodes.values()):
            cards = f"{len(published_cards(snapshot.nodes[node.name])[node.profile.name].cards)}×{node.profile.noun}"
            text = f"{node.name:20}{cards}, handed out by the real agent, process {node.agent.pid}"
            self._output.field("" if number else "nodes", text)

    async def run_step(self, step: DemoStep) -> None:
        self._output.title(step.title)
        for file in step.apply:
            for manifest in manifests(file):
                for pod in pods_of(manifest):
                    await self._cluster.create(pod)
                    name = f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"
                    await self._schedule(name)
        if step.delete:
            await self._release(step.delete)

    async def finish(self, started_s: float) -> None:
        """Print the tables of `inspect`, check the ledger and every pod, and print the summary."""

        async def assigned() -> bool:
            pods = (await self._snapshot()).pods.values()
            return all(_is_assigned(pod, self._catalog) for pod in pods if pod.fact.node)

        await self._cluster.until(assigned, "every agent has marked its pods as assigned")
        snapshot = await self._snapshot()
        ledger = snapshot.ledger()
        served = {node.profile.name for node in self._cluster.nodes.values()}
        for profile in (profile for profile in self._catalog if profile.name in served):
            self._output.title(profile.title)
            self._output.table(tables.summary(rows(ledger), profile))
        if problems := ledger.check():
            raise DemoError("the ledger is inconsistent: " + "; ".join(problems))
        bound = [pod for pod in snapshot.pods.values() if pod.fact.node]
        for pod in bound:
            self._compare(pod, snapshot)
        self._output.line()
        waiting = len(snapshot.pods) - len(bound)
        self._output.line(
            f"{len(bound)} pods bound, {waiting} waiting with a reason, no card oversold; for each of the {len(bound)}", "title"
        )
        took_s = time.perf_counter() - started_s
        self._output.line(f"its record, kubelet's device ids and its container's devices agree; {took_s:.1f} s.", "title")
        readme = ROOT / "README.md"  # an installed wheel has none
        self._output.line(f"{f'Next: {readme}; the' if readme.exists() else 'The'} manifests are in {ROOT / 'examples'}.")

    async def _schedule(self, name: str, *, again: bool = False) -> None:
        snapshot = await self._snapshot()
        pod = snapshot.pods.get(name)
        if pod is None:
            raise DemoError(f"pod {name} asks for no card of any vendor; there is nothing to show")
        match await self._scheduler.cycle(pod, snapshot):
            case Scheduled(node):
                if again:
                    self._waiting.remove(name)
                admitted = await self._admitted(pod, node)
                # The pod is where the API server says, not where the extender answered.
                snapshot = await self._snapshot()
                self._compare(snapshot.pods[name], snapshot)
                slices = snapshot.pods[name].fact.slices
                self._output.pod(pod.fact.name, _asks(pod, self._catalog), f"→ {node}  {_cards(slices)}", "good")
                for cards in visible_cards(admitted, self._catalog):
                    self._output.detail(f"container gets {cards}")
            case Unschedulable(message) if not again:
                self._waiting.append(name)
                self._output.pod(pod.fact.name, _asks(pod, self._catalog), "waits:", "bad")
                self._output.detail(message)

    async def _admitted(self, pod: PodSnapshot, node: str) -> Admitted:
        """The pod as its kubelet admitted it, once the node shows no more than is free."""
        fact, kubelet = pod.fact, self._cluster.nodes[node].kubelet
        full_name = f"{fact.namespace}/{fact.name}"

        async def decided() -> bool:
            return fact.uid in kubelet.admitted or full_name in kubelet.rejected

        await self._cluster.until(decided, f"the kubelet of {node} has decided about {full_name}")
        if full_name in kubelet.rejected:
            raise DemoError(f"the kubelet of {node} rejected {full_name}: {kubelet.rejected[full_name]}")

        async def counted() -> bool:
            snapshot = await self._snapshot()
            return not oversold_resources(snapshot.nodes[node], (other.fact for other in snapshot.pods.values()), self._catalog)

        await self._cluster.until(counted, f"{node} shows no more than is free")
        return kubelet.admitted[fact.uid]

    def _compare(self, pod: PodSnapshot, snapshot: DemoSnapshot) -> None:
        node = pod.fact.node
        admitted = self._cluster.nodes[node].kubelet.admitted.get(pod.fact.uid)
        if admitted is None:
            raise DemoError(f"{pod.fact.name} is bound to {node}, but its kubelet has not admitted it")
        if wrong := list(disagreements(pod.fact, admitted, snapshot.nodes[node], self._catalog)):
            raise DemoError("record, kubelet and container do not agree: " + "; ".join(wrong))

    async def _release(self, name: str) -> None:
        pod = (await self._snapshot()).pods.get(name)
        if pod is None or not pod.fact.node:
            raise DemoError(f"pod {name} cannot be deleted: it is not bound")
        cards = f"cards {','.join(str(slice_.index) for slice_ in pod.fact.slices)}"
        kubelet = self._cluster.nodes[pod.fact.node].kubelet
        kubelet.pods_can_end.clear()
        await self._cluster.delete(name)
        if _held_by(pod, await self._snapshot()) != len(pod.fact.slices) or pod.fact.uid not in kubelet.admitted:
            raise DemoError(f"{name} has not ended, but its {cards} count as free")
        before = len(self._waiting)
        await self._retry()
        if len(self._waiting) != before:
            raise DemoError(f"a waiting pod got cards that {name} still holds")
        self._output.pod(pod.fact.name, "is terminating", f"{cards} stay taken, {before} pods still wait", "")
        kubelet.pods_can_end.set()

        async def is_gone() -> bool:
            inspect = await self._cluster.inspect()
            return bool(inspect) and pod.fact.uid not in inspect

        # kube-scheduler would retry with back-off; here it retries once, when the extender knows.
        await self._cluster.until(is_gone, f"the extender knows that {name} is gone")
        self._output.pod(pod.fact.name, "has ended", f"{cards} are free again", "")
        await self._retry()

    async def _retry(self) -> None:
        """Try every waiting pod again, as kube-scheduler does when a pod ends."""
        for name in list(self._waiting):
            await self._schedule(name, again=True)

    async def _snapshot(self) -> DemoSnapshot:
        return await take_snapshot(self._cluster.client, self._catalog)


async def _keep_running(cluster: DemoCluster, catalog: Catalog, output: DemoOutput) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    prefixes = ["/accelshare", *(profile.http.prefix for profile in catalog if profile.http.prefix)]
    output.title("Still running until Ctrl-C:")
    for words in ("inspect", "inspect --watch", "explain"):
        output.line(f"  KUBECONFIG={cluster.kubeconfig} accelshare {words}")
    for url in (*(f"{cluster.extender_url}{prefix}/inspect" for prefix in prefixes), f"{cluster.extender_url}/metrics"):
        output.line(f"  curl {url}")
    output.line(f"  curl {cluster.api_url}/api/v1/pods")
    output.line(f"  tail -f {cluster.extender.log.parent}/*.log")
    await stop.wait()


def _held_by(pod: PodSnapshot, snapshot: DemoSnapshot) -> int:
    """The number of cards that the pod holds by the cluster's objects."""
    return sum(1 for node in rows(snapshot.ledger()) for card in node.cards for held in card.pods if held.uid == pod.fact.uid)


def _is_assigned(pod: PodSnapshot, catalog: Catalog) -> bool:
    """Whether the annotations of all its vendors say that its container has its cards."""
    annotations = pod.object["metadata"].get("annotations", {})
    keys = {catalog[slice_.kind].annotations.assigned for slice_ in pod.fact.slices if not slice_.whole}
    return all(annotations.get(key) == "true" for key in keys if key is not None)


def _asks(pod: PodSnapshot, catalog: Catalog) -> str:
    """The resources that the pod asks for, as its manifest writes them."""
    return ", ".join(f"{name}: {amount // 1000}" for name, amount in pod.fact.needs if catalog.by_resource(name))


def _cards(slices: Sequence[Slice]) -> str:
    """`card 0`, `cards 2,3 with 4500 each`, `cards 1,2 whole`; one group for each resource."""
    groups = []
    for (_, units, whole), same in groupby(slices, key=lambda slice_: (slice_.kind, slice_.units, slice_.whole)):
        indexes = [str(slice_.index) for slice_ in same]
        how = " whole" if whole else f" with {units} each" if len(indexes) > 1 else ""
        groups.append(f"card{'s' if len(indexes) > 1 else ''} {','.join(indexes)}{how}")
    return ", ".join(groups)
