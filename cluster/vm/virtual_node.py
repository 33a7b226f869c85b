"""Runs the virtual node: boots it under QEMU as a node of a control plane, runs commands on it, and powers it off.

    with VirtualNode.start(parts, plane, directory, profiles=[...]) as node:
        node.run("systemctl restart kubelet")

QEMU emulates the processor, so it needs nothing of this machine's and is some twenty times slower.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cluster.build import Binaries, binaries
from cluster.cache import cache_directory
from cluster.control_plane import ControlPlane
from cluster.errors import ClusterError, ProcessError
from cluster.local import packages
from cluster.local.bring_up import provide_libraries
from cluster.local.shell import run
from cluster.process import Process
from cluster.versions import CONTROL_PLANE_PROGRAMS
from cluster.vm import debian, guest_files, network
from cluster.vm.kernel import Kernel, kernel
from cluster.vm.layout import AGENT_PORT, NODE_ADDRESS, NODE_NAME, TAP
from cluster.vm.root_disk import NODE_PROGRAMS, make_file_system, root_disk
from cluster.waiting import wait_until

SOURCE: Final = Path(__file__).parents[2] / "src"

_PROCESSORS: Final = 2
_MEMORY_MIB: Final = 2048
_ARGUMENTS: Final = (
    "root=/dev/vda",
    "rw",
    "console=ttyS0",
    "TERM=dumb",  # no colours and animations in its file
    "net.ifnames=0",
    "mitigations=off",
    "tsc=reliable",  # a busy machine makes it look unstable, and any other clock is slow under emulation
    "panic=-1",
    "systemd.default_device_timeout_sec=1200",
    "systemd.default_timeout_start_sec=1200",
)
_READY_LIMIT_S: Final = 1200.0
_COMMAND_LIMIT_S: Final = 300.0
_POWER_OFF_LIMIT_S: Final = 240.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What a virtual node is made of."""

    kernel: Kernel
    root_disk: Path


def provide(say: Callable[[str], None] = print) -> Parts:
    """All parts, built or found; prints progress for anything that takes long."""
    cache = cache_directory() / "vm"
    debian.provide_tools(cache / "logs" / "apt-get.log", say)
    packages.ensure(packages.TO_RUN, cache / "logs" / "apt-get.log", say)
    programs = _programs(say)
    return Parts(kernel(cache, say), root_disk(cache, programs, say))


def _programs(say: Callable[[str], None]) -> Binaries:
    """The node's; the control plane's are built too, while there is a network."""
    provide_libraries(say)
    return binaries((*CONTROL_PLANE_PROGRAMS, *NODE_PROGRAMS), say)


