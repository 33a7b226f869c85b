"""Scheduler managers of control-plane nodes against the real API server, with the rights of the chart and no more."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from accelshare.install.errors import InstallError
from accelshare.install.host_files.disk import Disk
from accelshare.install.scheduler.host import HostState
from accelshare.install.scheduler.leadership import LeasePlace
from accelshare.install.scheduler.manager import state_configmap
from accelshare.install.scheduler.plan import CHECKSUM
from accelshare.kube.client import Client
from accelshare.kube.leases import Lease, LeaseSpec
from accelshare.kube.named_data import Place
from tests.e2e.node_reconcilers import LEFT, Cluster, extender_of, open_cluster
from tests.e2e.rights import STATE
from tests.e2e.scheduling_cluster import SchedulingCluster
from tests.unit.install.scheduler.builders import KUBEADM, desired

pytestmark = pytest.mark.real
UPGRADED = KUBEADM.replace(b"v1.36.4", b"v1.36.9")


@pytest.fixture
async def cluster(scheduling_cluster: SchedulingCluster, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with open_cluster(scheduling_cluster, tmp_path) as opened:
        yield opened


async def test_a_node_is_put_in_and_then_left_alone(cluster: Cluster) -> None:
    """Certificates made, files in place, the configuration names them and the Service's address; then nothing more happens."""
    host, address = cluster.host("cp-1"), await cluster.service()
    reconciler = cluster.reconciler("cp-1", host)
    await reconciler.reconcile()
    assert await cluster.states() == {"cp-1": "applied"}
    entry = extender_of(host)
    assert entry["urlPrefix"] == f"https://{address}:12345/accelshare"
    assert entry["tlsConfig"]["serverName"] == "accelshare-extender"
    files = [Path(entry["tlsConfig"][key]) for key in ("caFile", "certFile", "keyFile")]
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    secret = await cluster.scheduling_cluster.read(f"/api/v1/namespaces/{cluster.namespace}/secrets/accelshare-scheduler-tls")
    assert set(secret["data"]) == {"ca.crt", "tls.crt", "tls.key"}
    assert (await cluster.events())["SchedulerConfigApplied"] == "cp-1: applied"

    before, version = host.files(), await cluster.state_map()
    for _ in range(4):
        await reconciler.reconcile()
    await cluster.reconciler("cp-1", host).reconcile()  # and after a restart
    assert host.files() == before
    assert await cluster.state_map() == version


@pytest.mark.parametrize(("name", "message"), [("cp-1", "cp-1: applied as standby"), ("cp-2", "cp-2: applied")])
async def test_the_event_says_whether_the_node_leads_or_is_a_standby(cluster: Cluster, name: str, message: str) -> None:
    """kube-scheduler of cp-2 leads: of cp-1 nobody claims that it schedules pods."""
    await cluster.service()
    host = cluster.host(name)

    def read_lease(_place: LeasePlace) -> LeaseSpec:
        return LeaseSpec("cp-2_77aa", str(host.kubelet.now))

    await cluster.reconciler(name, host, read_lease=read_lease).reconcile()
    assert await cluster.states() == {name: "applied"}
    assert (await cluster.events())["SchedulerConfigApplied"] == message


async def test_nothing_is_wanted_where_there_is_no_config_map(cluster: Cluster) -> None:
    """A manager that helm is just ending must not put anything in again."""
    host = cluster.host("cp-1")
    await cluster.service()
    await cluster.scheduling_cluster.delete(f"/api/v1/namespaces/{cluster.namespace}/configmaps/{STATE}")
    await cluster.reconciler("cp-1", host).reconcile()
    assert host.places() == LEFT


async def test_it_waits_for_the_service(cluster: Cluster) -> None:
    host = cluster.host("cp-1")
    reconciler = cluster.reconciler("cp-1", host)
    await reconciler.reconcile()
    assert "accelshare-extender" in (await cluster.states())["cp-1"]
    assert host.manifest.read_bytes() == KUBEADM
    await cluster.service()
    await reconciler.reconcile()
    assert await cluster.states() == {"cp-1": "applied"}


