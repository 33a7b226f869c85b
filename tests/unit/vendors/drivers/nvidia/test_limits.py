"""Limits that the driver sets on cgroups, through the real helper process and a fake libnvidia-ml of driver 615."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from accelshare.vendors.drivers.driver import NotInstalled, QueryFailed
from accelshare.vendors.drivers.library_client import HasLimitLibrary, LibraryClient
from accelshare.vendors.drivers.library_errors import LibraryError
from accelshare.vendors.drivers.nvidia import NvidiaDriver
from tests.fakes.hardware import Hardware, is_running

CARD = {"index": 0, "uuid": "GPU-0", "memory_mib": 16384}
OTHER = {"index": 1, "uuid": "GPU-1", "memory_mib": 16384}
POD, GROUP, NEIGHBOUR = "/sys/fs/cgroup/pod", "/sys/fs/cgroup/pod/one", "/sys/fs/cgroup/pod/onetwo"
GIB = 2**30
PATIENCE_S = 20.0


@pytest.fixture
def library(hardware: Hardware) -> Iterator[LibraryClient]:
    hardware.has(CARD, OTHER)
    with opened(hardware, "libnvidia-ml.so.1") as client:
        yield client


@contextmanager
def opened(hardware: Hardware, name: str, timeout_s: float = PATIENCE_S) -> Iterator[LibraryClient]:
    driver = NvidiaDriver(hardware.options(libraries=(hardware.path(name),), timeout_s=timeout_s))
    assert isinstance(driver, HasLimitLibrary)
    client = driver.limit_library()
    yield client
    client.close()


def set_limit(library: LibraryClient, limit: int | None, group: str = GROUP, id: str = "GPU-0") -> int | None:
    return library.call("set_memory_limit", id, group, limit, into=int | None, timeout_s=PATIENCE_S)  # type: ignore[no-any-return]


def read(library: LibraryClient, group: str = GROUP, id: str = "GPU-0") -> int | None:
    return library.call("memory_limit", id, group, into=int | None, timeout_s=PATIENCE_S)  # type: ignore[no-any-return]


def helper_pid() -> int:
    """The helper of the only client of this process."""
    (task,) = [thread for thread in threading.enumerate() if thread.name == "nvidia limits"]
    (child,) = Path(f"/proc/self/task/{task.native_id}/children").read_text().split()
    return int(child)


def test_a_limit_is_set_read_back_and_cleared(library: LibraryClient) -> None:
    assert read(library) is None
    assert set_limit(library, 4 * GIB) == 4 * GIB
    assert (read(library), read(library, NEIGHBOUR), read(library, id="GPU-1")) == (4 * GIB, None, None)
    assert set_limit(library, 5 * GIB) == 5 * GIB
    assert set_limit(library, None) is None
    assert read(library) is None


def test_a_limit_holds_for_groups_below(library: LibraryClient) -> None:
    assert set_limit(library, 4 * GIB, POD) == 4 * GIB
    assert read(library, GROUP) == 4 * GIB
    assert set_limit(library, GIB) == GIB
    assert (read(library, GROUP), read(library, NEIGHBOUR)) == (GIB, 4 * GIB)


def test_a_driver_before_615_has_no_limits(hardware: Hardware) -> None:
    hardware.has(CARD)
    refused = pytest.raises(QueryFailed, match="has no function nvmlDeviceSetMemoryLimits_v1")
    with opened(hardware, "libnvidia-ml-old.so") as library, refused:
        set_limit(library, GIB)


@pytest.mark.parametrize(
    ("changes", "match"),
    [({"set_limit": 4}, "nvmlDeviceSetMemoryLimits_v1 returned 4"), ({"mig": 1}, "MIG is on"), ({"uuid": "GPU-x"}, "returned 6")],
)
def test_a_card_that_refuses_a_limit(hardware: Hardware, library: LibraryClient, changes: dict[str, object], match: str) -> None:
    hardware.has({**CARD, **changes})
    with pytest.raises(QueryFailed, match=match):
        set_limit(library, GIB)


def test_what_the_driver_has_is_read_and_not_what_was_wanted(hardware: Hardware, library: LibraryClient) -> None:
    hardware.has({**CARD, "limit_mib": 16384})
    assert set_limit(library, GIB) == 16 * GIB


def test_a_library_that_is_not_there(hardware: Hardware) -> None:
    with opened(hardware, "libnowhere.so") as library, pytest.raises(NotInstalled, match=r"libnowhere\.so: cannot be loaded"):
        read(library)


def test_the_helper_stays_open_and_is_started_again_when_it_has_died(hardware: Hardware, library: LibraryClient) -> None:
    set_limit(library, GIB)
    first = helper_pid()
    set_limit(library, GIB)
    assert helper_pid() == first
    hardware.has(CARD, crash="nvmlDeviceGetMemoryLimits_v1")
    with pytest.raises(QueryFailed, match="ended during memory_limit"):
        read(library)
    hardware.has(CARD)
    assert read(library) == GIB
    assert helper_pid() != first
    assert not is_running(first)


def test_a_driver_that_was_loaded_again_is_opened_again(hardware: Hardware, library: LibraryClient) -> None:
    set_limit(library, GIB)
    first = helper_pid()
    hardware.has({**CARD, "code": 15})  # lost
    with pytest.raises(LibraryError):
        read(library)
    hardware.has(CARD)
    assert read(library) == GIB
    assert helper_pid() != first


def test_a_caller_waits_no_longer_than_it_wants_and_a_hanging_helper_is_killed(hardware: Hardware) -> None:
    hardware.has(CARD)
    with opened(hardware, "libnvidia-ml.so.1", timeout_s=1) as library:
        set_limit(library, GIB)
        hung = helper_pid()
        hardware.has(CARD, hang="nvmlDeviceGetMemoryLimits_v1")
        with pytest.raises(QueryFailed, match=r"no answer within 0\.05 s"):
            library.call("memory_limit", "GPU-0", GROUP, into=int | None, timeout_s=0.05)
        # This one waits behind it, and nobody waits for it any more when its turn comes: it is not made.
        with pytest.raises(QueryFailed, match=r"no answer within 0\.05 s"):
            library.call("set_memory_limit", "GPU-0", GROUP, 2 * GIB, into=int | None, timeout_s=0.05)
        hardware.has(CARD)
        assert read(library) == GIB
        assert not is_running(hung)


def test_no_helper_is_left_when_the_client_is_closed(library: LibraryClient) -> None:
    set_limit(library, GIB)
    pid = helper_pid()
    library.close()
    assert not is_running(pid)
