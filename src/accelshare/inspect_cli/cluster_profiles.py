"""Profiles of the cluster's own, for commands that were not given them: read from the ConfigMap that the chart makes.

Belongs here: finding and reading that ConfigMap, and why it gave nothing. Never: what a profile may contain (vendors/), a write.

It is read only if nodes have cards of an unknown kind. Its content is checked like files. It decides nothing but what is shown.
"""

from collections.abc import Collection, Iterable
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from accelshare.kube import paths
from accelshare.kube.errors import ApiError, Forbidden, KubeError, NotFound
from accelshare.kube.sync_client import SyncClient
from accelshare.terminal import visible
from accelshare.vendors.catalog import Catalog, extended
from accelshare.vendors.problems import Problem
from accelshare.wire.decoding import Decoder, UnreadableError
from accelshare.wire.pods import AGENT_LABEL

NAME: Final = "accelshare-profiles"
DEFAULT_NAMESPACE: Final = "kube-system"  # where the chart is installed, unless there are agents elsewhere
MOST_BYTES: Final = 4 * 2**20  # the API server keeps at most 1 MiB of a ConfigMap; JSON may need more
MOST_PROBLEMS: Final = 3
LONGEST_PROBLEM: Final = 500  # characters
LONGEST_NAME: Final = 63


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


_decode: Final = Decoder(_ConfigMap).decode


class ClusterProfiles:
    """The catalog of one command, which grows by the cluster's own profiles if that is needed."""

    def __init__(self, client: SyncClient, catalog: Catalog, directories: Iterable[Path]) -> None:
        self.catalog = catalog
        self.problems: tuple[str, ...] = ()  # of the profiles that were read
        self.failure = ""  # why nothing was read
        self._client = client
        self._directories = tuple(directories)
        self._sought: frozenset[str] = frozenset()

    def seek(self, kinds: Collection[str], nodes: Collection[str] | None = None) -> None:
        """Read the cluster's profiles if a kind is unknown that was not sought before. `nodes`: those that have such kinds."""
        unknown = frozenset(kind for kind in kinds if kind not in self.catalog)
        if not unknown - self._sought:
            return
        self._sought |= unknown
        self.problems = ()
        try:
            namespace = self._namespace(nodes)
            place = f"ConfigMap {namespace}/{NAME}"
            texts = self._read(namespace, place)
        except _NotReadError as error:
            self.failure = str(error)
            return
        self.catalog, problems = extended(self.catalog, place, texts, self._directories)
        self.problems = tuple(_lines(problems))
        missing = ", ".join(sorted(kind[:LONGEST_NAME] for kind in unknown if kind not in self.catalog)[:MOST_PROBLEMS])
        self.failure = f"the {place} has no usable profile {missing}" if missing else ""

    def _namespace(self, nodes: Collection[str] | None) -> str:
        """The namespace of the agents. Any user can label a pod as an agent, so several namespaces name none."""
        from accelshare.inspect_cli.usage_reader import find_agents

        try:
            agents, claims = find_agents(self._client.items("/api/v1/pods", {"labelSelector": AGENT_LABEL}), nodes)
        except KubeError:
            return DEFAULT_NAMESPACE
        namespaces = sorted({agent.namespace for agent in agents.values()})
        if claims or len(namespaces) > 1:
            raise _NotReadError(f"pods of several namespaces claim to be agents, so the ConfigMap {NAME} was not read")
        return namespaces[0] if namespaces else DEFAULT_NAMESPACE

    def _read(self, namespace: str, place: str) -> dict[str, str]:
        try:
            return _decode(self._client.get(paths.config_map(namespace, NAME), most_bytes=MOST_BYTES)).data or {}
        except NotFound:
            raise _NotReadError(f"there is no {place}") from None
        except Forbidden:
            raise _NotReadError(f"you may not get the {place}, in which the chart keeps them") from None
        except KubeError as error:
            why = error.message if isinstance(error, ApiError) else str(error)
            raise _NotReadError(visible(f"the {place} cannot be read: {why}")[:LONGEST_PROBLEM]) from error
        except UnreadableError as error:
            raise _NotReadError(visible(f"the {place} cannot be read: {error}")[:LONGEST_PROBLEM]) from error


class _NotReadError(Exception):
    """Why the ConfigMap was not read, in one line."""


def _lines(problems: list[Problem]) -> Iterable[str]:
    for problem in islice(problems, MOST_PROBLEMS):
        text = str(problem)
        yield text if len(text) <= LONGEST_PROBLEM else text[:LONGEST_PROBLEM] + "…"
    if len(problems) > MOST_PROBLEMS:
        yield f"{len(problems) - MOST_PROBLEMS} more problems of profiles"
