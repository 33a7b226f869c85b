"""Limits are set, read back and proven, on the kernel's files and by a driver's library."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from accelshare.agent.limits.cgroups import CgroupTree
from accelshare.agent.limits.setting import ContainerLimits, LimitError, is_held
from accelshare.agent.limits.wanted import Limit
from accelshare.vendors.drivers.driver import HostCard
from accelshare.vendors.drivers.library_client import LibraryClient
from accelshare.vendors.drivers.nvidia import NvidiaDriver
from accelshare.vendors.enforcement import Enforcement, ProbeResult, Region
from accelshare.vendors.profile import Way
from tests.fakes.build import build
from tests.fakes.hardware import Hardware
from tests.unit.agent.limits.kernel import Kernel

GIB = 2**30
DMEM, NVML = Way(set_by="dmem", region="fake/zpu{index}"), Way(set_by="nvml")
ZPU, GPU = HostCard(0, "zpu0", 16384), HostCard(0, "GPU-0", 16384)
REGION = Region("fake/zpu0", 16 * GIB)
LATE = 20.0


def limit(gib: int, *, by: str = "dmem") -> Limit:
    if by == "dmem":
        return Limit("acme", 0, "zpu0", gib * GIB, Enforcement("dmem", set_by="dmem", regions=(REGION,)))
    return Limit("nvidia", 0, "GPU-0", gib * GIB, Enforcement("nvml", set_by="nvml"))


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path, {"fake/zpu0": 16 * GIB, "fake/zpu1": 16 * GIB})


@pytest.fixture
def limits(kernel: Kernel) -> ContainerLimits:
    return ContainerLimits(kernel, {}, clock=lambda: 0.0)


def test_the_kernel_holds_a_limit(kernel: Kernel, limits: ContainerLimits) -> None:
    group = kernel.make("pod/one")
    limits.hold(group, [limit(4)], timeout_s=1)
    assert kernel.read(group, "dmem.max") == f"fake/zpu0 {4 * GIB}\nfake/zpu1 max\n"


def test_a_limit_that_the_kernel_does_not_keep_is_an_error_with_both_values(kernel: Kernel, limits: ContainerLimits) -> None:
    group = kernel.make("pod/one")
    kernel.forgets = True
    with pytest.raises(LimitError, match=f"{4 * GIB} bytes of card 0 of acme .* no limit was read back"):
        limits.hold(group, [limit(4)], timeout_s=1)


def test_a_group_without_the_controller_is_an_error(kernel: Kernel, limits: ContainerLimits, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    with pytest.raises(LimitError, match=r"bare/dmem\.max .*No such file"):
        limits.hold(PurePosixPath("bare"), [limit(4)], timeout_s=1)


def test_a_limit_is_repaired_if_it_is_missing_or_wrong(kernel: Kernel, limits: ContainerLimits) -> None:
    group = kernel.make("pod/one")
    assert limits.repair(group, limit(4), timeout_s=1) == "no limit"
    assert limits.repair(group, limit(4), timeout_s=1) == ""
    assert limits.repair(group, limit(5), timeout_s=1) == f"{4 * GIB} bytes"
    assert limits.repair(PurePosixPath("gone"), limit(4), timeout_s=1) == ""


def test_a_card_is_proven_on_a_group_of_our_own(kernel: Kernel, limits: ContainerLimits) -> None:
    assert limits.prove("acme", ZPU, DMEM, deadline=LATE) == ProbeResult(True, "a limit was set and read back", (REGION,))
    assert not kernel.has(PurePosixPath("accelshare-probe"))


@pytest.mark.parametrize(
    ("card", "way", "message"),
    [
        (HostCard(7, "zpu7", 1), DMEM, "no region of dmem.capacity belongs to card 7 (address ''); it has fake/zpu0, fake/zpu1"),
        (ZPU, NVML, "the driver of acme has no library that sets limits"),
    ],
)
def test_a_card_without_a_region_or_a_library_is_not_proven(
    limits: ContainerLimits, card: HostCard, way: Way, message: str
) -> None:
    assert limits.prove("acme", card, way, deadline=LATE) == ProbeResult(False, message)


def test_a_limit_that_does_not_read_back_is_not_proven(kernel: Kernel, limits: ContainerLimits) -> None:
    kernel.forgets = True
    found = limits.prove("acme", ZPU, DMEM, deadline=LATE)
    assert (found.met, found.message) == (False, f"a limit of {GIB} bytes was set and no limit read back")


def test_nothing_is_tried_where_limits_cannot_be_set(kernel: Kernel, tmp_path: Path) -> None:
    off = ContainerLimits(kernel, {}, unavailable=lambda: "device plugins deliver")
    assert off.prove("acme", ZPU, DMEM, deadline=LATE) == ProbeResult(False, "device plugins deliver")
    old = ContainerLimits(CgroupTree(tmp_path / "v1"), {})
    assert "cgroup v2 is needed" in old.prove("acme", ZPU, DMEM, deadline=LATE).message


@pytest.mark.parametrize(
    ("found", "held"),
    [(4 * GIB, True), (4 * GIB - 65536, True), (4 * GIB + 1, False), (3 * GIB, False), (0, False), (None, False)],
)
def test_a_limit_may_be_rounded_down_to_pages_and_never_up(found: int | None, held: bool) -> None:
    assert is_held(limit(4), found) is held


# By the driver's library, through the real helper process.


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("nvidia", tmp_path_factory.mktemp("nvidia"))


@pytest.fixture
def hardware(built: Path, tmp_path: Path) -> Hardware:
    return Hardware.copied(built, tmp_path / "hardware")


@pytest.fixture
def library(hardware: Hardware) -> Iterator[LibraryClient]:
    client = NvidiaDriver(hardware.options(libraries=(hardware.path("libnvidia-ml.so.1"),))).limit_library()
    yield client
    client.close()


CARD = {"index": 0, "uuid": "GPU-0", "memory_mib": 16384}


def test_the_driver_holds_a_limit(kernel: Kernel, hardware: Hardware, library: LibraryClient) -> None:
    hardware.has(CARD)
    limits = ContainerLimits(kernel, {"nvidia": library}, clock=lambda: 0.0)
    proof = limits.prove("nvidia", GPU, NVML, deadline=LATE)
    assert proof.met
    group = kernel.make("pod/one")
    limits.hold(group, [limit(4, by="nvml")], timeout_s=20)
    assert (hardware.folder / "limits").read_text() == f"GPU-0 {kernel.path(group)} 0 {4 * GIB}\n"
    assert limits.repair(group, limit(4, by="nvml"), timeout_s=20) == ""
    (hardware.folder / "limits").unlink()  # the driver was loaded again
    assert limits.repair(group, limit(4, by="nvml"), timeout_s=20) == "no limit"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"set_limit": 3}, "nvmlDeviceSetMemoryLimits_v1 returned 3"),
        ({"limit_mib": 16384}, f"a limit of {GIB} bytes was set and {16 * GIB} bytes read back"),
    ],
)
def test_a_card_whose_driver_holds_no_limit_is_not_proven(
    kernel: Kernel, hardware: Hardware, library: LibraryClient, changes: dict[str, object], message: str
) -> None:
    """One card of a node, and another beside it."""
    hardware.has({**CARD, **changes}, {**CARD, "index": 1, "uuid": "GPU-1"})
    limits = ContainerLimits(kernel, {"nvidia": library}, clock=lambda: 0.0)
    found = limits.prove("nvidia", GPU, NVML, deadline=LATE)
    assert not found.met
    assert message in found.message
    assert limits.prove("nvidia", HostCard(1, "GPU-1", 16384), NVML, deadline=LATE).met
    with pytest.raises(LimitError):
        limits.hold(kernel.make("pod/one"), [limit(4, by="nvml")], timeout_s=20)
