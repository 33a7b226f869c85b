import pytest

from accelshare.agent.nri.protocol.messages import adjustment, environment
from accelshare.agent.nri.protocol.nri_pb2 import Container, LinuxContainer, LinuxDevice, Mount
from accelshare.testing.runtime_adjustments import Claims, ConflictError, adjusted, mounted

CONTAINER = Container(
    id="c",
    env=("CARD=7", "MODE=fast"),
    linux=LinuxContainer(devices=(LinuxDevice(path="/dev/a", type="c", major=1, minor=1),)),
    annotations={"kept": "1", "gone": "1"},
)
MOUNTS = (Mount(destination="/data", source="/mnt"), Mount(destination="/trip", source="/nowhere"))


def test_what_the_pod_set_itself_is_replaced() -> None:
    wanted = adjustment(
        env={"CARD": "0"},
        devices=[LinuxDevice(path="/dev/a", type="c", major=2, minor=2)],
        mounts=[Mount(destination="/data", source="/card")],
        annotations={"new": "1"},
    )
    made = adjusted(CONTAINER, wanted, "10-a", {})
    assert environment(made) == {"CARD": "0", "MODE": "fast"}
    assert list(made.linux.devices) == [LinuxDevice(path="/dev/a", type="c", major=2, minor=2)]
    assert mounted(MOUNTS, wanted) == (Mount(destination="/trip", source="/nowhere"), Mount(destination="/data", source="/card"))
    assert made.annotations == {"kept": "1", "gone": "1", "new": "1"}


def test_a_minus_takes_away() -> None:
    wanted = adjustment(
        env={"-CARD": ""}, devices=[LinuxDevice(path="-/dev/a")], mounts=[Mount(destination="-/trip")], annotations={"-gone": ""}
    )
    made = adjusted(CONTAINER, wanted, "10-a", {})
    assert environment(made) == {"MODE": "fast"}
    assert not made.linux.devices
    assert mounted(MOUNTS, wanted) == (Mount(destination="/data", source="/mnt"),)
    assert made.annotations == {"kept": "1"}


def test_two_plugins_that_want_the_same_conflict() -> None:
    claims: Claims = {}
    adjusted(CONTAINER, adjustment(env={"CARD": "0"}), "10-a", claims)
    adjusted(CONTAINER, adjustment(env={"OTHER": "0"}), "20-b", claims)
    for name in ("20-b", "10-a"):
        with pytest.raises(ConflictError, match=f'plugins "{name}" and "10-a" both tried to set env CARD'):
            adjusted(CONTAINER, adjustment(env={"CARD": "0"}), name, claims)
