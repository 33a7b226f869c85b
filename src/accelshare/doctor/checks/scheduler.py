"""Checks of the way from kube-scheduler to the extender: its configuration, the address that it calls, certificates.

Belongs here: what the cluster's objects show of it. Never: files of hosts (`install/scheduler`).
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from accelshare.doctor.findings import Finding
from accelshare.doctor.live_cluster import EXTENDER, MANAGER, SECOND_SCHEDULER, LiveCluster, title
from accelshare.doctor.objects import LivePod
from accelshare.install.preflight.checks.control_plane import is_configured, is_static_scheduler
from accelshare.install.preflight.findings import Grade
from accelshare.install.preflight.snapshot import Service
from accelshare.install.scheduler.manager.state_configmap import RESTORED, WANTED, has_failed
from accelshare.install.scheduler.plan import CHECKSUM
from accelshare.kube.named_data import Place

STATE: Final = "accelshare-scheduler-config"
# In the message of a pod's condition PodScheduled, as Go's HTTP client writes it.
_FAILED_CALL: Final = re.compile(r'Post "(https?://[^"\s]{1,300})/(?:filter|prioritize|preempt|bind)": ([^\n]{1,200})')
_URL: Final = re.compile(r"urlPrefix: *\"?(https?://[^\s\"]{1,300})")
_NEAR: Final = 6  # renewed when a third of the lifetime is left, so with a sixth left the renewal does not work
_LONGEST: Final = 20_000  # characters of a message or a configuration that are searched
_SERVICE_HOST: Final = re.compile(r"([a-z0-9-]+)\.([a-z0-9-]+)\.svc(?:\..*)?")


def check_scheduler(live: LiveCluster) -> Iterator[Finding]:
    """Whether some kube-scheduler is configured to call the extender."""
    schedulers = [pod for pod in live.pods if is_static_scheduler(pod)]
    configured = [pod for pod in schedulers if CHECKSUM in (pod.metadata.annotations or {})]
    managers = live.ours(MANAGER, live.daemon_sets)
    second = live.ours(SECOND_SCHEDULER, live.deployments)
    if managers:
        yield from _managed(live, schedulers)
    elif second:
        for workload in second:
            if not any(pod.ready for pod in live.pods_of(SECOND_SCHEDULER)):
                namespace, name = workload.metadata.namespace, workload.metadata.name
                what = "the second kube-scheduler has no ready pod: nobody schedules pods that select it"
                fix = f"kubectl describe deployment/{name} -n {namespace}"
                yield Finding("scheduler", Grade.PROBLEM, f"deployment/{namespace}/{name}", what, fix)
    elif schedulers and live.ours(EXTENDER, live.deployments) and not configured and not any(map(is_configured, schedulers)):
        yield from (_not_configured(pod, "it calls no extender") for pod in schedulers)


def _managed(live: LiveCluster, schedulers: list[LivePod]) -> Iterator[Finding]:
    states: dict[str, str] = {}
    for place, data in live.config_maps.items():
        if place.name != STATE:
            continue
        if data.get(WANTED) == RESTORED:
            what = "wants every kube-scheduler restored: none calls the extender"
            fix = f'kubectl patch configmap {STATE} -n {place.namespace} --type merge -p \'{{"data":{{"wanted":"applied"}}}}\''
            yield Finding("scheduler", Grade.PROBLEM, f"configmap/{place.namespace}/{place.name}", what, fix)
        states |= {key.removeprefix("node."): value for key, value in data.items() if key.startswith("node.")}
    for node, state in sorted(states.items()):
        if has_failed(state):
            what = f"the manager could not configure kube-scheduler: {state}"
            yield Finding("scheduler", Grade.PROBLEM, f"node/{node}", what, "accelshare scheduler-config status, on this node")
    for pod in schedulers:
        node = pod.spec.node_name or ""
        if CHECKSUM not in (pod.metadata.annotations or {}) and not has_failed(states.get(node, "")):
            state = states.get(node, "") or "not known: no manager has reported"
            yield _not_configured(pod, f"the manager has not configured it (state: {state})")


def _not_configured(pod: LivePod, why: str) -> Finding:
    what = f"kube-scheduler on {pod.spec.node_name} does not call the extender: {why}"
    fix = "helm upgrade accelshare deploy/chart/accelshare --reuse-values --set scheduler.mode=manager"
    return Finding("scheduler", Grade.PROBLEM, f"pod/{title(pod)}", what, fix)


def check_scheduler_address(live: LiveCluster) -> Iterator[Finding]:
    """Addresses of extenders that kube-scheduler is told to call, and behind which nobody answers."""
    failed: dict[str, tuple[str, list[str]]] = {}
    for pod in live.pods:
        message = (pod.condition("PodScheduled").message or "")[:_LONGEST]
        if not pod.spec.node_name and (call := _FAILED_CALL.search(message)) is not None:
            failed.setdefault(call[1], (call[2], []))[1].append(title(pod))
    for url, (error, pods) in sorted(failed.items()):
        what = f"kube-scheduler calls it for {len(pods)} pods (such as {min(pods)}) and fails: {error}"
        services = ", ".join(f"{each.metadata.namespace}/{each.metadata.name}" for each in live.extender_services)
        fix = f"accelshare scheduler-config status on the control-plane nodes; the extender's Service is {services or 'missing'}"
        yield Finding("scheduler-address", Grade.PROBLEM, url, what, fix)
    for who, namespace, name, port in _targets(live):
        service = _service(live, namespace, name)
        if service is None:
            what = f"it calls the Service {namespace}/{name}, which does not exist"
        elif port not in {each.port for each in service.spec.ports}:
            what = f"it calls port {port} of the Service {namespace}/{name}, which has {_ports(service)}"
        elif not _behind(live, service):
            what = f"it calls the Service {namespace}/{name}, behind which no pod is ready"
        else:
            continue
        fix = f"kubectl get service,pods -n {namespace} -l app.kubernetes.io/component=extender"
        yield Finding("scheduler-address", Grade.PROBLEM, who, what, fix)


def _targets(live: LiveCluster) -> Iterator[tuple[str, str, str, int]]:
    """Who calls which Service and port: second schedulers, and the kube-schedulers that managers configure."""
    for workload in live.ours(SECOND_SCHEDULER, live.deployments):
        place = Place("ConfigMap", workload.metadata.namespace, workload.metadata.name)
        for text in live.config_maps.get(place, {}).values():
            for url in _URL.findall(text[:_LONGEST]):
                target = _service_of(url)
                if target is not None:
                    yield (f"deployment/{workload.metadata.namespace}/{workload.metadata.name}", *target)
    for namespace in live.namespaces:
        flags = {
            (pod.flag("service"), pod.flag("port"))
            for pod in live.pods_of(MANAGER)
            if pod.metadata.namespace == namespace and pod.flag("service")
        }
        for name, port in sorted(flags):
            yield f"daemonset of managers in {namespace}", namespace, name, int(port) if re.fullmatch("[0-9]{1,5}", port) else 0


def _service_of(url: str) -> tuple[str, str, int] | None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    match = _SERVICE_HOST.fullmatch(host)
    return (match[2], match[1], port) if match else None


def _service(live: LiveCluster, namespace: str, name: str) -> Service | None:
    return next((each for each in live.services if (each.metadata.namespace, each.metadata.name) == (namespace, name)), None)


def _ports(service: Service) -> str:
    return ", ".join(str(each.port) for each in service.spec.ports) or "none"


def _behind(live: LiveCluster, service: Service) -> bool:
    """Whether a ready pod is behind the Service. A Service without a selector has addresses that are not judged here.

    Several extenders lead their Service to the holder of their Lease themselves; its selector matches no pod.
    """
    selector = service.spec.selector or {}
    namespace, name = service.metadata.namespace, service.metadata.name
    return not selector or any(
        pod.ready
        and pod.metadata.namespace == namespace
        and (pod.flag("service") == name or selector.items() <= pod.labels.items())
        for pod in live.pods_of(EXTENDER)
    )


def check_certificates(live: LiveCluster) -> Iterator[Finding]:
    for each in live.certificates:
        namespace = each.place.partition("/")[0]
        fix = f"accelshare certificates ensure --namespace {namespace}"
        name = f"secret/{each.place}"
        if each.until is None or each.made is None:
            yield Finding("certificates", Grade.PROBLEM, name, each.problem, fix)
            continue
        left = each.until - live.now
        if left <= timedelta(0):
            what = f"its certificate ended on {each.until:%Y-%m-%d %H:%M} UTC: kube-scheduler cannot call the extender"
            yield Finding("certificates", Grade.PROBLEM, name, what, fix)
        elif left < (each.until - each.made) / _NEAR:
            what = f"its certificate ends on {each.until:%Y-%m-%d %H:%M} UTC and was not renewed"
            yield Finding("certificates", Grade.WARNING, name, what, fix)
