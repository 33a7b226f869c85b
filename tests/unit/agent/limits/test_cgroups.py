"""Where the cgroup of a container or a pod is, and a cgroup of our own."""

from pathlib import Path, PurePosixPath

import pytest

from accelshare.agent.limits.cgroups import CgroupError, CgroupTree, container_group, pod_group

POD = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_cd.slice"


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("kubepods-burstable-podab_cd.slice:cri-containerd:123", f"{POD}/cri-containerd-123.scope"),
        ("kubepods-podab.slice:crio:123", "kubepods.slice/kubepods-podab.slice/crio-123.scope"),
        (":runc:x", "system.slice/runc-x.scope"),
        ("-.slice:a:x", "a-x.scope"),
        ("/kubepods/burstable/podab-cd/123", "kubepods/burstable/podab-cd/123"),
        ("/kubepods/podab/crio-123", "kubepods/podab/crio-123"),
    ],
)
def test_a_container_by_systemd_and_by_cgroupfs(text: str, group: str) -> None:
    assert container_group(text) == PurePosixPath(group)


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_cd.slice", POD),
        ("kubepods-burstable-podab_cd.slice", POD),
        ("/kubepods/burstable/podab-cd", "kubepods/burstable/podab-cd"),
    ],
)
def test_a_pod_by_systemd_and_by_cgroupfs(text: str, group: str) -> None:
    assert pod_group(text) == PurePosixPath(group)


@pytest.mark.parametrize(
    "text", ["", "/", "a:b", "a:b:c:d", "/kubepods/../x", "../x", "a--b.slice:c:d", "a.slice:..:x/../../y", "a\nb"]
)
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(CgroupError):
        container_group(text)


@pytest.fixture
def tree(tmp_path: Path) -> CgroupTree:
    (tmp_path / "cgroup.controllers").write_text("cpu dmem\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu\n")
    return CgroupTree(tmp_path)


def test_our_own_group_is_removed_also_one_that_was_left(tree: CgroupTree) -> None:
    for _ in range(2):
        with tree.scratch() as group:
            assert tree.has(group)
            assert group == PurePosixPath("accelshare-probe")
        assert not tree.has(group)
        tree.path(group).mkdir()


def test_cgroup_v1_is_refused(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    tree = CgroupTree(tmp_path)
    assert not tree.is_v2
    with pytest.raises(CgroupError, match="cgroup v2 is needed"), tree.scratch():
        pass


def test_a_file_is_never_created(tree: CgroupTree, tmp_path: Path) -> None:
    """The kernel makes the files of the controllers that a group has."""
    with pytest.raises(CgroupError, match=r"dmem\.max: No such file"):
        tree.write(PurePosixPath(), "dmem.max", "x 1")
    assert not (tmp_path / "dmem.max").exists()


def test_a_controller_is_enabled_once_if_the_kernel_has_it(tree: CgroupTree, tmp_path: Path) -> None:
    tree.enable("dmem")
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+dmem"
    (tmp_path / "cgroup.subtree_control").write_text("cpu dmem\n")
    tree.enable("dmem")
    assert (tmp_path / "cgroup.subtree_control").read_text() == "cpu dmem\n"
    with pytest.raises(CgroupError, match="controller rdma"):
        tree.enable("rdma")
