"""The whole product on a real kubelet: image, helm install, the original systems' workloads, failures, helm uninstall.

One installation for the file, with the seeds' workloads on it: whatever happens to us, they must not notice. Each test leaves it
as it found it and can be called alone; the last but one and the one before take it away and put it in by script. The last one
reads in the API server's audit log which rights all that has used.
"""

import asyncio
import json
import os
import re
import shutil
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from accelshare.install.certificates import x509
from cluster.errors import ClusterError
from cluster.local import LocalCluster, accelshare
from cluster.waiting import wait_until_async
from deploy.render import NAMESPACE
from tests.contract.chart.rendered_objects import objects, preset, setting
from tests.contract.test_doctor import run as doctor
from tests.e2e.install.installed_cluster import CLIENT_FILE, MANIFEST, InstalledCluster, Object, Outcome, cards
from tests.e2e.install.pod_traffic import PodTraffic, pods_come_and_go
from tests.e2e.install.rights_audit import accounts, read_audit, unused

pytestmark = pytest.mark.real
GCU = "enflame.com/gcu-memory"
LOST = "was lost to"  # what an extender says of its Lease at its end


@pytest.fixture(scope="module")
def installed_cluster(root: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledCluster]:
    if shutil.which("apt-get") is None:
        pytest.skip("a base image of Debian's packages needs Debian or Ubuntu")
    LocalCluster.take_down()  # whatever another test left: the uninstall is compared with a new cluster
    installed_cluster = InstalledCluster(
        LocalCluster.up(fake_cards=True, audited=True), tmp_path_factory.mktemp("installed_cluster")
    )
    installed_cluster.install()
    installed_cluster.run_seeds_workloads()
    yield installed_cluster
    # kubelet remembers device plugins for five minutes, which would keep the next test waiting.
    LocalCluster.take_down()


def test_helm_test_sees_a_card_of_every_vendor(installed_cluster: InstalledCluster) -> None:
    installed_cluster.local.kubectl("delete", "pod", "stc-example-pod")  # which has the only card of its kind
    output = installed_cluster.helm("test", accelshare.RELEASE, "--timeout=200s")
    assert output.count("Succeeded") == 4, output
    installed_cluster.apply("stream/example.yaml")
    installed_cluster.running("!group", 7)
    configuration = installed_cluster.local.path("/etc/kubernetes/accelshare").rglob("*.yaml")
    assert any("enableHTTPS: true" in file.read_text() for file in configuration)


def test_the_seeds_own_workloads_see_their_cards(installed_cluster: InstalledCluster) -> None:
    pods = installed_cluster.pods("!group")

    def devices(pod: str, namespace: str = "default") -> list[str]:
        listed = installed_cluster.local.exec(pod, "ls", "/dev", namespace=namespace).split()
        return [name for name in listed if name.rstrip("0123456789") in ("gcu", "xpu", "stc") and name[-1].isdigit()]

    assert [devices(f"gcushare-pod-{number}", NAMESPACE) for number in (1, 2, 3)] == [["gcu0"], ["gcu0"], ["gcu1"]]
    assert sorted(devices(name) for name in pods if name.startswith("xpu-pod-")) == [["xpu0"], ["xpu1"]]
    assert devices("xpu-two-cards") == ["xpu2", "xpu3"]
    assert devices("stc-example-pod") == ["stc0"]
    variables = installed_cluster.local.exec("binpack-1-0", "env").splitlines()
    assert {"ALIYUN_COM_GPU_MEM_IDX=0", "ALIYUN_COM_GPU_MEM_POD=3", "ALIYUN_COM_GPU_MEM_DEV=15"} <= set(variables)
    assert installed_cluster.inventory("enflame")["delivery"] == "nri"


def test_the_extender_speaks_only_with_kube_scheduler(installed_cluster: InstalledCluster) -> None:
    """A certificate of another CA, though of the right name, and none at all are refused."""
    path = "/gcushare-scheduler/inspect"
    ours = installed_cluster.secret("accelshare-scheduler-tls")
    assert installed_cluster.extender_status(path, (ours["tls.crt"], ours["tls.key"])) == 200
    now = datetime.now(UTC)
    other = x509.authority("accelshare-ca", now=now, life=timedelta(days=1))
    forged = x509.leaf(other, "client", "kube-scheduler", now=now, life=timedelta(hours=1))
    for pair in ((forged.certificate.encode(), forged.key.encode()), None):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            installed_cluster.extender_status(path, pair)


