"""The table of the doctor's checks. Each is a function from a live cluster to findings.

Belongs here: the table, and the checks of preflight that also matter in a running cluster. Never: reading a cluster.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from accelshare.doctor.checks import extenders, nodes, pods, scheduler
from accelshare.doctor.findings import Finding, sorted_findings
from accelshare.doctor.live_cluster import CONFIG_MAPS, DAEMON_SETS, DEPLOYMENTS, LEASES, NODES, PODS, SERVICES, LiveCluster
from accelshare.install.preflight import checks as preflight
from accelshare.install.preflight.findings import Grade

CheckFunction = Callable[[LiveCluster], Iterator[Finding]]
_BASE: Final = (NODES, PODS, DEPLOYMENTS, DAEMON_SETS)


@dataclass(frozen=True, slots=True)
class Check:
    """One check, and the parts of the cluster without which it would be a guess."""

    run: CheckFunction
    needs: tuple[str, ...]


def _of_preflight(name: str, shown: str = "") -> CheckFunction:
    """A check of preflight: what it warns of is a finding, what is fine or only noted is none."""

    def run(live: LiveCluster) -> Iterator[Finding]:
        chosen = [check for check in preflight.chosen([name]) if check.run is not preflight.check_unread]
        for each in preflight.findings(chosen, live.snapshot, live.catalog):
            if each.grade in (Grade.WARNING, Grade.PROBLEM):
                yield Finding(
                    shown or name, each.grade, "cluster", each.message, "; ".join(each.do) or "see docs/how-to/preflight.md"
                )

    return run


CHECKS: Final[Mapping[str, Check]] = {
    "extender": Check(extenders.check_extender, _BASE),
    "leases": Check(extenders.check_leases, (*_BASE, LEASES)),
    "agents": Check(nodes.check_agents, _BASE),
    "inventories": Check(nodes.check_inventories, _BASE),
    "watches": Check(extenders.check_watches, _BASE),
    "drift": Check(pods.check_drift, _BASE),
    "oversold": Check(pods.check_oversold, _BASE),
    "scheduler": Check(scheduler.check_scheduler, (*_BASE, CONFIG_MAPS)),
    "scheduler-address": Check(scheduler.check_scheduler_address, (*_BASE, SERVICES, CONFIG_MAPS)),
    "certificates": Check(scheduler.check_certificates, ()),
    "versions": Check(extenders.check_versions, _BASE),
    "validator": Check(nodes.check_validator, (NODES,)),
    "tenant-labels": Check(pods.check_tenant_labels, (*_BASE, SERVICES)),
    "clocks": Check(nodes.check_clocks, (LEASES,)),
    "waiting-pods": Check(pods.check_waiting_pods, _BASE),
    # The checks of preflight that can also go wrong after an install.
    "labels": Check(_of_preflight("labels"), (NODES,)),
    "originals": Check(_of_preflight("originals"), (PODS, DEPLOYMENTS, DAEMON_SETS)),
    "cards-in-use": Check(_of_preflight("cards-in-use"), (PODS,)),
    "kubernetes": Check(_of_preflight("versions", "kubernetes"), (NODES,)),
}


def examine(live: LiveCluster) -> list[Finding]:
    """The findings of every check whose parts could be read; problems first."""
    unread = live.unread.keys()
    runnable = (check for check in CHECKS.values() if not any(part in unread for part in check.needs))
    return sorted_findings([finding for check in runnable for finding in check.run(live)])