async def test_plain_http_only_with_its_flag(cluster: Cluster) -> None:
    host, address = cluster.host("cp-1"), await cluster.service()
    await cluster.reconciler("cp-1", host, plain_http=True).reconcile()
    assert extender_of(host)["urlPrefix"] == f"http://{address}:12345/accelshare"
    assert not list(host.directory.glob("client*"))


async def test_a_manifest_that_kubeadm_wrote_anew_is_healed(cluster: Cluster) -> None:
    host = cluster.host("cp-1")
    await cluster.service()
    reconciler = cluster.reconciler("cp-1", host)
    await reconciler.reconcile()
    host.manifest.write_bytes(UPGRADED)
    await reconciler.reconcile()
    assert host.state() is HostState.INSTALLED
    assert b"v1.36.9" in host.manifest.read_bytes()
    await cluster.write(wanted="restored")
    await reconciler.reconcile()
    assert host.files() == {"manifests/kube-scheduler.yaml": UPGRADED}


async def test_an_upgrade_that_kubeadm_takes_back_needs_nobody(cluster: Cluster) -> None:
    """kubeadm puts back the manifest that it found: ours of before. That is taken over, and the way back is its original."""
    host = cluster.host("cp-1")
    await cluster.service()
    reconciler = cluster.reconciler("cp-1", host)
    await reconciler.reconcile()
    ours = host.manifest.read_bytes()
    host.manifest.write_bytes(UPGRADED)
    await reconciler.reconcile()
    host.manifest.write_bytes(ours)
    await reconciler.reconcile()
    assert host.state() is HostState.INSTALLED
    assert host.manifest.read_bytes() == ours
    assert await cluster.states() == {"cp-1": "applied"}
    await cluster.write(wanted="restored")
    await reconciler.reconcile()
    assert host.files() == {"manifests/kube-scheduler.yaml": KUBEADM}


async def test_another_address_is_put_in(cluster: Cluster) -> None:
    host, first = cluster.host("cp-1"), await cluster.service()
    reconciler = cluster.reconciler("cp-1", host)
    await reconciler.reconcile()
    await cluster.remove_service()
    await reconciler.reconcile()
    assert extender_of(host)["urlPrefix"].startswith(f"https://{first}:")  # what there is stays until there is something better
    second = await cluster.service()
    assert second != first
    await reconciler.reconcile()
    assert extender_of(host)["urlPrefix"] == f"https://{second}:12345/accelshare"


async def test_what_somebody_applied_by_hand_is_put_right(cluster: Cluster) -> None:
    """`scheduler-config apply` on the host leaves a whole installation behind, but not the wanted one."""
    host, address = cluster.host("cp-1"), await cluster.service()
    reconciler = cluster.reconciler("cp-1", host)
    for _ in range(3):
        await reconciler.reconcile()
    host.apply(desired("http://127.0.0.1:1/other"))
    await reconciler.reconcile()
    assert extender_of(host)["urlPrefix"] == f"https://{address}:12345/accelshare"


async def test_somebody_elses_change_is_refused_in_words_and_taken_up_when_it_is_gone(cluster: Cluster) -> None:
    host = cluster.host("cp-1")
    await cluster.service()
    reconciler = cluster.reconciler("cp-1", host)
    await reconciler.reconcile()
    ours = host.manifest.read_bytes()
    theirs = ours.replace(b"--leader-elect=true", b"--leader-elect=true\n    - --v=4")
    host.manifest.write_bytes(theirs)
    for _ in range(3):
        await reconciler.reconcile()
    state = (await cluster.states())["cp-1"]
    assert state.startswith("failed: ")
    assert f"{host.manifest} was changed by somebody else" in state
    assert "-    - --v=4" in state
    assert "was changed by somebody else" in (await cluster.events())["SchedulerConfigFailed"]
    assert host.manifest.read_bytes() == theirs

    host.manifest.write_bytes(ours)
    await reconciler.reconcile()
    assert await cluster.states() == {"cp-1": "applied"}


