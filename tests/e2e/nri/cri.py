"""A client of the Container Runtime Interface: runs pods and containers in a runtime as kubelet does."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from tests.e2e.nri.cri_pb2 import (
    ContainerConfig,
    CreateContainerRequest,
    Empty,
    ExecSyncRequest,
    ExecSyncResponse,
    Id,
    KeyValue,
    LinuxPodSandboxConfig,
    LinuxSandboxSecurityContext,
    Named,
    NamespaceOption,
    PodSandboxConfig,
    PodSandboxMetadata,
    RunPodSandboxRequest,
)

CONTAINER_NAMESPACE: Final = 1
NODE_NETWORK: Final = 2
CALL_S: Final = 120.0
EXEC_S: Final = 60
Answer = TypeVar("Answer", bound=Message)


class CriError(Exception):
    """The runtime returned an error; the text is what kubelet would show."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A sandbox that runs."""

    id: str
    config: PodSandboxConfig


class Cri:
    """Calls of one runtime; they block, so call them from a thread while a plugin has to answer."""

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
        namespaces = NamespaceOption(network=NODE_NETWORK, pid=CONTAINER_NAMESPACE)
        config = PodSandboxConfig(
            metadata=PodSandboxMetadata(name=name, uid=f"uid-of-{name}", namespace="tests"),
            labels={"app": name},
            annotations=annotations,
            linux=LinuxPodSandboxConfig(
                cgroup_parent=cgroup, security_context=LinuxSandboxSecurityContext(namespace_options=namespaces)
            ),
        )
        return Pod(self._call("RunPodSandbox", RunPodSandboxRequest(config=config), Id).id, config)

    def create(self, pod: Pod, name: str, *, image: str, env: Mapping[str, str] | None = None) -> str:
        """Create a container that sleeps; returns its id."""
        config = ContainerConfig(
            metadata=Named(name=name),
            image=Named(name=image),
            command=["/bin/sleep", "1000000"],
            envs=[KeyValue(key=key, value=value) for key, value in (env or {}).items()],
            labels={"container": name},
        )
        request = CreateContainerRequest(pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config)
        return self._call("CreateContainer", request, Id).id

    def start(self, container_id: str) -> None:
        self._call("StartContainer", Id(id=container_id), Empty)

    def run(self, container_id: str, *command: str) -> str:
        """The output of a command inside the container."""
        request = ExecSyncRequest(container_id=container_id, cmd=command, timeout_s=EXEC_S)
        output = self._call("ExecSync", request, ExecSyncResponse)
        if output.exit_code:
            raise CriError(f"{command} ended with {output.exit_code}: {output.stderr.decode()}")
        return output.stdout.decode()

    def _call(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        call: Any = self._channel.unary_unary(
            f"/runtime.v1.RuntimeService/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        try:
            answered: Answer = call(request, timeout=CALL_S)
        except grpc.RpcError as error:
            details: Any = error
            raise CriError(str(details.details())) from error
        return answered
