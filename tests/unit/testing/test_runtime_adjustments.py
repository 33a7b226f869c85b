import pytest

from accelshare.agent.nri.protocol.messages import Container, LinuxContainer, LinuxDevice, Mount, adjustment
from accelshare.testing.runtime_adjustments import Claims, ConflictError, adjusted, mounted

CONTAINER = Container(
    "c",
    env=("CARD=7", "MODE=fast"),
    linux=LinuxContainer((LinuxDevice("/dev/a", "c", 1, 1),)),
    annotations={"kept": "1", "gone": "1"},
)
MOUNTS = (Mount("/data", source="/mnt"), Mount("/trip", source="/nowhere"))


def test_what_the_pod_set_itself_is_replaced() -> None:
    wanted = adjustment(
        env={"CARD": "0"},
        devices=[LinuxDevice("/dev/a", "c", 2, 2)],
        mounts=[Mount("/data", source="/card")],
        annotations={"new": "1"},
    )
    made = adjusted(CONTAINER, wanted, "10-a", {})
    assert made.environment == {"CARD": "0", "MODE": "fast"}
    assert made.devices == (LinuxDevice("/dev/a", "c", 2, 2),)
    assert mounted(MOUNTS, wanted) == (Mount("/trip", source="/nowhere"), Mount("/data", source="/card"))
    assert made.annotations == {"kept": "1", "gone": "1", "new": "1"}


def test_a_minus_takes_away() -> None:
    wanted = adjustment(env={"-CARD": ""}, devices=[LinuxDevice("-/dev/a")], mounts=[Mount("-/trip")], annotations={"-gone": ""})
    made = adjusted(CONTAINER, wanted, "10-a", {})
    assert made.environment == {"MODE": "fast"}
    assert made.devices == ()
    assert mounted(MOUNTS, wanted) == (Mount("/data", source="/mnt"),)
    assert made.annotations == {"kept": "1"}


def test_two_plugins_that_want_the_same_conflict() -> None:
    claims: Claims = {}
    adjusted(CONTAINER, adjustment(env={"CARD": "0"}), "10-a", claims)
    adjusted(CONTAINER, adjustment(env={"OTHER": "0"}), "20-b", claims)
    for name in ("20-b", "10-a"):
        with pytest.raises(ConflictError, match=f'plugins "{name}" and "10-a" both tried to set env CARD'):
            adjusted(CONTAINER, adjustment(env={"CARD": "0"}), name, claims)
