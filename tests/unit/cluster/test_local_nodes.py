"""What distinguishes the nodes of the local cluster, without a machine: names, addresses, files, cgroups, cards."""

import ipaddress
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.local import LocalCluster, cgroups, fake_tools, local_cluster
from cluster.local.daemon import LAUNCH
from cluster.local.layout import COVERED, MOST_NODES, NODE_NETWORK, POD_NETWORK, Layout

NODES = [Layout(number) for number in range(1, MOST_NODES + 1)]
HYBRID = """\
tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,nodev,noexec,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,xattr,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime,nsdelegate 0 0
"""


def test_the_first_node_is_the_cluster() -> None:
    """The paths that scripts and documents name."""
    first = Layout()
    assert (first.node_name, first.address, first.pod_network) == ("accelshare-local", "10.98.0.1", "10.244.0.0/22")
    assert first.state == first.cluster == Path("/var/lib/accelshare-local")
    assert first.covered == COVERED
    assert (first.cgroup, first.cgroup_root) == ("accelshare-local", "/accelshare-local")


@pytest.mark.parametrize("what", ["node_name", "address", "pod_network", "cgroup", "state", "fakes", "pids", "containerd_root"])
def test_no_two_nodes_share(what: str) -> None:
    assert len({getattr(node, what) for node in NODES}) == len(NODES)


def test_nodes_of_one_cluster_share_programs_journal_and_kubeconfig() -> None:
    assert {(node.programs, node.journal, node.kubeconfig, node.cluster) for node in NODES} == {
        (NODES[0].programs, NODES[0].journal, NODES[0].kubeconfig, NODES[0].cluster)
    }


def test_addresses_lie_in_the_networks_that_the_machine_routes_to_the_cluster() -> None:
    pods = [ipaddress.IPv4Network(node.pod_network) for node in NODES]
    assert all(network.subnet_of(ipaddress.IPv4Network(POD_NETWORK)) for network in pods)
    assert not any(one.overlaps(other) for one, other in pairwise(pods))
    assert all(ipaddress.IPv4Address(node.address) in ipaddress.IPv4Network(NODE_NETWORK) for node in NODES)


def test_a_cgroup_namespace_sees_each_hierarchy_from_its_own_root(tmp_path: Path) -> None:
    """Mounted with the controllers that it has; options that say nothing about a hierarchy are left out."""
    (tmp_path / "mounts").write_text(HYBRID)
    assert cgroups.mount_again(tmp_path / "mounts") == [
        "umount /sys/fs/cgroup/cpu,cpuacct",
        "mount -t cgroup -o cpu,cpuacct cgroup /sys/fs/cgroup/cpu,cpuacct",
        "umount /sys/fs/cgroup/systemd",
        "mount -t cgroup -o none,xattr,name=systemd cgroup /sys/fs/cgroup/systemd",
        "umount /sys/fs/cgroup/unified",
        "mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified",
    ]


@pytest.mark.parametrize("vendor", ["nvidia", "kunlun", "enflame", "stream"])
def test_each_node_has_cards_of_its_own(tmp_path: Path, vendor: str) -> None:
    """Other ids, the same device nodes."""
    for node in NODES:
        assert vendor in fake_tools.write(tmp_path / str(node.number), node.number)
    written = {file.read_text() for file in tmp_path.glob(f"*/{vendor}/*") if file.name in ("cards", "stc.json")}
    assert len(written) == len(NODES)


@pytest.mark.parametrize("nodes", [0, MOST_NODES + 1])
def test_a_number_of_nodes_that_is_not_possible_is_refused(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_cluster, "refuse_other_systems", lambda: None)
    with pytest.raises(ClusterError, match=rf"cannot have {nodes} nodes; it has 1 to {MOST_NODES}"):
        LocalCluster.up(nodes=nodes)


def launch(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-I", "-S", LAUNCH, *words], capture_output=True, text=True, check=False)


def test_a_launched_program_has_the_exit_code_and_the_output_of_the_program() -> None:
    done = launch("", "", "", "sh", "-c", "echo here; exit 7")
    assert (done.returncode, done.stdout) == (7, "here\n")


def test_a_namespace_that_is_not_there_is_an_error() -> None:
    done = launch("", "", "/nowhere/ns/mnt", "true")
    assert done.returncode != 0
    assert "/nowhere/ns/mnt" in done.stderr
