"""Gangs on a real control plane, scheduled by the Workload API of kube-scheduler or by the coscheduling plugin.

Belongs here: what differs between the two, creating gangs and counting their bound members. Never: assertions about the product.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cluster.build import binaries
from cluster.components import extender_entry
from tests.e2e.scheduling_cluster import MANAGED, Object, SchedulingCluster, names
from tests.e2e.test_rush import CARDS, MEMORY, SIZE

UNITS: Final = 9  # of 16: one pod a card, though kube-scheduler's sum for a node has space for fourteen
WHOLE: Final = "enflame.com/gcu"
GATES: Final = "--feature-gates=GenericWorkload=true,GangScheduling=true"
NOBODY: Final = "nobody"  # a scheduler that does not run
_PROGRAM: Final = "scheduler-with-plugins"
_GROUP: Final = "scheduling.x-k8s.io"


@dataclass(frozen=True, slots=True)
class GangApi:
    """How a group is declared and who schedules it."""

    name: str
    version: str  # of the PodGroup

    @property
    def groups(self) -> str:
        return f"/apis/{self.version}/namespaces/default/podgroups"

    def spec(self, least: int, wait_s: int) -> Object:
        raise NotImplementedError

    def membership(self, group: str) -> Object:
        """What makes a pod a member, as arguments of `SchedulingCluster.pod`."""
        raise NotImplementedError

    def start_scheduler(self, cluster: SchedulingCluster) -> None:
        raise NotImplementedError


class Workload(GangApi):
    def spec(self, least: int, wait_s: int) -> Object:
        return {"schedulingPolicy": {"gang": {"minCount": least}}}

    def membership(self, group: str) -> Object:
        return {"schedulingGroup": {"podGroupName": group}}

    def start_scheduler(self, cluster: SchedulingCluster) -> None:
        cluster.scheduler = cluster.plane.start_scheduler(_configuration(cluster), args=[GATES])


class Coscheduling(GangApi):
    def spec(self, least: int, wait_s: int) -> Object:
        return {"minMember": least, "scheduleTimeoutSeconds": wait_s}

    def membership(self, group: str) -> Object:
        return {"labels": {f"{_GROUP}/pod-group": group}}

    def start_scheduler(self, cluster: SchedulingCluster) -> None:
        program = binaries([_PROGRAM])[_PROGRAM]
        definition = program.parent / "scheduler-plugins-crds" / f"{_GROUP}_podgroups.yaml"
        cluster.plane.kubectl("apply", "--server-side", f"--filename={definition}")
        cluster.plane.kubectl("wait", "--for=condition=Established", "--timeout=300s", "crd", f"podgroups.{_GROUP}")
        cluster.plane.kubectl("apply", "--filename=-", stdin=json.dumps(_rights()))
        plugin = [{"name": "Coscheduling"}]
        plugins = {"multiPoint": {"enabled": plugin}, "queueSort": {"enabled": plugin, "disabled": [{"name": "*"}]}}
        profile = {"schedulerName": "default-scheduler", "plugins": plugins}
        cluster.scheduler = cluster.plane.start_scheduler(_configuration(cluster, profiles=[profile]), program=program)


WORKLOAD: Final = Workload("workload", "scheduling.k8s.io/v1alpha2")
COSCHEDULING: Final = Coscheduling("coscheduling", f"{_GROUP}/v1alpha1")


class GangCluster:
    """One test's gangs."""

    def __init__(self, cluster: SchedulingCluster, api: GangApi) -> None:
        self.cluster = cluster
        self.api = api

    async def nodes(self, count: int) -> None:
        """Nodes of eight cards, for slices and whole cards."""
        entries = [{"index": index, "id": f"GCU-{index}", "size": SIZE} for index in range(CARDS)]
        amounts = {MEMORY: CARDS * SIZE, WHOLE: CARDS, "enflame.com/gcu-count": CARDS}
        inventory = {"enflame": {"cards": entries}}
        await asyncio.gather(*(self.cluster.node(name, amounts, inventory=inventory) for name in names("n", range(count))))

    async def gang(
        self,
        name: str,
        members: int,
        *,
        least: int | None = None,
        limits: Mapping[str, int] | None = None,
        wait_s: int = 60,
        absent: int = 0,
    ) -> None:
        """A PodGroup that needs `least` of its members at once, or all of them; `wait_s` is how long coscheduling waits for them.

        `absent` more members are there, but no scheduler ever sees them.
        """
        content = {
            "apiVersion": self.api.version,
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": self.api.spec(members + absent if least is None else least, wait_s),
        }
        await self.cluster.create(self.api.groups, content)
        pods = [(number, NOBODY) for number in range(members, members + absent)]
        pods += [(number, "") for number in range(members)]
        await asyncio.gather(*(self.member(name, number, limits, scheduler) for number, scheduler in pods))

    async def member(self, gang: str, number: int, limits: Mapping[str, int] | None = None, scheduler: str = "") -> None:
        more: dict[str, Any] = self.api.membership(gang)
        if scheduler:
            more["schedulerName"] = scheduler
        await self.cluster.pod(f"{gang}{number}", limits or {MEMORY: UNITS}, **more)

    async def bound(self, gang: str) -> int:
        """How many of its members have a node."""
        pods = await self.cluster.pods()
        return sum("nodeName" in pod["spec"] for name, pod in pods.items() if name.startswith(gang))

    async def delete(self, gang: str, numbers: Iterable[int]) -> None:
        await asyncio.gather(*(self.cluster.delete(f"/api/v1/namespaces/default/pods/{name}") for name in names(gang, numbers)))

    async def held(self, cards: int) -> None:
        """Wait until the extender counts so many cards as used."""

        def used(answer: Object) -> bool:
            return sum(bool(card["usedGCU"]) for node in answer["nodes"] for card in node["devices"]) == cards

        await self.cluster.inspected("/gcushare-scheduler/inspect", used, f"{cards} cards are held")

    async def clear(self) -> None:
        """Remove the groups; the cluster removes the pods."""
        await self.cluster.client.request("DELETE", self.api.groups)


def _configuration(cluster: SchedulingCluster, **more: object) -> dict[str, object]:
    entry = extender_entry(f"{cluster.extender_url}/accelshare", MANAGED)
    return {"percentageOfNodesToScore": 100, "extenders": [entry], **more}


def _rights() -> Object:
    """What the plugin reads, beyond what every kube-scheduler may."""
    rbac, name = "rbac.authorization.k8s.io", "coscheduling"
    rule = {"apiGroups": [_GROUP], "resources": ["podgroups"], "verbs": ["get", "list", "watch"]}
    role = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]}
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "system:kube-scheduler"}],
    }
    return {"apiVersion": "v1", "kind": "List", "items": [role, binding]}
