"""Reads everything that the checks need from the API server, once.

Belongs here: the requests, and what the API server refuses as `unread`. Never: judging, writing.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from accelshare.doctor.live_cluster import (
    AGENT,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EXTENDER,
    LEASES,
    MANAGER,
    NODES,
    PAGES,
    PODS,
    SECOND_SCHEDULER,
    SECRETS,
    SERVICES,
    LiveCertificate,
    LiveCluster,
    title,
)
from accelshare.doctor.objects import LiveLease, LiveNode, LivePod
from accelshare.install.certificates import x509
from accelshare.install.certificates.secrets import Names
from accelshare.install.errors import CertificateError
from accelshare.install.preflight.snapshot import NOT_ENDED, ClusterPart, Service, SnapshotReader, Workload
from accelshare.kube import named_data, paths
from accelshare.kube.client import Client
from accelshare.kube.errors import BadAnswer, Forbidden, KubeError
from accelshare.kube.named_data import Place
from accelshare.vendors.catalog import Catalog

STATE_CONFIGMAP: Final = "accelshare-scheduler-config"
MOST_PAGES: Final = 2_000  # agents whose metrics are read
AT_ONCE: Final = 16
PAGE_S: Final = 3.0  # for one page
ALL_PAGES_S: Final = 10.0
# A node can answer in place of its agent. An extender has series of every card and pod of the cluster.
LONGEST_PAGES: Final = {EXTENDER: 128 << 20, AGENT: 4 << 20}
# The series that the checks use; all others are skipped.
_SERIES: Final = re.compile(
    r"^(accelshare_(?:watch_up|watch_silent_seconds|agent_watch_current)(?:\{[^}\n]{0,200}\})?) ([0-9.e+-]{1,30})$",
    re.MULTILINE,
)
Say = Callable[[str], None]


async def read(client: Client, catalog: Catalog, *, now: datetime, patience: timedelta, say: Say) -> LiveCluster:
    """The cluster as it is now. Raises KubeError if the API server is unreachable or rejects the credentials."""
    reader = SnapshotReader(client, {ClusterPart.VERSION})
    say("nodes")
    version = await reader.version()
    nodes = await reader.listed(NODES, "/api/v1/nodes", LiveNode)
    say("pods")
    pods = await reader.listed(PODS, "/api/v1/pods", LivePod, NOT_ENDED)
    say("services, workloads and leases")
    live = LiveCluster(
        catalog,
        now,
        version,
        patience,
        nodes,
        pods,
        await reader.listed(SERVICES, "/api/v1/services", Service),
        await reader.listed(DEPLOYMENTS, "/apis/apps/v1/deployments", Workload),
        await reader.listed(DAEMON_SETS, "/apis/apps/v1/daemonsets", Workload),
        await reader.listed(LEASES, "/apis/coordination.k8s.io/v1/leases", LiveLease),
    )
    say("configuration and certificates of accelshare")
    config_maps = await _config_maps(client, live, reader.unread)
    certificates = await _certificates(client, live, reader.unread)
    say("metrics of extenders and agents")
    pages = await _pages(client, live, reader.unread)
    return replace(live, config_maps=config_maps, certificates=certificates, pages=pages, unread=reader.unread)


async def _config_maps(client: Client, live: LiveCluster, unread: dict[str, str]) -> dict[Place, dict[str, str]]:
    """The configuration of second schedulers, and the state that managers write."""
    names = {(each.metadata.namespace, STATE_CONFIGMAP) for each in live.ours(MANAGER, live.daemon_sets)}
    names |= {(each.metadata.namespace, each.metadata.name) for each in live.ours(SECOND_SCHEDULER, live.deployments)}
    found: dict[Place, dict[str, str]] = {}
    for place in (Place("ConfigMap", *each) for each in sorted(names)):
        try:
            stored = await named_data.read(client, place)
        except (Forbidden, BadAnswer) as error:
            unread[CONFIG_MAPS] = str(error)
            continue
        if stored is not None:
            found[place] = dict(stored.data)
    return found


async def _certificates(client: Client, live: LiveCluster, unread: dict[str, str]) -> tuple[LiveCertificate, ...]:
    """The certificates of each installed extender. One without TLS has no Secrets."""
    found: list[LiveCertificate] = []
    for namespace in sorted({each.metadata.namespace for each in live.ours(EXTENDER, live.deployments)}):
        for place in Names(namespace).secrets:
            try:
                stored = await named_data.read(client, place)
            except (Forbidden, BadAnswer) as error:
                unread[SECRETS] = str(error)
                continue
            if stored is not None:
                pem = stored.data.get("tls.crt") or stored.data.get("ca.crt") or ""
                found.append(_certificate(f"{place.namespace}/{place.name}", pem))
    return tuple(found)


def _certificate(place: str, pem: str) -> LiveCertificate:
    try:
        facts = x509.facts(pem)
    except CertificateError as error:
        return LiveCertificate(place, problem=str(error))
    return LiveCertificate(place, facts.made, facts.until)


async def _pages(client: Client, live: LiveCluster, unread: dict[str, str]) -> dict[str, dict[str, float]]:
    """The metrics of extenders and agents, through the API server's proxy to their pods. What does not answer is unread."""
    asked = [(pod, LONGEST_PAGES[EXTENDER]) for pod in live.pods_of(EXTENDER)]
    asked += [(pod, LONGEST_PAGES[AGENT]) for pod in live.agents.values()]
    pods = [(pod, most_bytes) for pod, most_bytes in asked if pod.running and pod.probe_port][:MOST_PAGES]
    found: dict[str, dict[str, float]] = {}
    places = asyncio.Semaphore(AT_ONCE)
    refused = asyncio.Event()  # nobody may ask, so that further requests would be refused, too

    async def ask(pod: LivePod, most_bytes: int) -> None:
        async with places:
            if refused.is_set():
                return
            at = paths.pod(pod.metadata.namespace, pod.metadata.name).rpartition("/")[0]
            path = f"{at}/http:{pod.metadata.name}:{pod.probe_port}/proxy/metrics"
            try:
                async with asyncio.timeout(PAGE_S):
                    body = await client.request("GET", path, timeout_s=PAGE_S, most_bytes=most_bytes)
            except Forbidden as error:
                refused.set()
                unread[PAGES] = str(error)
            except TimeoutError:
                reason = f"{title(pod)} did not answer within {PAGE_S:g} s (a NetworkPolicy may keep the API server away)"
                unread.setdefault(PAGES, reason)
            except KubeError as error:
                unread.setdefault(PAGES, f"{title(pod)}: {error}")
            else:
                found[title(pod)] = series_of(body)

    tasks = [asyncio.create_task(ask(*each)) for each in pods]
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=ALL_PAGES_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if late:
            unread.setdefault(PAGES, f"{len(late)} of {len(pods)} were not asked within {ALL_PAGES_S:g} s")
    return found


def series_of(page: bytes) -> dict[str, float]:
    """The series that the checks use, by name with labels. Lines that are no samples are skipped."""
    found: dict[str, float] = {}
    for name, value in _SERIES.findall(page.decode("utf-8", "replace")):
        try:
            found[name] = float(value)
        except ValueError:
            continue
    return found