def test_doctor_finds_nothing_wrong_and_then_names_what_is(installed_cluster: InstalledCluster) -> None:
    """It reads the metrics of every pod of ours. Then no extender is where kube-scheduler calls it, and the node has no agent."""
    healthy = doctor(installed_cluster.local.kubeconfig, "-o", "json")
    assert (healthy.code, healthy.objects(), json.loads(healthy.out)["unread"]) == (0, {}, []), healthy
    kubectl, nowhere = installed_cluster.local.kubectl, "accelshare.io/nowhere"
    agents = ("patch", f"daemonset/{installed_cluster.agent}", f"--namespace={NAMESPACE}", "--type=merge", "--patch")
    scale = ("scale", "deployment/accelshare-extender", f"--namespace={NAMESPACE}")
    address = installed_cluster.read("service", "accelshare-extender")["spec"]["clusterIP"]
    names = {
        "agents": f"node/{installed_cluster.local.node_name}",
        "extender": f"deployment/{NAMESPACE}/accelshare-extender",
        "scheduler-address": f"https://{address}:12345/accelshare",
    }

    def all_named() -> bool:
        result = doctor(installed_cluster.local.kubeconfig, "-o", "json")
        return result.code == 1 and all(name in result.objects().get(check, ()) for check, name in names.items())

    try:
        kubectl(*agents, _runs_where(nowhere, "true"))
        kubectl(*scale, "--replicas=0")
        installed_cluster.create("waits", 1, {GCU: 1})
        installed_cluster.until(all_named, f"doctor names {names}")
    finally:
        kubectl(*agents, _runs_where(nowhere, None))
        kubectl(*scale, "--replicas=2")
    installed_cluster.settle()
    _runs_with_its_card(installed_cluster, "waits")
    installed_cluster.until(lambda: doctor(installed_cluster.local.kubeconfig).code == 0, "doctor finds nothing wrong again")


def _runs_where(label: str, value: str | None) -> str:
    return json.dumps({"spec": {"template": {"spec": {"nodeSelector": {label: value}}}}})


def test_a_new_memory_unit_is_refused_by_helm_while_pods_of_the_old_one_live(installed_cluster: InstalledCluster) -> None:
    """helm fails, prints which pods are in the way, and has changed nothing. In the old unit an upgrade goes through, and who
    runs does not notice."""
    before = _lives(installed_cluster)
    agents = installed_cluster.read("daemonset", installed_cluster.agent)["metadata"]["generation"]
    with pytest.raises(ClusterError) as refused:
        installed_cluster.upgrade({"vendors": {"enflame": {"memoryUnit": "0.1"}}})
    output = str(refused.value)
    assert "UPGRADE FAILED: pre-upgrade hooks failed" in output
    pods = ", ".join(f"{NAMESPACE}/gcushare-pod-{number}" for number in (1, 2, 3))
    node = installed_cluster.local.node_name
    refusal = f"enflame: the memory unit of {node} is '1' and cannot become '0.1' .*: {pods}"
    assert re.search(refusal, output)
    assert "is '1' and cannot become '0.1'" in installed_cluster.job_message("accelshare-memory-units")
    assert installed_cluster.read("daemonset", installed_cluster.agent)["metadata"]["generation"] == agents
    assert installed_cluster.inventory("enflame")["unit"] == "1"

    installed_cluster.upgrade({"agent": {"podAnnotations": {"of": "the next release"}}})
    installed_cluster.settle()
    assert installed_cluster.read("daemonset", installed_cluster.agent)["metadata"]["generation"] == agents + 1
    installed_cluster.create("upgraded", 1, {GCU: 1})
    _runs_with_its_card(installed_cluster, "upgraded")
    assert _lives(installed_cluster) == before


def _runs_with_its_card(installed_cluster: InstalledCluster, group: str) -> None:
    (pod,) = installed_cluster.running(f"group={group}", 1).values()
    assert installed_cluster.sees(pod) == cards(pod) != ""
    installed_cluster.delete(f"group={group}")
    # helm names each pod that is there, and the next test knows which these are.
    installed_cluster.until(lambda: not installed_cluster.pods(f"group={group}"), f"{group} is gone")


