"""Where callers can come to."""

import socket
import sys

import pytest

from accelshare.extender.listening import OWN_FILES, CannotServeError, MostCallers, listen, most_callers

needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the kernel has no IPv6")


def reached(port: int, *addresses: str) -> list[str]:
    """Those of these addresses at which somebody listens."""
    found = []
    for address in addresses:
        try:
            socket.create_connection((address, port), timeout=10).close()
        except OSError:
            continue
        found.append(address)
    return found


@needs_ipv6
def test_without_a_host_callers_come_by_ipv6_and_by_ipv4() -> None:
    with listen("", 0) as listening:
        listening.listen()
        assert reached(listening.getsockname()[1], "127.0.0.1", "::1") == ["127.0.0.1", "::1"]


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_with_a_host_only_there(host: str) -> None:
    with listen(host, 0) as listening:
        listening.listen()
        assert reached(listening.getsockname()[1], "127.0.0.1", "::1") == [host]


def test_where_there_is_no_ipv6_callers_come_by_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listen("", 0) as listening:
        listening.listen()
        assert reached(listening.getsockname()[1], "127.0.0.1") == ["127.0.0.1"]


def test_a_port_that_is_taken_is_named() -> None:
    with listen("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(CannotServeError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            listen("127.0.0.1", port)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize(
    ("soft", "hard", "raised", "most"),
    [
        (1024, 1 << 20, 2140, MostCallers(1000, 100)),
        (1 << 20, 1 << 20, 0, MostCallers(1000, 100)),
        (256, 1024, 1024, MostCallers(442, 100)),
        (64, 64, 64, MostCallers(10, 3)),
        (-1, -1, 0, MostCallers(1000, 100)),
    ],
)
def test_every_callers_bind_has_a_file_left(
    soft: int, hard: int, raised: int, most: MostCallers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is raised if it may be; what it does not allow is not promised to callers."""
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: told.append(limits))
    told: list[tuple[int, int]] = []
    assert most_callers() == most
    assert told == ([(raised, hard)] if raised else [])
    if raised:
        assert OWN_FILES + 2 * most.serving + most.probing <= raised
