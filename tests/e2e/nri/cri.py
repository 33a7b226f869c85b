"""What kubelet asks of a runtime, as far as tests need it: pods and containers over CRI.

Belongs here: CRI's messages and calls. The numbers are those of runtime.v1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import grpc

from accelshare.agent.nri.protocol.protobuf import decode, encode

NODE_NETWORK: Final = 2
CALL_S: Final = 120.0
Answer = TypeVar("Answer")


class CriError(Exception):
    """The runtime said no; the text is what kubelet would show."""


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing of interest."""


@dataclass(frozen=True, slots=True)
class PodMetadata:
    name: Annotated[str, 1] = ""
    uid: Annotated[str, 2] = ""
    namespace: Annotated[str, 3] = ""


@dataclass(frozen=True, slots=True)
class Namespaces:
    network: Annotated[int, 1] = NODE_NETWORK
    pid: Annotated[int, 2] = 1


@dataclass(frozen=True, slots=True)
class Security:
    namespaces: Annotated[Namespaces | None, 1] = field(default_factory=Namespaces)


@dataclass(frozen=True, slots=True)
class LinuxPod:
    cgroup_parent: Annotated[str, 1] = ""
    security: Annotated[Security | None, 2] = field(default_factory=Security)


@dataclass(frozen=True, slots=True)
class PodConfig:
    metadata: Annotated[PodMetadata | None, 1] = None
    labels: Annotated[Mapping[str, str], 6] = field(default_factory=dict)
    annotations: Annotated[Mapping[str, str], 7] = field(default_factory=dict)
    linux: Annotated[LinuxPod | None, 8] = None


@dataclass(frozen=True, slots=True)
class RunPod:
    config: Annotated[PodConfig | None, 1] = None


@dataclass(frozen=True, slots=True)
class Id:
    """Of a pod or container: most calls have it as their first field."""

    id: Annotated[str, 1] = ""


@dataclass(frozen=True, slots=True)
class Named:
    name: Annotated[str, 1] = ""


@dataclass(frozen=True, slots=True)
class KeyValue:
    key: Annotated[str, 1] = ""
    value: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    metadata: Annotated[Named | None, 1] = None
    image: Annotated[Named | None, 2] = None
    command: Annotated[tuple[str, ...], 3] = ()
    env: Annotated[tuple[KeyValue, ...], 6] = ()
    labels: Annotated[Mapping[str, str], 9] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateContainer:
    pod_id: Annotated[str, 1] = ""
    config: Annotated[ContainerConfig | None, 2] = None
    pod_config: Annotated[PodConfig | None, 3] = None


@dataclass(frozen=True, slots=True)
class Exec:
    container_id: Annotated[str, 1] = ""
    command: Annotated[tuple[str, ...], 2] = ()
    timeout_s: Annotated[int, 3] = 60


@dataclass(frozen=True, slots=True)
class Output:
    out: Annotated[bytes, 1] = b""
    error: Annotated[bytes, 2] = b""
    code: Annotated[int, 3] = 0


@dataclass(frozen=True, slots=True)
class Pod:
    """A sandbox that runs."""

    id: str
    config: PodConfig


class Cri:
    """Calls of one runtime; they wait, as kubelet does, so call them from a thread while a plugin has to answer."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix://{socket}", options=[("grpc.default_authority", "localhost")])

    def close(self) -> None:
        self._channel.close()

    def answers(self) -> bool:
        try:
            self._call("Version", Empty(), Empty)
        except CriError:
            return False
        return True

    def run_pod(self, name: str, *, cgroup: str, annotations: Mapping[str, str] | None = None) -> Pod:
        config = PodConfig(
            PodMetadata(name, uid=f"uid-of-{name}", namespace="tests"),
            labels={"app": name},
            annotations=annotations or {},
            linux=LinuxPod(cgroup),
        )
        return Pod(self._call("RunPodSandbox", RunPod(config), Id).id, config)

    def create(self, pod: Pod, name: str, *, image: str, env: Mapping[str, str] | None = None) -> str:
        """A container that sleeps; its id."""
        variables = tuple(KeyValue(key, value) for key, value in (env or {}).items())
        config = ContainerConfig(Named(name), Named(image), ("/bin/sleep", "1000000"), variables, {"container": name})
        return self._call("CreateContainer", CreateContainer(pod.id, config, pod.config), Id).id

    def start(self, container_id: str) -> None:
        self._call("StartContainer", Id(container_id), Empty)

    def run(self, container_id: str, *command: str) -> str:
        """What the command says inside of the container."""
        output = self._call("ExecSync", Exec(container_id, command), Output)
        if output.code:
            raise CriError(f"{command} ended with {output.code}: {output.error.decode()}")
        return output.out.decode()

    def _call(self, method: str, request: Any, answer: type[Answer]) -> Answer:
        call: Any = self._channel.unary_unary(
            f"/runtime.v1.RuntimeService/{method}",
            request_serializer=encode,
            response_deserializer=lambda raw: decode(answer, raw),
        )
        try:
            answered: Answer = call(request, timeout=CALL_S)
        except grpc.RpcError as error:
            details: Any = error
            raise CriError(str(details.details())) from error
        return answered