def test_certificates_are_renewed_under_load(installed_cluster: InstalledCluster, rush_size: int) -> None:
    """Both leaves at once, in the middle of a rush; kube-scheduler and extender go on with the new ones, unrestarted."""
    client, server = installed_cluster.local.path(CLIENT_FILE).read_bytes(), installed_cluster.served_certificate()
    begun = _begun(installed_cluster)

    def renew() -> None:
        installed_cluster.local.kubectl(
            "delete", "secret", "accelshare-extender-tls", "accelshare-scheduler-tls", f"--namespace={NAMESPACE}"
        )
        installed_cluster.until(
            lambda: installed_cluster.local.path(CLIENT_FILE).read_bytes() != client, "kube-scheduler's files are new"
        )
        # kubelet looks for new Secrets once a minute, or when the pod changes.
        selector = "--selector=app.kubernetes.io/component=extender"
        installed_cluster.local.kubectl("annotate", "pods", selector, f"--namespace={NAMESPACE}", "look=again")
        installed_cluster.until(
            lambda: installed_cluster.served_certificate() != server, "the extender shows its new certificate", limit_s=200
        )

    assert installed_cluster.rush("renewal", rush_size, {GCU: 1}, renew) == Outcome({}, {})
    # Under load an extender may lose its Lease, and then it ends; that has nothing to do with its certificate.
    restarted = {name: status for name, status in _begun(installed_cluster).items() if status["state"] != begun[name]["state"]}
    assert [name for name, status in restarted.items() if LOST not in json.dumps(status["lastState"])] == []
    ours = installed_cluster.secret("accelshare-scheduler-tls")
    assert installed_cluster.extender_status("/gcushare-scheduler/inspect", (ours["tls.crt"], ours["tls.key"])) == 200
    # What comes now is asked for with the new certificate.
    installed_cluster.create("renewed", 1, {GCU: 1})
    _runs_with_its_card(installed_cluster, "renewed")


def _begun(installed_cluster: InstalledCluster) -> dict[str, Object]:
    """The state of each container of extender and kube-scheduler, with the moment at which it began."""
    selectors = ("app.kubernetes.io/component=extender", "component=kube-scheduler")
    pods = [pod for selector in selectors for pod in installed_cluster.pods(selector, NAMESPACE).values()]
    return {pod["metadata"]["name"]: status for pod in pods for status in pod["status"]["containerStatuses"]}


def test_a_manifest_that_kubeadm_upgrade_wrote_anew_is_healed(installed_cluster: InstalledCluster) -> None:
    manifest = installed_cluster.local.path(MANIFEST)
    fresh = manifest.parent.with_name("kube-scheduler.fresh.yaml")
    fresh.write_bytes(installed_cluster.before.manifest)
    fresh.chmod(0o600)
    os.replace(fresh, manifest)  # noqa: PTH105 – nobody may read half of it
    installed_cluster.until(lambda: manifest.read_bytes() != installed_cluster.before.manifest, "the manager has put us in again")
    installed_cluster.create("healed", 1, {GCU: 1})
    _runs_with_its_card(installed_cluster, "healed")


MOST_WAIT_S = 60.0  # to be bound while the node's only agent is replaced; on a busy machine its container starts slowly
MOST_WAIT_BESIDE_S = 30.0  # without that time: an extender's failover takes 5 s, and kube-scheduler's next try up to 10 s


async def test_helm_upgrade_and_rollback_lose_no_pod_under_load(installed_cluster: InstalledCluster, rounds: int) -> None:
    """Pods come and go while extender, agent and manager get another image, and the one before: none fails, waits for long, is
    without its card or on a card that is full, and those that run do not notice."""
    before = _lives(installed_cluster)
    image = json.loads((installed_cluster.local.state / "values.json").read_text())["image"]
    name = f"docker.io/library/{image['repository']}"
    installed_cluster.local.ctr("images", "tag", "--force", f"{name}:{image['tag']}", f"{name}:next")
    async with pods_come_and_go(installed_cluster) as traffic:
        for _ in range(rounds):
            await _more_pods(installed_cluster, traffic)
            await asyncio.to_thread(installed_cluster.upgrade, {"image": {"tag": "next"}})
            await asyncio.to_thread(installed_cluster.settle)
            assert _images(installed_cluster) == {f"{image['repository']}:next"}
            await _more_pods(installed_cluster, traffic)
            await asyncio.to_thread(installed_cluster.helm, "rollback", accelshare.RELEASE, "--wait", "--timeout=480s")
            await asyncio.to_thread(installed_cluster.settle)
            assert _images(installed_cluster) == {f"{image['repository']}:{image['tag']}"}
    longest, beside = max(traffic.waits_s(with_card=True)), max(traffic.waits_beside_agents_s())
    plain = max(traffic.waits_s(with_card=False))
    print(
        f"{traffic.done} pairs of pods; longest time to a bind: {longest:.1f} s with a card, {beside:.1f} s of it while an agent "
        f"was ready, {plain:.1f} s without a card; no agent was ready for {traffic.agent_away_s():.1f} s"
    )
    assert (traffic.failed, traffic.wrong, traffic.history.findings) == ({}, {}, [])
    assert traffic.history.pending() == []
    assert traffic.done == traffic.created >= 10
    assert longest < MOST_WAIT_S
    assert beside < MOST_WAIT_BESIDE_S
    assert _lives(installed_cluster) == before