async def test_a_scheduler_that_does_not_come_up_is_rolled_back_and_not_tried_again(cluster: Cluster) -> None:
    """Every try restarts kube-scheduler, so the next one needs a change: of configuration, manifest or failure."""
    host = cluster.host("cp-1")
    await cluster.service()
    host.kubelet.breaks = lambda content: CHECKSUM.encode() in content
    host.kubelet.words = "panic: no such CA"
    await cluster.reconciler("cp-1", host).reconcile()
    state = (await cluster.states())["cp-1"]
    assert state.startswith("failed: kube-scheduler was not healthy")
    assert "panic: no such CA" in state
    assert host.manifest.read_bytes() == KUBEADM

    host.kubelet.breaks = lambda _content: False
    again = cluster.reconciler("cp-1", host)  # after a restart too
    await again.reconcile()
    assert (await cluster.states())["cp-1"] == state
    assert host.manifest.read_bytes() == KUBEADM

    await cluster.write(**{"node.cp-1": None})
    await again.reconcile()
    assert await cluster.states() == {"cp-1": "applied"}


async def test_somebody_at_work_by_hand_is_waited_for(cluster: Cluster) -> None:
    await cluster.service()
    host = cluster.host("cp-1")
    reconciler = cluster.reconciler("cp-1", host)
    host.archive.mkdir()
    with Disk().locked(host.archive):
        await reconciler.reconcile()
    assert "another accelshare process" in (await cluster.states())["cp-1"]
    await reconciler.reconcile()
    assert await cluster.states() == {"cp-1": "applied"}


async def test_a_host_that_cannot_be_written_is_a_failure(cluster: Cluster) -> None:
    await cluster.service()
    host = cluster.host("cp-1")
    host.directory.write_text("a file, where our directory should be")
    await cluster.reconciler("cp-1", host).reconcile()
    state = (await cluster.states())["cp-1"]
    assert state.startswith("failed: ")
    assert str(host.directory) in state
    assert host.manifest.read_bytes() == KUBEADM


async def test_a_changed_manifest_is_reason_enough_to_try_again(cluster: Cluster) -> None:
    host = cluster.host("cp-1")
    await cluster.service()
    host.kubelet.breaks = lambda content: CHECKSUM.encode() in content and b"v1.36.4" in content
    reconciler = cluster.reconciler("cp-1", host)
    await reconciler.reconcile()
    assert (await cluster.states())["cp-1"].startswith("failed: ")
    host.manifest.write_bytes(UPGRADED)
    await reconciler.reconcile()
    assert await cluster.states() == {"cp-1": "applied"}


async def test_one_node_after_the_other(cluster: Cluster) -> None:
    """Three managers start at once; while one is at work, the others do not touch anything."""
    await cluster.service()
    hosts = {name: cluster.host(name) for name in ("cp-1", "cp-2", "cp-3")}
    working: set[str] = set()
    most = 0

    class Watching(Disk):
        def __init__(self, name: str) -> None:
            super().__init__(lambda step: self.seen(name, step))

        def seen(self, name: str, step: str) -> None:
            nonlocal most
            if "record.json" in step or "kube-scheduler.yaml" in step:
                working.add(name)
                most = max(most, len(working - finished()))

    def finished() -> set[str]:
        return {name for name, host in hosts.items() if host.state() is HostState.INSTALLED}

    async def keep(name: str) -> None:
        reconciler = cluster.reconciler(name, hosts[name], disk=Watching(name))
        for _ in range(200):
            await reconciler.reconcile()
            if (await cluster.states()).get(name) == "applied":
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{name} had no turn: {await cluster.state_map()}")

    await asyncio.gather(*map(keep, hosts))
    assert await cluster.states() == dict.fromkeys(hosts, "applied")
    assert most == 1


