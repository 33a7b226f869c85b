"""Asks the nodes' agents who uses their cards, through the API server's proxy to their pods.

Belongs here: finding the agents, asking several at once, and why a node did not answer. Never: tables, a write.

Neither Prometheus nor an object of the API server is needed, and nothing is asked unless somebody looks. Any user can label a pod
as an agent, so a node with agents of several namespaces is not asked.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from threading import Event
from typing import Final, NamedTuple

import msgspec

from accelshare.kube import paths
from accelshare.kube.errors import ApiError, Forbidden, KubeError, NotFound, Unreachable
from accelshare.kube.sync_client import SyncClient
from accelshare.wire import usage
from accelshare.wire.decoding import Decoder, UnreadableError
from accelshare.wire.pods import AGENT_LABEL
from accelshare.wire.usage import NodeUse

MOST_AT_ONCE: Final = 16
ANSWER_S: Final = 3.0  # for one agent
ALL_ANSWERS_S: Final = 10.0  # for all of them
FRESH_S: Final = 10.0  # agents sample every 15 s, so a repeated view need not ask more often
MOST_NOTES: Final = 3
_PORT_NAME: Final = "probes"


class _Port(msgspec.Struct, rename="camel"):
    name: str | None = None
    container_port: int = 0


class _Container(msgspec.Struct):
    ports: list[_Port] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    containers: list[_Container] | None = None


class _Metadata(msgspec.Struct):
    namespace: str
    name: str


class _Status(msgspec.Struct):
    phase: str | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status | None = None


_decode_agent: Final = Decoder(_Pod).decode


class AgentPod(NamedTuple):
    """The agent's pod on one node."""

    namespace: str
    name: str
    port: int

    @property
    def path(self) -> str:
        at = paths.pod(self.namespace, self.name).rpartition("/")[0]
        return f"{at}/http:{self.name}:{self.port}/proxy{usage.PATH}"


class ClusterUse(NamedTuple):
    """What the agents answered, by node, and one line for each reason why some did not."""

    nodes: Mapping[str, NodeUse]
    notes: tuple[str, ...] = ()


NOT_ASKED: Final = ClusterUse({})


class UsageReader:
    def __init__(self, client: SyncClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._last: tuple[float, frozenset[str], ClusterUse] | None = None
        self._not_sampling: frozenset[AgentPod] = frozenset()  # asked again only when they are replaced

    def read(self, nodes: Collection[str]) -> ClusterUse:
        """The use of these nodes. Never raises: what cannot be learnt is a note."""
        wanted = frozenset(nodes)
        if self._last is not None and self._last[1] == wanted and self._clock() - self._last[0] < FRESH_S:
            return self._last[2]
        found = self._read(wanted)
        self._last = self._clock(), wanted, found
        return found

    def _read(self, nodes: frozenset[str]) -> ClusterUse:
        if not nodes:
            return NOT_ASKED
        params = {"labelSelector": AGENT_LABEL}
        if len(nodes) == 1:
            params["fieldSelector"] = f"spec.nodeName={next(iter(nodes))}"
        try:
            agents, notes = find_agents(self._client.items("/api/v1/pods", params), nodes)
        except KubeError as error:
            return ClusterUse({}, (f"use is not shown: the agents' pods cannot be listed: {_why(error)}",))
        answers = self._ask({node: agent for node, agent in agents.items() if agent not in self._not_sampling})
        self._not_sampling = frozenset(agent for node, agent in agents.items() if answers.get(node) is None)
        return ClusterUse(
            {node: answer for node, answer in answers.items() if isinstance(answer, NodeUse)},
            (*notes, *_notes({node: answer for node, answer in answers.items() if isinstance(answer, str)})),
        )

    def _ask(self, agents: Mapping[str, AgentPod]) -> dict[str, NodeUse | str | None]:
        """By node: its use, or why it is not known; None if its agent does not sample."""
        stop = Event()  # nobody may ask, so that further requests would be refused, too
        deadline = self._clock() + ALL_ANSWERS_S
        clients: SimpleQueue[SyncClient] = SimpleQueue()
        with ExitStack() as opened:
            count = min(MOST_AT_ONCE, len(agents))
            for _ in range(count):
                clients.put(opened.enter_context(self._client.another(timeout_s=ANSWER_S)))

            def ask(agent: AgentPod) -> NodeUse | str | None:
                if stop.is_set() or self._clock() > deadline:
                    return "" if stop.is_set() else f"it was not asked within {ALL_ANSWERS_S:g} s"
                client = clients.get()
                try:
                    return usage.decoder.decode(client.get(agent.path, most_bytes=usage.LONGEST))
                except NotFound:
                    return None
                except Forbidden as error:
                    stop.set()
                    return _why(error)
                except KubeError as error:
                    return _why(error)
                except UnreadableError as error:
                    return f"its agent's answer cannot be read: {error}"
                finally:
                    clients.put(client)

            if not count:
                return {}
            with ThreadPoolExecutor(count) as pool:
                return dict(zip(agents, pool.map(ask, agents.values()), strict=True))


def find_agents(pods: Iterable[msgspec.Raw], nodes: Collection[str] | None) -> tuple[dict[str, AgentPod], list[str]]:
    """The agent of each of these nodes, or of all, and notes about nodes whose agent is not certain."""
    found: dict[str, list[AgentPod]] = {}
    for raw in pods:
        try:
            pod = _decode_agent(raw)
        except UnreadableError:
            continue
        ports = [port for container in pod.spec.containers or () for port in container.ports or ()]
        port = next((port.container_port for port in ports if port.name == _PORT_NAME), 0)
        running = pod.status is not None and pod.status.phase == "Running"
        node = pod.spec.node_name or ""
        if (nodes is None or node in nodes) and running and 0 < port < 65536:
            found.setdefault(node, []).append(AgentPod(pod.metadata.namespace, pod.metadata.name, port))
    agents: dict[str, AgentPod] = {}
    notes: list[str] = []
    for node, candidates in sorted(found.items()):
        namespaces = sorted({agent.namespace for agent in candidates})
        if len(namespaces) > 1:
            notes.append(f"{node}: use is not shown: pods of the namespaces {', '.join(namespaces)} claim to be its agent")
        else:
            agents[node] = max(candidates, key=lambda agent: agent.name)
    return agents, notes


def _why(error: KubeError) -> str:
    """In one line."""
    if isinstance(error, Forbidden):
        return "you may not list pods, or get pods/proxy in the agents' namespace (--no-usage does not ask)"
    if isinstance(error, Unreachable):
        return f"no answer within {ANSWER_S:g} s (does a NetworkPolicy keep the API server from the agents' port?)"
    return f"its agent cannot be asked: {error.message}" if isinstance(error, ApiError) else str(error)


def _notes(problems: Mapping[str, str]) -> list[str]:
    """One line for each reason, with the nodes that have it."""
    by_reason: dict[str, list[str]] = {}
    for node, problem in problems.items():
        if problem:
            by_reason.setdefault(problem, []).append(node)
    lines = []
    for problem, nodes in list(by_reason.items())[:MOST_NOTES]:
        more = f" and {len(nodes) - 3} more nodes" if len(nodes) > 3 else ""
        lines.append(f"{', '.join(nodes[:3])}{more}: use is not shown: {problem}")
    left = len(by_reason) - MOST_NOTES
    return [*lines, f"use is not shown for {left} more reasons"] if left > 0 else lines
