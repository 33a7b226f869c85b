"""The extender's HTTP paths: kube-scheduler's verbs, inspect, version, health and metrics.

Belongs here: the table of paths, and one log line and one count for each decision. Never: sockets (http/), deciding.

kube-scheduler reads a body only with status 200, so its verbs respond with 200 and put an error into `Error`, which
kube-scheduler copies into the pod's event.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import orjson

from accelshare import __version__
from accelshare.extender import card_metrics
from accelshare.extender.binder import Binder, BindOutcome
from accelshare.extender.decisions import Decisions
from accelshare.extender.metrics import Metrics
from accelshare.extender.promises.filter_wait import FilterWait
from accelshare.extender.requeue import Requeue
from accelshare.http.messages import TEXT, HttpRequest, Response, error_response
from accelshare.kube.binding import NO_PERMIT
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.refusals import Reason
from accelshare.report import inspect_json
from accelshare.report.view import rows
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.profile import Profile
from accelshare.wire import scheduler
from accelshare.wire.decoding import UnreadableError
from accelshare.wire.objects import PodToSchedule

log = logging.getLogger(__name__)
NEUTRAL: Final = "/accelshare"
PROBE_PATHS: Final = ("/healthz", "/livez", "/readyz", "/leaderz", "/metrics")
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
UNCOUNTED: Final = "uncounted"  # refused nodes, in the log
MAX_NAME_LENGTH: Final = 253  # of a node
MAX_COMPARED_NAMES: Final = 20  # for a hint; some milliseconds if all of them are as long as names can be


# Does nothing until it is called and awaited.
Later: TypeAlias = Callable[[], Awaitable[Response]]


class AfterWait(NamedTuple):
    """A response that is decided after a wait."""

    wait: Callable[[], Awaitable[None]]
    decide: Callable[[], Response]


class NotReady(NamedTuple):
    """What the extender must still do before its first decision, such as ("listed", "nodes and pods").

    `warm`: only what a holder of the lease does at the beginning is missing. A rollout need not wait for that.
    """

    done: str
    what: str
    warm: bool = False

    @property
    def error(self) -> str:
        return f"accelshare has not {self.done} {self.what} yet"


class Standby(NamedTuple):
    """Another extender decides, or nobody does: this one does not hold the lease."""

    holder: str  # empty: not known

    @property
    def error(self) -> str:
        return f"{NO_PERMIT}; {self.holder} does" if self.holder else NO_PERMIT


class Routes:
    def __init__(
        self,
        *,
        ledger: Ledger,
        catalog: Catalog,
        decisions: Decisions,
        binder: Binder,
        metrics: Metrics,
        not_ready: Callable[[], NotReady | Standby | None],
        requeue: Requeue,
        filter_wait: FilterWait | None = None,
    ) -> None:
        """`filter_wait`: with promises, what filter waits for."""
        self._ledger = ledger
        self._decisions = decisions
        self._binder = binder
        self._metrics = metrics
        self._not_ready = not_ready
        self._requeue = requeue
        self._filter_wait = filter_wait
        self._scores = scheduler.ScoreWriter()
        self._dialects: dict[str, Profile | None] = {NEUTRAL: None}
        self._dialects |= {profile.http.prefix: profile for profile in catalog.profiles if profile.http.prefix is not None}
        self._only_whole = frozenset(profile.name for profile in catalog.profiles if profile.resources.memory is None)
        self._profiles = catalog.profiles
        self._card_metrics: asyncio.Future[list[bytes]] | None = None  # while they are being written
        self._verbs: dict[str, Callable[[bytes], Response | AfterWait | Later]] = {
            "filter": self._filter,
            "prioritize": self._prioritize,
            "preempt": self._preempt,
            "bind": self._bind,
        }
        self._pages: dict[str, Callable[[], Response]] = {
            "/version": lambda: _text(200, __version__),
            "/healthz": lambda: _text(200, "ok"),
            "/livez": lambda: _text(200, "ok"),
            "/readyz": self._readyz,
            "/leaderz": self._leaderz,
        }

    def handle_probe(self, request: HttpRequest) -> Response | Awaitable[Response]:
        """The same pages on the probe port, for clients without a certificate: kubelet's probes and Prometheus."""
        if request.path in PROBE_PATHS:
            return self.handle(request)
        return error_response(404, f"nothing at {request.path[:200]!r}; this port has {', '.join(PROBE_PATHS)}")

    def handle(self, request: HttpRequest) -> Response | Awaitable[Response]:
        """Most responses are ready at once; a bind's must be awaited."""
        method, path = request.method, request.path
        page = self._pages.get(path)
        if page is not None:
            return page() if method in ("GET", "HEAD") else _wrong_method(method, path, "GET")
        if path == "/metrics":
            return self._metrics_page() if method in ("GET", "HEAD") else _wrong_method(method, path, "GET")
        prefix, _, rest = path[1:].partition("/")
        page_name, _, node = rest.partition("/")
        if f"/{prefix}" not in self._dialects:
            known = ", ".join(sorted(self._dialects))
            return error_response(404, f"nothing at {path[:200]!r}; the prefixes are {known}")
        if page_name == "inspect":
            return self._inspect(self._dialects[f"/{prefix}"], node) if method == "GET" else _wrong_method(method, path, "GET")
        verb = self._verbs.get(rest)
        if verb is None:
            verbs = ", ".join((*self._verbs, "inspect"))
            return error_response(404, f"nothing at {path[:200]!r}; /{prefix} has {verbs}")
        if method != "POST":
            return _wrong_method(method, path, "POST")
        return self._timed(rest, verb, request.body)

    def _timed(
        self, verb: str, handle: Callable[[bytes], Response | AfterWait | Later], body: bytes
    ) -> Response | Awaitable[Response]:
        start = time.perf_counter()
        try:
            response = handle(body)
        except UnreadableError as error:
            response = self._respond_unreadable(verb, error)
        if isinstance(response, Response):
            self._metrics.took(verb, time.perf_counter() - start)
            return response
        return self._timed_later(verb, response, start)

    async def _timed_later(self, verb: str, later: AfterWait | Later, start: float) -> Response:
        try:
            if not isinstance(later, AfterWait):
                return await later()
            waits = time.perf_counter()
            await later.wait()
            waited_s = time.perf_counter() - waits
            self._metrics.filter_wait.observe(waited_s)
            start += waited_s  # a wait is no work
            return later.decide()
        except UnreadableError as error:
            return self._respond_unreadable(verb, error)
        finally:
            self._metrics.took(verb, time.perf_counter() - start)

    def _filter(self, body: bytes) -> Response | AfterWait:
        """kube-scheduler does not wait for a bind before its next filter. While binds wait for the API server, a filter therefore
        waits too: otherwise ever more binds would wait, end at their time limit and be repeated."""
        call = scheduler.read_filter_call(body)
        nominations = (
            self._filter_wait is not None
            and self._not_ready() is None
            and self._filter_wait.called(call.pod.metadata.uid, len(call.nodes))
        )
        waits = nominations or (not self._binder.has_room and self._not_ready() is None)
        return AfterWait(partial(self._wait, call), partial(self._filtered, call)) if waits else self._filtered(call)

    async def _wait(self, call: scheduler.FilterCall) -> None:
        if not self._binder.has_room:
            await self._binder.wait_for_room()
        if self._filter_wait is not None:
            await self._filter_wait.wait(call.pod.metadata.uid)

    def _filtered(self, call: scheduler.FilterCall) -> Response:
        start = time.perf_counter()
        if waiting := self._not_ready():
            return self._respond_not_ready("filter", call.pod, waiting)
        result = self._decisions.filter(call)
        outcome = "served" if result.answer.names else "refused"
        self._requeue.filtered(call.pod.metadata.uid, refused=bool(result.refused) and not result.answer.names)
        self._metrics.decided("filter", outcome)
        for reason, count in (result.refused or {}).items():
            self._metrics.refusals.labels(reason.value).inc(count)
        log.info(
            "filter pod=%s nodes=%d named=%s refused=%s took_ms=%s outcome=%s",
            _pod(call.pod),
            len(call.nodes),
            ",".join(result.answer.names[:3]) + ("…" if len(result.answer.names) > 3 else ""),
            _refused(result.refused),
            _ms(start),
            outcome,
        )
        return Response(200, scheduler.write_filter_answer(result.answer, call))

    def _prioritize(self, body: bytes) -> Response:
        start = time.perf_counter()
        call = scheduler.read_filter_call(body)
        if waiting := self._not_ready():
            return self._respond_not_ready("prioritize", call.pod, waiting)
        scores = self._decisions.prioritize(call)
        self._metrics.decided("prioritize", "served")
        best = next(iter(scores), "")
        log.info("prioritize pod=%s nodes=%d best=%s took_ms=%s", _pod(call.pod), len(call.nodes), best, _ms(start))
        return Response(200, self._scores.write(call.names, scores))

    def _preempt(self, body: bytes) -> Response | Later:
        call = scheduler.read_preemption_call(body)
        if waiting := self._not_ready():
            return self._respond_not_ready("preempt", call.pod, waiting)
        return partial(self._preempted, call)

    async def _preempted(self, call: scheduler.PreemptionCall) -> Response:
        start = time.perf_counter()
        chosen: dict[str, scheduler.Victims] = {}
        for node, victims in self._decisions.preempt(call):
            if victims is not None:
                chosen[node] = victims
            # A full node takes milliseconds, and kube-scheduler of a large cluster proposes hundreds of nodes.
            await asyncio.sleep(0)
        if chosen:
            self._decisions.preempts(call.pod)
        outcome = "served" if chosen else "refused"
        self._metrics.decided("preempt", outcome)
        log.info(
            "preempt pod=%s proposed=%s answered=%s took_ms=%s outcome=%s",
            _pod(call.pod),
            ",".join(call.proposals),
            ",".join(f"{node}:{len(victims.uids)}" for node, victims in chosen.items()),
            _ms(start),
            outcome,
        )
        return Response(200, scheduler.write_preemption_answer(chosen))

    def _bind(self, body: bytes) -> Later:
        return partial(self._bound, scheduler.read_bind(body))

    async def _bound(self, call: scheduler.BindArguments) -> Response:
        start = time.perf_counter()
        # A ledger that is not complete shows free capacity that does not exist.
        waiting = self._not_ready()
        self._metrics.bind_latency.sent(call.pod_uid)
        outcome = BindOutcome("not-ready", waiting.error) if waiting else await self._binder.bind(call)
        if outcome.name != "bound":
            self._metrics.bind_latency.forget(call.pod_uid)
        if outcome.name in ("bound", "failed"):
            self._decisions.bind_ended(call.node, call.pod_uid, bound=outcome.name == "bound")
        self._metrics.decided("bind", outcome.name)
        log.log(
            logging.WARNING if outcome.error else logging.INFO,
            "bind pod=%s node=%s cards=%s took_ms=%s outcome=%s error=%r",
            f"{call.pod_namespace}/{call.pod_name}",
            call.node,
            outcome.cards,
            _ms(start),
            outcome.name,
            outcome.error,
        )
        # kube-scheduler binds in the background, so a response that comes a moment later delays no pod.
        return Response(200, scheduler.write_bind_answer(outcome.error), close=isinstance(waiting, Standby), can_wait=True)

    def _inspect(self, profile: Profile | None, node: str) -> Response | Awaitable[Response]:
        if not node:
            return self._inspect_all(profile)
        if self._ledger.node(node) is None:
            near = _nearest(node, self._ledger.known_nodes)
            hint = f"; did you mean {near}?" if near else ""
            return _json(404, {"nodes": [], "error": f"node {node[:253]!r} is not known{hint}"})
        return _json(200, self._shown(profile, [node]))

    async def _inspect_all(self, profile: Profile | None) -> Response:
        """A few nodes at a time, as metrics are: all nodes of a large cluster at once would block the loop for half a second."""
        names = [node.name for node in self._ledger.nodes()]
        parts: list[bytes] = []
        for start in range(0, len(names), card_metrics.NODES_AT_ONCE):
            shown = self._shown(profile, names[start : start + card_metrics.NODES_AT_ONCE])
            if text := orjson.dumps(shown["nodes"])[1:-1]:
                parts.append(b"," + text if parts else text)
            await asyncio.sleep(0)
        return Response(200, b'{"nodes":[', more=[*parts, b"]}"])

    def _shown(self, profile: Profile | None, nodes: Sequence[str]) -> dict[str, Any]:
        shown = rows(self._ledger, nodes)
        return inspect_json.neutral(shown) if profile is None else inspect_json.dialect(shown, profile)

    async def _metrics_page(self) -> Response:
        """Concurrent scrapes share one copy of the card metrics, which are large. Standbys have none: sums would count twice."""
        if isinstance(self._not_ready(), Standby):
            return Response(200, self._metrics.text(), METRICS)
        if self._card_metrics is None:
            page = card_metrics.page(self._ledger, only_whole=self._only_whole, profiles=self._profiles)
            self._card_metrics = asyncio.ensure_future(page)
            self._card_metrics.add_done_callback(lambda _: setattr(self, "_card_metrics", None))
        cards = await asyncio.shield(self._card_metrics)
        return Response(200, self._metrics.text(), METRICS, more=cards)

    def _readyz(self) -> Response:
        """A standby is ready: its ledger is complete. Which extender decides is /leaderz."""
        waiting = self._not_ready()
        if isinstance(waiting, Standby) or (waiting is not None and waiting.warm):
            return _text(200, f"ok; standby: {waiting.error}")
        return _text(503, f"not ready: {waiting.what} not {waiting.done} yet") if waiting else _text(200, "ok")

    def _leaderz(self) -> Response:
        """For load balancers: 200 from the one extender that decides."""
        waiting = self._not_ready()
        return _text(503, waiting.error) if waiting else _text(200, "ok")

    def _respond_unreadable(self, verb: str, error: UnreadableError) -> Response:
        log.warning("%s outcome=unreadable problem=%r", verb, str(error))
        self._metrics.decided(verb, "unreadable")
        return _refusal(verb, str(error))

    def _respond_not_ready(self, verb: str, pod: PodToSchedule, waiting: NotReady | Standby) -> Response:
        self._metrics.decided(verb, "not-ready")
        log.info("%s pod=%s outcome=not-ready", verb, _pod(pod))
        response = _refusal(verb, waiting.error, status=503)
        # kube-scheduler would send its next call over the same connection; a new one leads to the holder.
        return msgspec.structs.replace(response, close=True) if isinstance(waiting, Standby) else response


