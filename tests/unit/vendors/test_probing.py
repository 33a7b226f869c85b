"""Whether a node meets a requirement: files and versions, and never an exception."""

import os
from pathlib import Path

import pytest

from accelshare.vendors.catalog import load
from accelshare.vendors.container_edits import CardShare, Mount, edits
from accelshare.vendors.drivers.driver import Roots
from accelshare.vendors.enforcement import ProbeResult, choose, requirements
from accelshare.vendors.probing import probe, version_at_least
from accelshare.vendors.profile import EnforcementRules, Requirement


class Host:
    """A node's trees, in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def has(self, path: str, text: str = "", *, mode: int = 0o644) -> None:
        file = self.root / path.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def tool(self, path: str, script: str) -> None:
        self.has(path, f"#!/bin/sh\n{script}\n", mode=0o755)

    async def probe(self, requirement: Requirement, timeout_s: float = 60) -> ProbeResult:
        return (await self.all(requirement, timeout_s=timeout_s))[requirement]

    async def all(self, *asked: Requirement, timeout_s: float = 60) -> dict[Requirement, ProbeResult]:
        roots = Roots(dev=self.root / "dev", proc=self.root / "proc", sys=self.root / "sys")
        return await probe(asked, roots=roots, host=self.root, timeout_s=timeout_s)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize("path", ["/sys/a", "/proc/a", "/dev/a", "/opt/a"])
async def test_a_file_is_searched_under_the_hosts_mounted_roots(host: Host, path: str) -> None:
    assert await host.probe(Requirement(file=path)) == ProbeResult(met=False, message=f"{path}: is not there")
    host.has(path)
    assert await host.probe(Requirement(file=path)) == ProbeResult(met=True, message=f"{path} is there")


@pytest.mark.parametrize(
    ("text", "met", "message"),
    [
        ("615.71.09\n", True, "/sys/v has version 615.71.09"),
        ("615\n", True, "/sys/v has version 615"),
        ("595.1\n", False, "/sys/v has version 595.1; 615 is needed"),
        ("unknown\n", False, "/sys/v has no version: 'unknown'"),
        ("", False, "/sys/v has no version: nothing"),
    ],
)
async def test_a_file_may_have_to_contain_a_version(host: Host, text: str, met: bool, message: str) -> None:
    host.has("/sys/v", text)
    assert await host.probe(Requirement(file="/sys/v", at_least="615")) == ProbeResult(met, message)


CTK = Requirement(command=("acme-ctk", "--version"), pattern="version ([0-9.]+)", at_least="1.20.1")


@pytest.mark.parametrize("folder", ["/usr/bin", "/usr/local/bin"])
async def test_a_tool_of_the_host_is_found_and_run(host: Host, folder: str) -> None:
    host.tool(f"{folder}/acme-ctk", "echo 'Acme CLI 9 version 1.20.1.'")
    assert await host.probe(CTK) == ProbeResult(met=True, message="acme-ctk --version has version 1.20.1")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo version 1.17.8", "acme-ctk --version has version 1.17.8; 1.20.1 is needed"),
        ("echo hello", "acme-ctk --version has no version: 'hello'"),
        ("echo version ...", "acme-ctk --version has no version: 'version ...'"),
        ("echo no >&2; exit 2", "acme-ctk --version: ended with exit code 2 and printed 'no'"),
        ("sleep 600", "acme-ctk --version: gave no answer within 0.3 s and was killed"),
    ],
)
async def test_a_tool_without_the_expected_output_does_not_meet_the_requirement(host: Host, script: str, message: str) -> None:
    host.tool("/usr/bin/acme-ctk", script)
    timeout_s = 0.3 if "0.3 s" in message else 60.0  # a busy machine takes its time to start a tool
    assert await host.probe(CTK, timeout_s=timeout_s) == ProbeResult(met=False, message=message)


async def test_a_missing_tool_is_reported(host: Host) -> None:
    candidate_paths = "/usr/local/sbin, /usr/local/bin, /usr/sbin, /usr/bin, /usr/local/nvidia/toolkit"
    assert await host.probe(CTK) == ProbeResult(
        met=False, message=f"acme-ctk --version: not found in {candidate_paths} of the host"
    )
    assert (await host.probe(Requirement(command=("/opt/ctk",)))).message == "/opt/ctk: no such file"


async def test_the_hosts_tool_is_run_and_not_the_images_own(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container both exist, and only the host's one shows what is on the node."""
    image = Host(tmp_path / "image")
    image.tool("/bin/acme-ctk", "echo version 1.20.1")
    monkeypatch.setenv("PATH", str(image.root / "bin"), prepend=":")
    host.tool("/usr/bin/acme-ctk", "echo version 1.17.8")
    assert not (await host.probe(CTK)).met
    (host.root / "usr/bin/acme-ctk").unlink()
    assert not (await host.probe(CTK)).met
    on_the_host_itself = await probe([CTK], timeout_s=5)
    assert on_the_host_itself[CTK].met


