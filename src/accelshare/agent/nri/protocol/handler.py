"""What a plugin decides: the seam between NRI's transport and whoever knows which container gets what.

Belongs here: four questions, and how to refuse. All are asked on the connection's own thread, one after the other, and answered
from memory: while one is open, no container of the node can be made. What others may change meanwhile is read in one go.
"""

from collections.abc import Sequence
from typing import Protocol

from accelshare.agent.nri.protocol.nri_pb2 import Container, ContainerAdjustment, PodSandbox
from accelshare.terminal import visible


class Refuse(Exception):  # noqa: N818 – the act, as a handler says it: raise Refuse("…")
    """The container must not be made or started; the text, made visible, reaches kubelet and the pod's events."""

    def __init__(self, text: str) -> None:
        super().__init__(visible(text))


class Handler(Protocol):
    """Answers the runtime."""

    def synchronize(self, pods: Sequence[PodSandbox], containers: Sequence[Container]) -> None:
        """All there is on the node, each time a runtime is connected, before anything else."""
        ...

    def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment:
        """What this container gets; may raise Refuse."""
        ...

    def validate_container(self, pod: PodSandbox, container: Container, adjust: ContainerAdjustment) -> None:
        """The last word on a container: as its pod asked for it, with what all plugins add; may raise Refuse."""
        ...

    def start_container(self, pod: PodSandbox, container: Container) -> None:
        """It is about to start, with all that it was given; may raise Refuse."""
        ...
