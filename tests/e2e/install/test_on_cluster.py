"""The whole way on a real kubelet: image, helm install, seeds' workloads, everything that may go wrong meanwhile, helm uninstall.

One installation for the file, with the seeds' workloads on it: whatever happens to us, they must not notice. Each test leaves it
as it found it and can be called alone; the last two take it away and put it in by script.
"""

import shutil
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from accelshare.certificates import making
from cluster.errors import ClusterError
from cluster.local import LocalCluster, accelshare
from deploy.render import NAMESPACE
from tests.e2e.install.estate import CLIENT_FILE, MANIFEST, Estate, Outcome, cards

pytestmark = pytest.mark.real
GCU = "enflame.com/gcu-memory"
ROUND = 50  # four of them are a rush


@pytest.fixture(scope="module")
def estate(root: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    if shutil.which("apt-get") is None:
        pytest.skip("a base image of Debian's packages needs Debian or Ubuntu")
    LocalCluster.take_down()  # whatever another test left: the uninstall is compared with a new cluster
    estate = Estate(LocalCluster.up(fake_cards=True), tmp_path_factory.mktemp("estate"))
    estate.install()
    estate.run_seeds_workloads()
    yield estate
    # kubelet remembers device plugins for five minutes, which would keep the next test waiting.
    LocalCluster.take_down()


def test_helm_test_sees_a_card_of_every_vendor(estate: Estate) -> None:
    estate.local.kubectl("delete", "pod", "stc-example-pod")  # which has the only card of its kind
    said = estate.helm("test", accelshare.RELEASE, "--timeout=200s")
    assert said.count("Succeeded") == 4, said
    estate.apply("stream/example.yaml")
    estate.running("!group", 7)
    configuration = estate.local.path("/etc/kubernetes/accelshare").rglob("*.yaml")
    assert any("enableHTTPS: true" in file.read_text() for file in configuration)


def test_the_seeds_own_workloads_see_their_cards(estate: Estate) -> None:
    pods = estate.pods("!group")

    def devices(pod: str, namespace: str = "default") -> list[str]:
        listed = estate.local.exec(pod, "ls", "/dev", namespace=namespace).split()
        return [name for name in listed if name.rstrip("0123456789") in ("gcu", "xpu", "stc") and name[-1].isdigit()]

    assert [devices(f"gcushare-pod-{number}", NAMESPACE) for number in (1, 2, 3)] == [["gcu0"], ["gcu0"], ["gcu1"]]
    assert sorted(devices(name) for name in pods if name.startswith("xpu-pod-")) == [["xpu0"], ["xpu1"]]
    assert devices("xpu-two-cards") == ["xpu2", "xpu3"]
    assert devices("stc-example-pod") == ["stc0"]
    variables = estate.local.exec("binpack-1-0", "env").splitlines()
    assert {"ALIYUN_COM_GPU_MEM_IDX=0", "ALIYUN_COM_GPU_MEM_POD=3", "ALIYUN_COM_GPU_MEM_DEV=15"} <= set(variables)
    assert estate.inventory("enflame")["delivery"] == "nri"


def test_the_extender_speaks_only_with_kube_scheduler(estate: Estate) -> None:
    """A certificate of another CA, though of the right name, and none at all are refused."""
    path = "/gcushare-scheduler/inspect"
    ours = estate.secret("accelshare-scheduler-tls")
    assert estate.extender_says(path, (ours["tls.crt"], ours["tls.key"])) == 200
    now = datetime.now(UTC)
    other = making.authority("accelshare-ca", now=now, life=timedelta(days=1))
    forged = making.leaf(other, "client", "kube-scheduler", now=now, life=timedelta(hours=1))
    for pair in ((forged.certificate.encode(), forged.key.encode()), None):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            estate.extender_says(path, pair)


def test_a_new_memory_unit_is_refused_by_helm_while_pods_of_the_old_one_live(estate: Estate) -> None:
    """helm fails, prints which pods are in the way, and has changed nothing. In the old unit an upgrade goes through, and who
    runs does not notice."""
    before = _lives(estate)
    agents = estate.read("daemonset", estate.agent)["metadata"]["generation"]
    with pytest.raises(ClusterError) as refused:
        estate.upgrade({"vendors": {"enflame": {"memoryUnit": "0.1"}}})
    said = str(refused.value)
    assert "UPGRADE FAILED: pre-upgrade hooks failed" in said
    pods = ", ".join(f"{NAMESPACE}/gcushare-pod-{number}" for number in (1, 2, 3))
    words = f"the memory unit of {estate.local.node_name} is '1' and cannot become '0.1' while pods that asked in the old one are"
    assert f"enflame: {words} there: {pods}" in said
    assert words in estate.words_of("accelshare-memory-units")
    assert estate.read("daemonset", estate.agent)["metadata"]["generation"] == agents
    assert estate.inventory("enflame")["unit"] == "1"

    estate.upgrade({"agent": {"podAnnotations": {"of": "the next release"}}})
    estate.settle()
    assert estate.read("daemonset", estate.agent)["metadata"]["generation"] == agents + 1
    estate.create("upgraded", 1, {GCU: 1})
    _runs_with_its_card(estate, "upgraded")
    assert _lives(estate) == before


def _runs_with_its_card(estate: Estate, group: str) -> None:
    (pod,) = estate.running(f"group={group}", 1).values()
    assert estate.sees(pod) == cards(pod) != ""
    estate.delete(f"group={group}")


def test_certificates_are_renewed_under_load(estate: Estate) -> None:
    """Both leaves at once, in the middle of a rush; kube-scheduler and extender go on with the new ones, unrestarted."""
    client, server = estate.local.path(CLIENT_FILE).read_bytes(), estate.served_certificate()
    begun = [_begun(estate, name) for name in ("extender", "kube-scheduler")]

    def renew() -> None:
        estate.local.kubectl(
            "delete", "secret", "accelshare-extender-tls", "accelshare-scheduler-tls", f"--namespace={NAMESPACE}"
        )
        estate.until(lambda: estate.local.path(CLIENT_FILE).read_bytes() != client, "kube-scheduler's files are new")
        # kubelet looks for new Secrets once a minute, or when something is said of the pod.
        selector = "--selector=app.kubernetes.io/component=extender"
        estate.local.kubectl("annotate", "pods", selector, f"--namespace={NAMESPACE}", "look=again")
        estate.until(lambda: estate.served_certificate() != server, "the extender shows its new certificate", limit_s=200)

    assert estate.rush("renewal", ROUND, {GCU: 1}, renew) == Outcome({}, {})
    assert [_begun(estate, name) for name in ("extender", "kube-scheduler")] == begun
    ours = estate.secret("accelshare-scheduler-tls")
    assert estate.extender_says("/gcushare-scheduler/inspect", (ours["tls.crt"], ours["tls.key"])) == 200
    # What comes now is asked for with the new certificate.
    estate.create("renewed", 1, {GCU: 1})
    _runs_with_its_card(estate, "renewed")


def _begun(estate: Estate, component: str) -> list[object]:
    selector = f"app.kubernetes.io/component={component}" if component == "extender" else f"component={component}"
    pods = estate.pods(selector, NAMESPACE).values()
    return [status["state"] for pod in pods for status in pod["status"]["containerStatuses"]]


def test_a_manifest_that_kubeadm_upgrade_wrote_anew_is_healed(estate: Estate) -> None:
    manifest = estate.local.path(MANIFEST)
    manifest.write_bytes(estate.before.manifest)
    estate.until(lambda: manifest.read_bytes() != estate.before.manifest, "the manager has put us in again")
    estate.create("healed", 1, {GCU: 1})
    _runs_with_its_card(estate, "healed")


def _restart_agents(estate: Estate) -> None:
    estate.local.kubectl("rollout", "restart", f"daemonset/{estate.agent}", f"--namespace={NAMESPACE}")
    estate.agents_ready()


def test_a_rush_while_agents_are_replaced_and_kubelet_restarts(estate: Estate) -> None:
    """Two hundred pods by the container runtime: nobody dies, nobody has a wrong card, and those of before do not notice."""
    before = _lives(estate)
    for turn, happens in enumerate((_restart_agents, _restart_kubelet) * 2):
        outcome = estate.rush(f"nri-{turn}", ROUND, {GCU: 1}, partial(happens, estate))
        assert outcome == Outcome({}, {}), f"{happens.__name__}: {outcome}"
    assert _lives(estate) == before


def _restart_kubelet(estate: Estate) -> None:
    estate.local.restart_kubelet()


def _lives(estate: Estate) -> dict[str, object]:
    """The containers of the seeds' workloads: who they are, and how often they were started."""
    beside = {n: p for n, p in estate.pods("", NAMESPACE).items() if n.startswith("gcushare-pod")}
    pods = {**estate.pods("!group"), **beside}
    return {
        name: [(status["containerID"], status["restartCount"]) for status in pod["status"]["containerStatuses"]]
        for name, pod in pods.items()
    }


def test_helm_uninstall_leaves_nothing_and_running_pods_go_on(estate: Estate) -> None:
    """kube-scheduler's manifest byte for byte, files on the host, the node's labels, annotations and amounts, all objects."""
    before = _lives(estate)
    assert len(before) == 10
    estate.helm("uninstall", accelshare.RELEASE, "--timeout=300s")
    estate.until(lambda: not estate.sight().ours, "the last pods of ours have ended")
    assert estate.sight() == estate.before
    assert _lives(estate) == before
    assert estate.local.exec("gcushare-pod-1", "ls", "/dev/gcu0", namespace=NAMESPACE) == "/dev/gcu0\n"
    _kubelet_takes_them_back(estate, "after-helm")
    assert _lives(estate) == before


def _kubelet_takes_them_back(estate: Estate, group: str) -> None:
    """A kubelet that starts anew looks at all its pods as if they came just now; then it takes another one."""
    estate.local.restart_kubelet()
    estate.create(group, 1, {})
    estate.running(f"group={group}", 1)
    estate.delete(f"group={group}")


def test_the_scripts_and_a_rush_by_device_plugins(estate: Estate) -> None:
    """deploy.sh as the Enflame seed's users know it; kubelet's device plugins deliver; delete.sh.

    kubelet asks its plugins once, when it takes a pod, and never again: whoever is bound while nobody answers is dead. An agent
    that is replaced leaves nobody like that behind; where agents are killed, tests/e2e/node/test_kills.py counts them. For the
    same reason pods of the container runtime's time are ended first: a kubelet that starts anew would not know their devices.
    """
    estate.clear()
    if estate.helm("list", "--short"):
        estate.helm("uninstall", accelshare.RELEASE, "--timeout=300s")
    accelshare.provide(estate.local, print)
    estate.agent = "gcushare-device-plugin"
    values = ("--values", str(estate.local.state / "values.json"), "--set", "agent.delivery=device-plugin")
    logs = ("--set", f"logs.directory={estate.local.state}/logs-of-ours")
    said = estate.script("deploy.sh", "--preset", "gcushare", "--all-nodes", "--", *values, *logs)
    assert f"sharing: {estate.local.node_name}" in said
    estate.agents_ready()
    estate.until(lambda: estate.local.path(MANIFEST).read_bytes() != estate.before.manifest, "the manager has put us in")
    estate.run("enflame/gcushare-pod-1.json", "gcushare-pod-1")
    estate.apply("kunlun/xpu_pod.yaml")
    estate.running("!group", 2)
    assert estate.inventory("enflame")["delivery"] == "device-plugin"
    before = _lives(estate)
    assert estate.rush("plugin", ROUND, {GCU: 1}, partial(_restart_agents, estate)) == Outcome({}, {})
    assert _lives(estate) == before
    assert "totalGCU" in estate.script("inspect.sh", estate.local.node_name)
    estate.script("delete.sh")
    left = estate.sight()
    assert (left.manifest, left.files, left.labels, left.annotations) == (
        estate.before.manifest,
        estate.before.files,
        estate.before.labels,
        estate.before.annotations,
    )
    _kubelet_takes_them_back(estate, "after-script")
    assert _lives(estate) == before