@pytest.mark.parametrize(
    "target", ["/opt/acme/bin/acme-ctk", "../../opt/acme/bin/acme-ctk", "../../../../../opt/acme/bin/acme-ctk"]
)
async def test_a_link_of_the_host_is_followed_as_the_host_would(host: Host, target: str) -> None:
    """An absolute one starts at the host's root, and none leads out of it."""
    host.tool("/opt/acme/1.20/ctk", "echo version 1.20.1")
    for link, to in (("usr/bin/acme-ctk", target), ("opt/acme/bin", "/opt/acme/1.20"), ("opt/acme/1.20/acme-ctk", "ctk")):
        (host.root / link).parent.mkdir(parents=True, exist_ok=True)
        (host.root / link).symlink_to(to)
    assert await host.probe(CTK) == ProbeResult(met=True, message="acme-ctk --version has version 1.20.1")


async def test_links_in_a_circle_are_no_tool(host: Host) -> None:
    (host.root / "opt").mkdir()
    (host.root / "opt/ctk").symlink_to("/opt/ctk")
    assert not (await host.probe(Requirement(command=("/opt/ctk",)))).met
    assert not (await host.probe(Requirement(file="/opt/ctk"))).met


async def test_a_requirement_may_be_that_a_tool_exists(host: Host) -> None:
    host.tool("/opt/ctk", "echo hello")
    assert (await host.probe(Requirement(command=("/opt/ctk",)))).met


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_file_that_may_not_be_read_is_reported(host: Host) -> None:
    host.has("/sys/v", "1", mode=0)
    assert (await host.probe(Requirement(file="/sys/v", at_least="1"))).message == "/sys/v: cannot be read: Permission denied"


async def test_a_folder_where_a_file_should_be_is_reported(host: Host) -> None:
    host.has("/sys/v/inner")
    assert (await host.probe(Requirement(file="/sys/v", at_least="1"))).message == "/sys/v: cannot be read: Is a directory"


@pytest.mark.parametrize(
    ("version", "wanted", "enough"),
    [
        ("1.20.1", "1.20.1", True),
        ("1.9", "1.20", False),
        ("2", "1.99.9", True),
        ("1.20", "1.20.0", True),
        ("1.20", "1.20.1", False),
    ],
)
def test_versions_are_compared_as_numbers(version: str, wanted: str, enough: bool) -> None:
    assert version_at_least(version, wanted) is enough


async def test_the_way_is_used_only_on_a_node_that_meets_its_requirements(host: Host) -> None:
    """The shipped profile: a driver too old, then all of it."""
    rules = load()["nvidia"].enforcement
    host.has("/sys/module/nvidia/version", "580.95\n")
    host.has("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    host.tool("/usr/bin/nvidia-ctk", "echo 'NVIDIA Container Toolkit CLI version 1.20.1'; echo 'commit: abc'")
    chosen = choose(rules, await host.all(*requirements(rules)))
    assert chosen.name == "nobody"
    assert chosen.rejected_ways == (
        "nvml: no limit was set and read back",
        "toolkit: /sys/module/nvidia/version has version 580.95; 615 is needed",
    )

    host.has("/sys/module/nvidia/version", "615.71.09\n")
    assert choose(rules, await host.all(*requirements(rules))).name == "toolkit"


async def test_an_mps_daemon_of_the_host_is_detected_by_its_pipe(host: Host) -> None:
    """An option: if all cards run under MPS, the profile names the way. The container then gets the pipes with the limit."""
    shipped = load()["nvidia"]
    rules = EnforcementRules(("toolkit", "mps", "nobody"), shipped.enforcement.ways)
    assert choose(rules, await host.all(*requirements(rules))).name == "nobody"
    host.has("/tmp/nvidia-mps/control")
    chosen = choose(rules, await host.all(*requirements(rules)))
    assert (chosen.name, chosen.mounts, chosen.limits) == ("mps", ("/tmp/nvidia-mps",), True)
    cards = [CardShare(index, index, f"GPU-{index}", 3, 15, 1024, enforcement=chosen) for index in (2, 5)]
    given = edits(shipped, cards=cards, container_units=6, pod_units=6, exists=lambda _: True)
    assert given.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3072M,1=3072M"
    assert given.env["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/nvidia-mps"
    assert Mount("/tmp/nvidia-mps", "/tmp/nvidia-mps", read_only=False) in given.mounts


async def test_a_path_that_cannot_be_resolved_does_not_exist(host: Host) -> None:
    """A stale network mount fails at the first step, long before the file is opened."""
    host.has("/opt/something")
    for requirement in (Requirement(file=f"/opt/{'x' * 300}/version"), Requirement(command=(f"/opt/{'x' * 300}/tool",))):
        result = await host.probe(requirement)
        assert not result.met
        assert "name too long" in result.message.lower()