async def test_nobody_acts_without_the_lease(cluster: Cluster) -> None:
    await cluster.service()
    host = cluster.host("cp-2")
    reconciler = cluster.reconciler("cp-2", host)
    await reconciler.reconcile()  # makes the certificates, so that only the scheduler is left to do below
    await cluster.write(wanted="restored")
    await reconciler.reconcile()
    await cluster.write(wanted="applied")
    async with Lease(cluster.client, cluster.namespace, STATE, identity="cp-1").held() as theirs:
        assert theirs
        await reconciler.reconcile()
        assert await cluster.states() == {"cp-2": "waiting: cp-1 holds the Lease"}
        assert host.manifest.read_bytes() == KUBEADM
    await reconciler.reconcile()
    assert await cluster.states() == {"cp-2": "applied"}


async def test_a_failure_stops_the_others_until_it_is_cleared(cluster: Cluster) -> None:
    await cluster.service()
    first, second = cluster.host("cp-1"), cluster.host("cp-2")
    first.kubelet.breaks = lambda content: CHECKSUM.encode() in content
    one, two = cluster.reconciler("cp-1", first), cluster.reconciler("cp-2", second)
    await one.reconcile()
    for _ in range(2):
        await two.reconcile()
    states = await cluster.states()
    assert states["cp-1"].startswith("failed: ")
    assert states["cp-2"] == "waiting: cp-1 failed or was interrupted; that comes first"
    assert second.manifest.read_bytes() == KUBEADM

    first.kubelet.breaks = lambda _content: False
    await cluster.write(**{"node.cp-1": None})
    await one.reconcile()
    await two.reconcile()
    assert await cluster.states() == {"cp-1": "applied", "cp-2": "applied"}


async def test_a_node_that_died_in_the_middle_stops_the_others_and_finishes_when_it_is_back(cluster: Cluster) -> None:
    await cluster.service()
    first, second = cluster.host("cp-1"), cluster.host("cp-2")
    await cluster.write(**{"node.cp-1": "applying"})
    await cluster.reconciler("cp-2", second).reconcile()
    assert second.manifest.read_bytes() == KUBEADM
    await cluster.reconciler("cp-1", first).reconcile()
    await cluster.reconciler("cp-2", second).reconcile()
    assert await cluster.states() == {"cp-1": "applied", "cp-2": "applied"}


async def test_renewed_certificates_come_without_a_restart_and_do_not_wait_for_anybody(cluster: Cluster) -> None:
    """Even while another node has failed: an expired certificate would stop every pod."""
    await cluster.service()
    host = cluster.host("cp-1")
    await cluster.reconciler("cp-1", host).reconcile()
    await cluster.write(**{"node.cp-2": "failed: for the test"})
    manifest, pair = host.manifest.read_bytes(), (host.directory / "client" / "tls.crt").read_text()
    cluster.now += timedelta(days=61)
    renewing = cluster.reconciler("cp-1", host)
    await renewing.reconcile()
    assert (host.directory / "client" / "tls.crt").read_text() != pair
    assert host.manifest.read_bytes() == manifest
    assert (await cluster.states())["cp-1"] == "applied"
    assert len(list(host.directory.glob("client-*"))) == 2  # somebody may be in the middle of reading the old pair
    await renewing.reconcile()
    assert len(list(host.directory.glob("client-*"))) == 1


async def test_a_new_ca_restarts_the_scheduler_in_its_turn(cluster: Cluster) -> None:
    await cluster.service()
    host = cluster.host("cp-1")
    await cluster.reconciler("cp-1", host).reconcile()
    manifest, before = host.manifest.read_bytes(), extender_of(host)["tlsConfig"]
    cluster.now += timedelta(days=3650 * 2 / 3 + 1)
    renewing = cluster.reconciler("cp-1", host)
    await renewing.reconcile()
    after = extender_of(host)["tlsConfig"]
    assert after["certFile"] == before["certFile"]
    assert after["caFile"] != before["caFile"]
    assert Path(after["caFile"]).read_text().count("BEGIN") == 2
    assert host.manifest.read_bytes() != manifest
    for _ in range(2):
        await renewing.reconcile()
    assert not Path(before["caFile"]).exists()


