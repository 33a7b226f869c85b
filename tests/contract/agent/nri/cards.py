"""A Handler for tests: it gives every container the same card; some container names have other effects."""

import threading
from collections.abc import Sequence

from accelshare.agent.nri.protocol.messages import adjustment
from accelshare.agent.nri.protocol.nri_pb2 import (
    Container,
    ContainerAdjustment,
    LinuxDevice,
    Mount,
    OptionalFileMode,
    OptionalUInt32,
    PodSandbox,
)
from accelshare.agent.nri.protocol.plugin import Refuse

# c 10:229 (fuse) is not a default device of containers, so a container that can use it got the cgroup rule too.
CARD = LinuxDevice(
    path="/dev/card0", type="c", major=10, minor=229, file_mode=OptionalFileMode(value=0o666), uid=OptionalUInt32(value=0)
)
LIBRARY = Mount(destination="/opt/card", type="bind", source="/usr", options=("rbind", "ro", "rprivate"))
GIVEN = adjustment(env={"CARD": "0"}, devices=[CARD], mounts=[LIBRARY], annotations={"accelshare.io/given": "yes"})


class Cards:
    """`refused` is refused, `broken` fails by a bug, `big-N` gets an annotation of N bytes, `unstartable` may not start."""

    def __init__(self) -> None:
        self.seen: list[tuple[tuple[str, ...], tuple[str, ...]]] = []  # of each list: pods, containers
        self.created: list[Container] = []
        self.pod_groups: list[str] = []  # of the pods of created containers
        self.started: list[Container] = []

    def synchronize(self, pods: Sequence[PodSandbox], containers: Sequence[Container]) -> None:
        self.seen.append((tuple(pod.name for pod in pods), tuple(one.name for one in containers)))

    def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment:
        self.created.append(container)
        self.pod_groups.append(pod.linux.cgroup_parent)
        match container.name.split("-"):
            case ["refused"]:
                raise Refuse(f"card 0 is not for {pod.namespace}/{pod.name}")
            case ["broken"]:
                raise ZeroDivisionError("a bug")
            case ["big", size]:
                return adjustment(annotations={"big": "x" * int(size)})
        return GIVEN

    def validate_container(self, pod: PodSandbox, container: Container, adjust: ContainerAdjustment) -> None:
        pass

    def start_container(self, pod: PodSandbox, container: Container) -> None:
        self.started.append(container)
        if container.name == "unstartable":
            raise Refuse("it has no card")


class Stuck(Cards):
    """Blocks its thread in CreateContainer until the test continues."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment:
        self.go_on.wait(600)
        return super().create_container(pod, container)