def _nearest(name: str, known: Iterable[str]) -> str:
    """The most similar of some names that begin or end like this one: comparing all of thousands would take seconds."""
    if len(name) > MAX_NAME_LENGTH:
        return ""
    half = max(1, len(name) // 2)
    head, tail = name[:half], name[-half:]
    alike = islice((each for each in known if each.startswith(head) or each.endswith(tail)), MAX_COMPARED_NAMES)
    return next(iter(get_close_matches(name, alike, n=1)), "")


def _pod(pod: PodToSchedule) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _refused(counts: Mapping[Reason, int] | None) -> str:
    return UNCOUNTED if counts is None else ",".join(f"{reason.value}:{count}" for reason, count in counts.items())


def _ms(start: float) -> float:
    return round((time.perf_counter() - start) * 1000, 2)


def _text(status: int, text: str) -> Response:
    return Response(status, text.encode(), TEXT)


def _json(status: int, value: object) -> Response:
    return Response(status, orjson.dumps(value))


def _wrong_method(method: str, path: str, right: str) -> Response:
    return error_response(405, f"{path[:200]} takes {right}, not {method[:20]}")


def _refusal(verb: str, error: str, *, status: int = 400) -> Response:
    """The error in the field where kube-scheduler reads it."""
    if verb == "filter":
        return Response(200, scheduler.write_filter_error(error))
    if verb == "bind":
        return Response(200, scheduler.write_bind_answer(error))
    return error_response(status, error)