class VirtualNode:
    """One running guest."""

    def __init__(self, parts: Parts, plane: ControlPlane, directory: Path, say: Callable[[str], None]) -> None:
        self.name = NODE_NAME
        self.address = NODE_ADDRESS
        self.agent_url = f"http://{NODE_ADDRESS}:{AGENT_PORT}"
        self.console = directory / "console.log"
        self._parts = parts
        self._plane = plane
        self._directory = directory
        self._say = say
        self._key = directory / "key"
        self._control = directory / "ssh"
        self._machine: Process | None = None
        self._connection: Process | None = None

    @classmethod
    def start(
        cls,
        parts: Parts,
        plane: ControlPlane,
        directory: Path,
        *,
        profiles: Sequence[Path],
        agent_flags: Sequence[str] = (),
        kernel_arguments: Sequence[str] = (),
        say: Callable[[str], None] = print,
    ) -> Self:
        """Boot it and return when its Node object is Ready. The agent is not started; it will have these profiles and flags."""
        begun = time.monotonic()
        directory.mkdir(parents=True)
        node = cls(parts, plane, directory, say)
        try:
            network.make_tap()
            node._boot(node._second_disk(profiles, agent_flags), kernel_arguments)
            node._wait_until_ready()
            node._connect()
        except BaseException:
            node.stop()
            raise
        say(f"node {node.name} ready in {time.monotonic() - begun:.0f} s, console in {node.console}")
        return node

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def run(self, command: str, *, limit_s: float = _COMMAND_LIMIT_S) -> str:
        """What a shell command on the node prints; raises with its error text if it fails."""
        return run(self._ssh(command), limit_s=limit_s)

    def start_agent(self) -> None:
        """Return when systemd has started it; the agent's /readyz says when it delivers."""
        self.run(f"systemctl reset-failed {guest_files.AGENT_UNIT} 2>/dev/null; systemctl start {guest_files.AGENT_UNIT}")

    def signal_agent(self, signal: str) -> None:
        """Send a signal, for example KILL, to the agent's process."""
        self.run(f"systemctl kill --kill-whom=main --signal={signal} {guest_files.AGENT_UNIT}")

    def agent_log(self, lines: int = 30) -> str:
        """The end of it."""
        return self.run(f"journalctl --unit={guest_files.AGENT_UNIT} --no-pager --output=cat --lines={lines}")

    @property
    def ready(self) -> bool:
        """Whether the API server knows the node as Ready."""
        listed: dict[str, Any] = json.loads(self._plane.kubectl("get", "nodes", "--output=json"))
        return any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for node in listed["items"]
            if node["metadata"]["name"] == self.name
            for condition in node["status"].get("conditions", [])
        )

    @property
    def running(self) -> bool:
        """Whether QEMU runs."""
        return self._machine is not None and self._machine.running

    def stop(self) -> None:
        """Power it off, or end QEMU if the guest does not answer. What the guest wrote is forgotten either way."""
        machine, connection = self._machine, self._connection
        if machine is not None and machine.running and connection is not None:
            self._power_off(machine)
        for process in (connection, machine):
            if process is not None:
                process.stop(10)

    def evidence(self) -> str:
        """The end of the console, for the error of a wait."""
        lines = self.console.read_text(errors="replace").splitlines()[-25:] if self.console.exists() else []
        return "\n".join(["", f"--- {self.console}", *lines])

    def _power_off(self, machine: Process) -> None:
        try:
            subprocess.run(self._ssh("systemctl poweroff"), capture_output=True, check=False, timeout=60)
            wait_until(lambda: not machine.running, "the node powers off", _POWER_OFF_LIMIT_S, 0.5)
        except (ClusterError, subprocess.TimeoutExpired) as error:
            self._say(f"the node did not power off, QEMU is ended: {error}")

    def _second_disk(self, profiles: Sequence[Path], agent_flags: Sequence[str]) -> Path:
        tree = self._directory / "second-disk"
        (tree / guest_files.PROFILES).mkdir(parents=True)
        for profile in profiles:
            shutil.copy(profile, tree / guest_files.PROFILES)
        (tree / guest_files.AGENT_ENVIRONMENT).write_text(f"AGENT_FLAGS={' '.join(agent_flags)}\n")
        shutil.copytree(SOURCE, tree / guest_files.AGENT_SOURCE, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        shutil.copy(self._parts.kernel.module, tree / guest_files.MODULE)
        shutil.copy(self._plane.ca_file, tree / guest_files.CA)
        shutil.copy(
            self._plane.kubeconfig_for(f"system:node:{self.name}", ["system:nodes"]), tree / guest_files.KUBELET_KUBECONFIG
        )
        shutil.copy(self._plane.kubeconfig_for("accelshare-agent"), tree / guest_files.AGENT_KUBECONFIG)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "accelshare", "-f", self._key])
        shutil.copy(self._key.with_suffix(".pub"), tree / guest_files.AUTHORIZED_KEYS)
        disk = self._directory / "second-disk.ext4"
        make_file_system(disk, tree, "64M", self._directory / "mkfs.log", self._say)
        shutil.rmtree(tree)
        return disk

    def _boot(self, second_disk: Path, kernel_arguments: Sequence[str]) -> None:
        program = shutil.which("qemu-system-x86_64")
        if program is None:
            raise ClusterError("there is no qemu-system-x86_64 on PATH; `make test-vm` installs it")
        command = [
            program,
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            *("-display", "none"),
            *("-machine", "q35"),
            *("-accel", "tcg,thread=multi,tb-size=512"),
            *("-cpu", "max"),
            *("-smp", str(_PROCESSORS)),
            *("-m", str(_MEMORY_MIB)),
            *("-kernel", str(self._parts.kernel.image)),
            *("-append", " ".join([*_ARGUMENTS, *kernel_arguments])),
            # A snapshot is a file without a name in TMPDIR: a guest that is killed leaves the disk as it was.
            *("-drive", f"file={self._parts.root_disk},if=virtio,format=raw,snapshot=on"),
            *("-drive", f"file={second_disk},if=virtio,format=raw,readonly=on"),
            *("-netdev", f"tap,id=network,ifname={TAP},script=no,downscript=no"),
            *("-device", "virtio-net-pci,netdev=network,romfile="),
            *("-device", "virtio-rng-pci"),
            *("-serial", f"file:{self.console}"),
        ]
        environment = {**os.environ, "TMPDIR": str(self._directory)}
        self._machine = Process("qemu", command, self._directory / "qemu.log", environment=environment)

    def _wait_until_ready(self) -> None:
        machine = self._machine
        assert machine is not None

        def ready_or_ended() -> bool:
            if not machine.running:
                raise ProcessError(f"the node ended before it was ready:\n{machine.last_lines()}{self.evidence()}")
            return self.ready

        wait_until(ready_or_ended, f"node {self.name} ready", _READY_LIMIT_S, 3.0, evidence=self.evidence)

    def _connect(self) -> None:
        """One connection for all commands: under emulation a new one takes seconds of processor time."""
        ssh = shutil.which("ssh") or "ssh"
        command = [ssh, *self._ssh_options(), "-o", "ControlMaster=yes", "-N", f"root@{self.address}"]
        self._connection = Process("ssh", command, self._directory / "ssh.log")
        self._connection.wait_ready(self._control.exists, 300)

    def _ssh(self, command: str) -> list[str | Path]:
        return ["ssh", *self._ssh_options(), f"root@{self.address}", command]

    def _ssh_options(self) -> list[str]:
        options = {
            "IdentityFile": self._key,
            "IdentitiesOnly": "yes",
            "ControlPath": self._control,
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "BatchMode": "yes",
            "LogLevel": "ERROR",
            "ConnectTimeout": 60,
        }
        return ["-F", "none", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
