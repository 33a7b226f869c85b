"""A run on the control plane: pods come and go, faults strike, the history is judged.

Belongs here: the order of a run and what is counted. Never: the kinds of faults (faults.py), the rules (history.py).
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from accelshare.kube.errors import KubeError
from cluster.control_plane import ControlPlane
from cluster.errors import ClusterError
from tests.trust.etcd_watch import API_SERVER_ARGS, watch_etcd
from tests.trust.faults import KINDS
from tests.trust.history import Finding, History, Object, PodHistory
from tests.trust.plan import Plan, PlannedFault, PlannedPod
from tests.trust.stage import PODS, Stage, books_of, open_stage
from tests.trust.waits import Waits

Say = Callable[[str], None]
AT_ONCE: Final = 3  # faults
EVERY_S: Final = 5.0  # progress
QUIET_EVERY: Final = 50  # faults, after which all of it is repaired and judged
QUIET_LIMIT_S: Final = 300.0
BOOKS_LIMIT_S: Final = 60.0
END_LIMIT_S: Final = 900.0
CHECKS_EVERY_S: Final = 0.25


@dataclass(slots=True)
class Outcome:
    """What a run did and found."""

    seed: int
    pods: int
    faults: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    binds: int = 0
    versions: int = 0
    longest_wait_s: float = 0.0  # without a bind, while a pending pod would fit
    longest_wait_faults: tuple[str, ...] = ()  # all that struck during it
    longest_quiet_wait_s: float | None = None  # the same, counted from the end of the last fault; None: not measured
    most_bound: int = 0
    waited: int = 0  # pods that did not fit at first
    rebuilds: int = 0  # comparisons of the extender's ledger with others
    restarts: int = 0
    hits: int = 0  # requests and watches that met a fault in the proxies
    took_s: float = 0.0


class Run:
    def __init__(self, stage: Stage, plan: Plan, clock: Callable[[], float], say: Say) -> None:
        self._stage = stage
        self._history = stage.history
        self._plan = plan
        self._clock = clock
        self._say = say
        self._locks = {kind.part: asyncio.Lock() for kind in KINDS.values()}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._active: list[str] = []
        self._struck = 0
        self._created: set[str] = set()
        self._leaving: set[str] = set()
        self._pods_leave = True
        self._waits = Waits()
        self._tasks: set[asyncio.Task[None]] = set()
        self.outcome = Outcome(plan.seed, len(plan.pods))

    async def play(self) -> None:
        always = [self._create_pods(), self._delete_pods(), self._look(), self._report()]
        tasks = [asyncio.create_task(work) for work in always]
        try:
            await _first_failure(asyncio.create_task(self._strike_all()), tasks)
            await self._bind_and_end_all(tasks)
        finally:
            for task in (*tasks, *self._tasks):
                task.cancel()
            await asyncio.gather(*tasks, *self._tasks, return_exceptions=True)
        self._history.judge_end(created=self._created, early={pod.name for pod in self._plan.pods if pod.early})
        self.count()

    # Faults.

    async def _strike_all(self) -> None:
        running: list[asyncio.Task[None]] = []
        for fault in self._plan.faults:
            await asyncio.sleep(fault.after_s)
            if fault.waits:
                await self._some_bound()
            await self._turns.acquire()
            running.append(asyncio.create_task(self._strike(fault)))
            self._struck = fault.number + 1
            last = self._struck == len(self._plan.faults)
            if last or self._struck % QUIET_EVERY == 0:
                await asyncio.gather(*running)
                running.clear()
                await self._judge_quiet(rebuild=last)

    async def _some_bound(self) -> None:
        """So that faults strike in the middle of binds: not before half of the pods that come with each fault is bound."""
        enough = self._history.binds + max(1, len(self._plan.pods) // len(self._plan.faults) // 2)
        ends = self._clock() + self._plan.pace.most_waiting_s
        while self._history.binds < enough and self._clock() < ends:
            await asyncio.sleep(0.05)

    async def _strike(self, fault: PlannedFault) -> None:
        kind = KINDS[fault.kind]
        try:
            async with self._locks[kind.part]:
                self._active.append(fault.kind)
                try:
                    await kind.strike(self._stage, fault.lasts_s, Random(fault.seed))
                finally:
                    self._active.remove(fault.kind)
            self.outcome.faults[fault.kind] = self.outcome.faults.get(fault.kind, 0) + 1
        finally:
            self._turns.release()

    # Pods.

    async def _create_pods(self) -> None:
        for number, pod in enumerate(self._plan.pods):
            while number >= self._plan.due_pods(self._struck):
                await asyncio.sleep(0.05)
            await asyncio.sleep(pod.after_s)
            limits = {key: str(value) for key, value in pod.limits.items()}
            container = {"name": "main", "image": "example.com/none", "resources": {"limits": limits}}
            meta = {"name": pod.name, "annotations": pod.annotations}
            await self._stage.create(
                PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
            )
            self._created.add(pod.name)
            if pod.early:
                self._begin(self._leave(pod, pod.lives_s))

    async def _delete_pods(self) -> None:
        planned = {pod.name: pod for pod in self._plan.pods}
        while True:
            for bound in self._history.bound() if self._pods_leave else ():
                pod = planned[bound.name]
                if bound.name not in self._leaving and self._clock() - (bound.bound_at_s or 0.0) >= pod.lives_s:
                    self._begin(self._leave(pod, 0.0))
            await asyncio.sleep(0.2)

    async def _leave(self, pod: PlannedPod, after_s: float) -> None:
        self._leaving.add(pod.name)
        await asyncio.sleep(after_s)
        if pod.succeeds and not pod.early:
            await self._stage.patch(f"{PODS}/{pod.name}/status", {"status": {"phase": "Succeeded"}})
        await self._stage.delete_pod(pod.name)

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._find("ended early", f"a pod could not be deleted: {error}")

    # Judging.

    async def _look(self) -> None:
        """How long no pod is bound although one fits."""
        ever: set[str] = set()
        while True:
            fitting = self._history.fitting()
            ever |= {pod.name for pod in self._history.pending()} - {pod.name for pod in fitting}
            self._waits.look(self._clock(), fits=bool(fitting), binds=self._history.binds, active=self._active)
            self.outcome.most_bound = max(self.outcome.most_bound, len(self._history.bound()))
            self.outcome.waited = len(ever)
            await asyncio.sleep(CHECKS_EVERY_S)

    async def _judge_quiet(self, *, rebuild: bool) -> None:
        """Without faults and deletions: every pod that fits is bound, and all ledgers are equal, also that of a new extender."""
        self._pods_leave = False
        try:
            await asyncio.gather(*self._tasks)
            await self._settled()
            await self._compare_books("the extender's ledger", self._holder_books)
            await self._compare_books("a ledger from a list", self._listed_books)
            if rebuild:
                for replica in self._stage.replicas.all:
                    replica.process.kill()
                await self._settled()
                await self._compare_books("the ledger of a new extender", self._holder_books)
        finally:
            self._pods_leave = True

    async def _settled(self) -> None:
        async def quiet() -> bool:
            evicted = await self._stage.evict_from_old_cards(*self._stage.nodes)
            return not evicted and not self._history.fitting() and await self._stage.pods() == self._history.living()

        try:
            await self._stage.until(quiet, "every pod that fits is bound", QUIET_LIMIT_S)
        except ClusterError as error:
            for pod in self._history.fitting():
                self._find("not bound", f"pod {pod.name} fits and is not bound: {error}", pod)
            raise RuntimeError(f"the cluster does not settle: {error}") from error

    async def _compare_books(self, whose: str, read: Callable[[], Awaitable[Object | None]]) -> None:
        self.outcome.rebuilds += 1
        theirs: dict[str, list[str]] = {}

        async def equal() -> bool:
            nonlocal theirs
            shown = await read()
            if shown is None:
                return False
            theirs = books_of(shown)
            return theirs == self._history.books()

        try:
            await self._stage.until(equal, f"{whose} is equal", BOOKS_LIMIT_S)
        except ClusterError:
            ours = self._history.books()
            differing = {place for place in ours.keys() | theirs.keys() if ours.get(place) != theirs.get(place)}
            lines = [f"{place}: {theirs.get(place)}, by the API server {ours.get(place)}" for place in sorted(differing)]
            self._find("ledgers differ", f"{whose} differs:\n" + "\n".join(lines))

    async def _holder_books(self) -> Object | None:
        for replica in self._stage.replicas.all:
            if await replica.decides():
                status, text = await replica.get("/accelshare/inspect")
                if status == 200:
                    found: Object = json.loads(text)
                    return found
        return None

    async def _listed_books(self) -> Object | None:
        command = [sys.executable, "-m", "accelshare", "inspect", "-o", "json", "--kubeconfig", str(self._stage.plane.kubeconfig)]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return None
        found: Object = json.loads(done.stdout)
        return found

    async def _bind_and_end_all(self, tasks: list[asyncio.Task[None]]) -> None:
        """Pods leave, until each was bound and is gone."""
        planned = {pod.name for pod in self._plan.pods}

        async def done() -> bool:
            for task in tasks:
                if task.done():
                    task.result()
            await self._stage.evict_from_old_cards(*self._stage.nodes)
            living = [pod for pod in self._history.pods.values() if pod.ask is not None and not pod.now.deleted]
            return self._created == planned and not living and not self._tasks

        try:
            await self._stage.until(done, "every pod was bound and has left", END_LIMIT_S)
        except ClusterError as error:
            self._say(f"not every pod left: {error}")

    def _find(self, rule: str, text: str, pod: PodHistory | None = None) -> None:
        self._history.findings.append(Finding(rule, text, str(pod) if pod is not None else ""))

    # Counting.

    async def _report(self) -> None:
        shown = 0
        while True:
            history = self._history
            for finding in history.findings[shown:]:
                self._say(f"FOUND {finding.rule}: {finding.text}")
            shown = len(history.findings)
            self._say(
                f"{self._struck}/{len(self._plan.faults)} faults, {len(self._created)}/{len(self._plan.pods)} pods, "
                f"{history.binds} bound so far, {len(history.bound())} now, {len(history.pending())} pending, "
                f"{len(history.findings)} findings; {', '.join(self._active) or 'no fault now'}"
            )
            await asyncio.sleep(EVERY_S)

    def count(self) -> None:
        outcome, history = self.outcome, self._history
        outcome.findings = history.findings
        outcome.binds, outcome.versions = history.binds, history.versions
        outcome.longest_wait_s, outcome.longest_wait_faults = self._waits.longest_s, self._waits.longest_faults
        outcome.longest_quiet_wait_s = self._waits.longest_quiet_s
        outcome.restarts = self._stage.restarts
        outcome.hits = sum(proxy.hits for proxy in self._stage.links.extenders.values())


async def _first_failure(main: asyncio.Task[None], others: list[asyncio.Task[None]]) -> None:
    """Wait for the first; an error of any other ends it."""
    waiting = set(others)
    while not main.done():
        done, _ = await asyncio.wait({main, *waiting}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        waiting -= done
    main.result()


async def play_plan(plan: Plan, directory: Path, say: Say, extender_flags: Sequence[str] = ()) -> Outcome:
    """Start a control plane, play the plan on it, and return what was found."""
    began = time.monotonic()

    def clock() -> float:
        return time.monotonic() - began

    history = History()
    with ControlPlane.start(directory / "plane", say, controllers=None, api_server_args=API_SERVER_ARGS) as plane:
        async with watch_etcd(plane, history, clock), open_stage(plane, directory, history, extender_flags) as stage:
            run = Run(stage, plan, clock, say)
            try:
                await run.play()
            except (ClusterError, KubeError, RuntimeError) as error:
                history.findings.append(Finding("ended early", f"{error}"))
                run.count()
    run.outcome.took_s = clock()
    return run.outcome


def print_findings(outcome: Outcome, say: Say) -> None:
    for finding in outcome.findings:
        say(f"FOUND {finding.rule}: {finding.text}")
        if finding.history:
            say(finding.history)