async def _more_pods(installed_cluster: InstalledCluster, traffic: PodTraffic) -> None:
    """So that the next step meets pods in every state."""
    enough = traffic.done + 3
    await wait_until_async(lambda: traffic.done >= enough, "three more pairs have left", evidence=installed_cluster.evidence)


def _images(installed_cluster: InstalledCluster) -> set[str]:
    """Of extender, agent and manager; a pod that ends does not count."""
    pods = installed_cluster.pods("app.kubernetes.io/part-of=accelshare", NAMESPACE).values()
    staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] == "Running"]
    return {container["image"] for pod in staying for container in pod["spec"]["containers"]}


def _restart_agents(installed_cluster: InstalledCluster) -> None:
    installed_cluster.local.kubectl("rollout", "restart", f"daemonset/{installed_cluster.agent}", f"--namespace={NAMESPACE}")
    installed_cluster.agents_ready()


def test_a_rush_while_agents_are_replaced_and_kubelet_restarts(
    installed_cluster: InstalledCluster, rounds: int, rush_size: int
) -> None:
    """Rushes of pods by the container runtime: no pod fails or gets a wrong card, and running pods are not affected."""
    before = _lives(installed_cluster)
    for turn, happens in enumerate((_restart_agents, _restart_kubelet) * max(1, rounds // 3)):
        outcome = installed_cluster.rush(f"nri-{turn}", rush_size, {GCU: 1}, partial(happens, installed_cluster))
        assert outcome == Outcome({}, {}), f"{happens.__name__}: {outcome}"
    assert _lives(installed_cluster) == before


def _restart_kubelet(installed_cluster: InstalledCluster) -> None:
    installed_cluster.local.restart_kubelet()


def _lives(installed_cluster: InstalledCluster) -> dict[str, object]:
    """The containers of the seeds' workloads: who they are, and how often they were started."""
    beside = {n: p for n, p in installed_cluster.pods("", NAMESPACE).items() if n.startswith("gcushare-pod")}
    pods = {**installed_cluster.pods("!group"), **beside}
    return {
        name: [(status["containerID"], status["restartCount"]) for status in pod["status"]["containerStatuses"]]
        for name, pod in pods.items()
    }


def test_helm_uninstall_leaves_nothing_and_running_pods_go_on(installed_cluster: InstalledCluster) -> None:
    """kube-scheduler's manifest byte for byte, files on the host, the node's labels, annotations and amounts, all objects."""
    before = _lives(installed_cluster)
    assert len(before) == 10
    installed_cluster.helm("uninstall", accelshare.RELEASE, "--timeout=300s")
    installed_cluster.until(lambda: not installed_cluster.state().ours, "the last pods of ours have ended")
    assert installed_cluster.state() == installed_cluster.before
    assert _lives(installed_cluster) == before
    assert installed_cluster.local.exec("gcushare-pod-1", "ls", "/dev/gcu0", namespace=NAMESPACE) == "/dev/gcu0\n"
    _kubelet_takes_them_back(installed_cluster, "after-helm")
    assert _lives(installed_cluster) == before


def _kubelet_takes_them_back(installed_cluster: InstalledCluster, group: str) -> None:
    """A kubelet that starts anew looks at all its pods as if they came just now; then it takes another one."""
    installed_cluster.local.restart_kubelet()
    installed_cluster.create(group, 1, {})
    installed_cluster.running(f"group={group}", 1)
    installed_cluster.delete(f"group={group}")


def test_the_scripts_and_a_rush_by_device_plugins(installed_cluster: InstalledCluster, rush_size: int) -> None:
    """deploy.sh as the Enflame seed's users know it; kubelet's device plugins deliver; delete.sh.

    kubelet asks its plugins once, when it takes a pod, and never again: whoever is bound while nobody answers is dead. An agent
    that is replaced leaves nobody like that behind; where agents are killed, tests/e2e/node/test_kills.py counts them. For the
    same reason pods of the container runtime's time are ended first: a kubelet that starts anew would not know their devices.
    """
    installed_cluster.clear()
    if installed_cluster.helm("list", "--short"):
        installed_cluster.helm("uninstall", accelshare.RELEASE, "--timeout=300s")
    accelshare.provide(installed_cluster.local, print)
    installed_cluster.agent = "gcushare-device-plugin"
    values = ("--values", str(installed_cluster.local.state / "values.json"), "--set", "agent.delivery=device-plugin")
    logs = ("--set", f"logs.directory={installed_cluster.local.state}/logs-of-ours")
    output = installed_cluster.script("deploy.sh", "--preset", "gcushare", "--all-nodes", "--", *values, *logs)
    assert f"sharing: {installed_cluster.local.node_name}" in output
    installed_cluster.agents_ready()
    installed_cluster.until(
        lambda: installed_cluster.local.path(MANIFEST).read_bytes() != installed_cluster.before.manifest,
        "the manager has put us in",
    )
    installed_cluster.run("enflame/gcushare-pod-1.json", "gcushare-pod-1")
    installed_cluster.apply("kunlun/xpu_pod.yaml")
    installed_cluster.running("!group", 2)
    assert installed_cluster.inventory("enflame")["delivery"] == "device-plugin"
    before = _lives(installed_cluster)
    assert installed_cluster.rush("plugin", rush_size, {GCU: 1}, partial(_restart_agents, installed_cluster)) == Outcome({}, {})
    assert _lives(installed_cluster) == before
    assert "totalGCU" in installed_cluster.script("inspect.sh", installed_cluster.local.node_name)
    installed_cluster.script("delete.sh")
    left = installed_cluster.state()
    assert (left.manifest, left.files, left.labels, left.annotations) == (
        installed_cluster.before.manifest,
        installed_cluster.before.files,
        installed_cluster.before.labels,
        installed_cluster.before.annotations,
    )
    _kubelet_takes_them_back(installed_cluster, "after-script")
    assert _lives(installed_cluster) == before


AGENTS = ("accelshare-agent", "gcushare-device-plugin")
EXTENDERS = ("accelshare-extender", "gcushare-scheduler-extender")
# Granted, and perhaps not used here, each with its reason. test_rights_used.py uses all of them.
UNUSED = {
    # Nothing goes wrong here that is reported as an event.
    *(f"{account}: {verb} events" for account in (*AGENTS, *EXTENDERS) for verb in ("create", "get", "patch")),
    # The manager's events are new: only one that is written again later is read first.
    "accelshare-scheduler-manager: get events in kube-system",
    # No container is without its card, so no pod is replaced.
    *(f"{account}: delete pods" for account in AGENTS),
    # A pod that waits is patched only if it was asked for just before there was room, or waits while the extender starts.
    *(f"{account}: patch pods/status" for account in EXTENDERS),
    # No slice grows.
    *(f"{account}: list resourcequotas" for account in EXTENDERS),
    # No other extender takes the lease while the Service leads to the first one; tests/e2e/test_failover.py has that.
    *(f"{account}: patch endpointslices.discovery.k8s.io in kube-system" for account in EXTENDERS),
    # The Job of an upgrade finds certificates that last.
    "accelshare-certificates: patch secrets in kube-system",
}


def test_the_whole_file_ran_with_the_rights_of_the_chart(
    installed_cluster: InstalledCluster, request: pytest.FixtureRequest
) -> None:
    """No request of ours was refused, and what is granted was used."""
    values = f"--values={installed_cluster.local.state / 'values.json'}"
    by_helm = objects(values)
    by_script = objects(*preset("gcushare"), values, *setting(agent__delivery="device-plugin"))
    ours = accounts(by_helm) | accounts(by_script)
    requests = read_audit(installed_cluster.local.audit_log, ours, installed_cluster.installed_at)
    assert requests.refused == ()
    others = {name for name in vars(request.module) if name.startswith("test_")} - {request.function.__name__}
    if not others <= {item.originalname for item in request.session.items if isinstance(item, pytest.Function)}:
        pytest.skip("no request was refused; whether all rights are used shows only after the whole file")
    assert unused(by_helm, requests) | unused(by_script, requests) <= UNUSED
