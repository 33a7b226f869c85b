"""The pod of a process, by its cgroup: every spelling of kubelet and the runtimes, and what a process might pretend."""

from pathlib import Path

import pytest

from accelshare.agent.usage.cgroups import MOST_BYTES, pod_uid, sees_host_processes, uids_of

UID = "3b1f2a54-0c1d-4e6f-8a9b-0123456789ab"
SLICE = UID.replace("-", "_")
OTHER = "ffffffff-ffff-4fff-8fff-ffffffffffff"
STATIC = "0123456789abcdef0123456789abcdef"
ID = "a" * 64


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice/cri-containerd-{ID}.scope",
        f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE}.slice/crio-{ID}.scope",
        f"/kubepods.slice/kubepods-pod{SLICE}.slice/docker-{ID}.scope",
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICE}.slice/cri-containerd-{ID}.scope",
        f"/kubepods/burstable/pod{UID}/{ID}",
        f"/kubepods/pod{UID}/{ID}",
        f"/kubelet/kubepods/besteffort/pod{UID}/{ID}",
        f"/kubepods/burstable/pod{UID}/crio-{ID}",
        # Seen from the agent's own container, whose cgroup namespace begins at that container.
        f"/../../kubepods-burstable-pod{SLICE}.slice/cri-containerd-{ID}.scope",
        f"/../../../kubepods-pod{SLICE}.slice/cri-containerd-{ID}.scope",
        f"/../../pod{UID}/{ID}",
        # Groups that the container has made inside of its own.
        f"/kubepods/burstable/pod{UID}/{ID}/system.slice/inner.service",
        f"/kubepods.slice/kubepods-pod{SLICE}.slice/cri-containerd-{ID}.scope/init",
        # A container that pretends to be another pod's, inside of its own group.
        f"/kubepods/burstable/pod{UID}/{ID}/kubepods/pod{OTHER}/{ID}",
    ],
)
def test_the_pod_of_a_container(path: str) -> None:
    assert pod_uid(f"0::{path}\n") == UID


def test_a_static_pod_has_kubelets_hash() -> None:
    assert pod_uid(f"0::/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{ID}.scope\n") == STATIC
    assert pod_uid(f"0::/kubepods/pod{STATIC}/{ID}\n") == STATIC


def test_cgroup_v1_has_a_line_for_each_hierarchy() -> None:
    lines = [f"{number}:{name}:/kubepods/burstable/pod{UID}/{ID}" for number, name in ((11, "memory"), (4, "cpu,cpuacct"))]
    assert pod_uid("\n".join([*lines, "1:name=systemd:/kubepods/burstable/pod" + f"{UID}/{ID}", "0::/"])) == UID


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/init.scope",
        "/system.slice/kubelet.service",
        "/system.slice/containerd.service",
        f"/user.slice/user-1000.slice/user@1000.service/kubepods-pod{SLICE}.slice/cri-containerd-{ID}.scope",
        f"/machine.slice/libpod-{ID}.scope/kubepods/pod{UID}/{ID}",
        f"/docker/{ID}",
        f"/kubepods/burstable/pod{UID}",  # no container of it
        f"/kubepods.slice/kubepods-pod{SLICE}.slice",
        f"/kubepods/burstable/pod{UID}/short",
        f"/kubepods/burstable/xpod{UID}/{ID}",
        f"/kubepods/burstable/pod{UID}x/{ID}",
    ],
)
def test_what_is_in_no_container_of_a_pod(path: str) -> None:
    assert pod_uid(f"0::{path}\n") is None


def test_hierarchies_that_disagree_name_nobody() -> None:
    assert pod_uid(f"2:memory:/kubepods/pod{UID}/{ID}\n1:cpu:/kubepods/pod{OTHER}/{ID}\n") is None


@pytest.mark.parametrize("text", ["", "\n\n", "garbage", "0::", ":::::", "\x00\x01", "0::/" + "kubepods/" * 10_000])
def test_garbage_names_nobody(text: str) -> None:
    assert pod_uid(text) is None


def test_processes_that_have_ended_are_left_out(tmp_path: Path) -> None:
    for pid, path in ((1, "/init.scope"), (7, f"/kubepods/pod{UID}/{ID}")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"0::{path}\n")
    assert uids_of([1, 7, 8], tmp_path) == {7: UID}


def test_a_file_without_end_is_read_in_part(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text("x" * MOST_BYTES + f"\n0::/kubepods/pod{UID}/{ID}\n")
    assert uids_of([7], tmp_path) == {}


def test_a_namespace_of_our_own_hides_the_hosts_processes(tmp_path: Path) -> None:
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026532999]")
    (tmp_path / "self/cgroup").write_text("0::/\n")
    (tmp_path / "1").mkdir()
    (tmp_path / "1/cgroup").write_text("0::/\n")
    assert not sees_host_processes(tmp_path)
    (tmp_path / "1/cgroup").write_text("0::/../../../../init.scope\n")
    assert sees_host_processes(tmp_path)


def test_a_mounted_tree_is_the_hosts(tmp_path: Path) -> None:
    assert sees_host_processes(tmp_path)