async def test_restore_all(cluster: Cluster) -> None:
    """Requested in the ConfigMap, done by each node, printed line by line; nothing of accelshare's is left."""
    await cluster.service()
    hosts = {name: cluster.host(name) for name in ("cp-1", "cp-2")}
    reconcilers = [cluster.reconciler(name, host) for name, host in hosts.items()]
    for reconciler in reconcilers:
        await reconciler.reconcile()

    over = asyncio.Event()

    async def rounds() -> None:
        while not over.is_set():
            for reconciler in reconcilers:
                await reconciler.reconcile()
            await asyncio.sleep(0.02)

    running = asyncio.create_task(rounds())
    lines = await cluster.restore_all()
    assert {"cp-1: restored", "cp-2: restored"} <= set(lines)
    assert await cluster.state_map() == {"wanted": "restored", "node.cp-1": "restored", "node.cp-2": "restored"}
    await asyncio.sleep(0.2)
    over.set()
    await running
    for host in hosts.values():
        assert host.places() == LEFT
        assert host.manifest.read_bytes() == KUBEADM
    leases = await cluster.scheduling_cluster.read(f"/apis/coordination.k8s.io/v1/namespaces/{cluster.namespace}/leases")
    assert leases["items"] == []
    assert await cluster.restore_all() == ["cp-1: restored", "cp-2: restored"]

    await cluster.write(wanted="applied")
    for reconciler in reconcilers:
        await reconciler.reconcile()
    assert await cluster.states() == {"cp-1": "applied", "cp-2": "applied"}


async def test_restore_all_fails_in_words(cluster: Cluster) -> None:
    await cluster.service()
    host = cluster.host("cp-1")
    reconciler = cluster.reconciler("cp-1", host)
    await reconciler.reconcile()
    ours = host.manifest.read_bytes()
    host.manifest.write_bytes(ours + b"# mine\n")

    asking = asyncio.create_task(cluster.restore_all())
    while not asking.done():
        await reconciler.reconcile()
        await asyncio.sleep(0.02)
    with pytest.raises(InstallError, match=r"not restored on cp-1; .*`accelshare scheduler-config restore`"):
        await asking
    assert "somebody else" in (await cluster.states())["cp-1"]
    assert host.manifest.read_bytes() == ours + b"# mine\n"

    host.manifest.write_bytes(ours)
    await reconciler.reconcile()
    assert await cluster.states() == {"cp-1": "restored"}
    assert host.places() == LEFT


async def test_restore_all_where_nobody_answers(cluster: Cluster) -> None:
    assert await cluster.restore_all() == [f"ConfigMap {cluster.namespace}/{STATE} names no node: nothing was applied"]
    await cluster.write(**{"wanted": "applied", "node.cp-9": "applied"})
    with pytest.raises(InstallError, match="not restored within 1 s on cp-9: is the manager running there"):
        await cluster.restore_all(limit_s=1.0)


async def test_a_wanted_state_that_changed_at_the_last_moment_wins(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """restore-all sees every node that is at work: it has written so into the ConfigMap that restore-all reads."""
    await cluster.service()
    host = cluster.host("cp-1")
    read, reads = state_configmap.read, 0

    async def read_and_then_somebody_writes(client: Client, place: Place) -> state_configmap.StateConfigMap | None:
        nonlocal reads
        found = await read(client, place)
        reads += 1
        if reads == 2:  # it has its turn, and has seen that all is well
            await cluster.write(wanted="restored")
        return found

    monkeypatch.setattr(state_configmap, "read", read_and_then_somebody_writes)
    await cluster.reconciler("cp-1", host).reconcile()
    assert reads == 2
    assert host.manifest.read_bytes() == KUBEADM
    assert "applying" not in (await cluster.states()).values()
