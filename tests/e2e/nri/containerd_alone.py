"""A real containerd without kubelet for a test: its files in one directory, its processes in namespaces that end with the test.

Belongs here: starting, killing and calling it. Never: what plugins do.

It has the cluster's version, or with ACCELSHARE_CONTAINERD=DIRECTORY the version in that directory, with its shim and ctr.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

from accelshare.runtimes.versions import release
from cluster.build import Binaries, binaries
from cluster.local.cgroups import hierarchies
from cluster.local.images import busybox_files, make_image
from cluster.waiting import wait_until
from tests.e2e.nri.cri import Cri

PROGRAMS: Final = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")
IMAGE: Final = "accelshare.local/busybox:1"
PAUSE: Final = "accelshare.local/pause:1"
OTHER: Final = os.environ.get("ACCELSHARE_CONTAINERD", "")


class ContainerdAlone:
    """`with ContainerdAlone() as containerd:` runs a runtime with NRI that only this test uses."""

    def __init__(self, *, validator: bool = False, request_timeout: str = "2s") -> None:
        # Short, because socket paths are limited.
        self.directory = Path(tempfile.mkdtemp(prefix="nri-", dir="/tmp"))
        self.cgroup = f"/accelshare-{self.directory.name}"
        self._log = self.directory / "containerd.log"
        self._programs = self.directory / "bin"
        self._validator = validator
        self._request_timeout = request_timeout
        self._holder: subprocess.Popen[bytes] | None = None
        self._daemon: subprocess.Popen[bytes] | None = None
        self.cri: Cri | None = None
        self.version = ""

    @property
    def _is_old(self) -> bool:
        return release(self.version) < (2, 0, 0)

    @property
    def socket(self) -> Path:
        return self.directory / "containerd.sock"

    @property
    def nri_socket(self) -> Path:
        return self.directory / "nri" / "nri.sock"

    def __enter__(self) -> "ContainerdAlone":
        try:
            self._lay_out(binaries(PROGRAMS, print))
            self._hold_namespaces()
            self.start()
            self._load_images()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Start containerd and wait until it answers."""
        assert self._holder is not None
        namespaces = Path("/proc") / str(self._holder.pid) / "ns"
        enter = ["nsenter", f"--mount={namespaces / 'mnt'}", f"--pid={namespaces / 'pid_for_children'}"]
        with self._log.open("ab") as log:
            self._daemon = subprocess.Popen(
                [*enter, self._programs / "containerd", "--config", self.directory / "config.toml"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PATH": f"{self._programs}:{os.environ['PATH']}"},
            )
        wait_until(self._answers, f"containerd answers; see\n{self._log.read_text()[-2000:]}", limit_s=120.0)

    def kill(self) -> None:
        """Kill containerd; containers and their shims stay."""
        assert self._daemon is not None
        # The process is nsenter; containerd is its only child.
        for child in Path(f"/proc/{self._daemon.pid}/task/{self._daemon.pid}/children").read_text().split():
            os.kill(int(child), 9)
        self._daemon.wait(60)

    def close(self) -> None:
        """End everything: processes and mounts end with the first process of their namespace."""
        if self.cri is not None:
            self.cri.close()
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait(60)
        if self._daemon is not None:
            self._daemon.wait(60)
        _remove_cgroups(self.cgroup)
        shutil.rmtree(self.directory)

    def _lay_out(self, programs: Binaries) -> None:
        self._programs.mkdir()
        for name in PROGRAMS:
            other = Path(OTHER).resolve() / name
            (self._programs / name).symlink_to(other if OTHER and other.exists() else programs[name])
        output = subprocess.run([self._programs / "containerd", "--version"], check=True, capture_output=True, text=True).stdout
        self.version = output.split()[2]
        (self.directory / "config.toml").write_text(self._configuration())

    def _configuration(self) -> str:
        nri = "io.containerd.nri.v1.nri"
        cri: dict[str, dict[str, object]]
        if self._is_old:
            runtime = "io.containerd.grpc.v1.cri"
            cri = {
                f"plugins.'{runtime}'": {"restrict_oom_score_adj": True, "sandbox_image": PAUSE},
                f"plugins.'{runtime}'.containerd": {"snapshotter": "overlayfs"},
            }
        else:
            runtime, images = "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images"
            cri = {
                f"plugins.'{runtime}'": {"restrict_oom_score_adj": True},
                f"plugins.'{images}'": {"snapshotter": "overlayfs"},
                f"plugins.'{images}'.pinned_images": {"sandbox": PAUSE},
            }
        tables: dict[str, dict[str, object]] = {
            "grpc": {"address": str(self.socket)},
            **cri,
            f"plugins.'{runtime}'.containerd.runtimes.runc": {"runtime_type": "io.containerd.runc.v2"},
            f"plugins.'{runtime}'.containerd.runtimes.runc.options": {"BinaryName": str(self._programs / "runc")},
            "plugins.'io.containerd.internal.v1.opt'": {"path": str(self.directory / "opt")},
            f"plugins.'{nri}'": {
                "disable": False,
                "socket_path": str(self.nri_socket),
                "plugin_path": str(self.directory / "nri-plugins"),
                "plugin_config_path": str(self.directory / "nri-conf"),
                "plugin_request_timeout": self._request_timeout,
            },
            f"plugins.'{nri}'.default_validator": {"enable": self._validator},
        }
        lines = [
            f"version = {2 if self._is_old else 3}",
            f"root = {json.dumps(str(self.directory / 'root'))}",
            f"state = {json.dumps(str(self.directory / 'state'))}",
        ]
        for name, content in tables.items():
            lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in content.items())]
        return "\n".join(lines) + "\n"

    def _hold_namespaces(self) -> None:
        """Create namespaces for processes and mounts. /run is empty there, so the machine's runtime is not touched."""
        ready = self.directory / "ready"
        script = f"mount -t tmpfs tmpfs /run && : > {ready} && exec sleep infinity"
        namespaces = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._holder = subprocess.Popen(["unshare", *namespaces, "sh", "-c", script])
        wait_until(ready.exists, "namespaces exist")

    def _answers(self) -> bool:
        assert self._daemon is not None
        if self._daemon.poll() is not None:
            raise AssertionError(f"containerd has ended:\n{self._log.read_text()[-4000:]}")
        if not self.nri_socket.exists():
            return False
        if self.cri is not None:
            self.cri.close()
        self.cri = Cri(self.socket)
        return self.cri.answers()

    def _load_images(self) -> None:
        busybox = Path(shutil.which("busybox") or "busybox")
        pause = make_image(self.directory / "pause.tar", PAUSE, {"bin/busybox": busybox}, ["/bin/busybox", "sleep", "infinity"])
        image = make_image(self.directory / "busybox.tar", IMAGE, busybox_files(busybox), ["/bin/sh"])
        for tar in (pause, image):
            command: list[str | Path] = [
                self._programs / "ctr",
                "--address",
                self.socket,
                "--namespace",
                "k8s.io",
                "images",
                "import",
                *(["--local"] if self._is_old else []),  # else its CRI does not see them
                tar,
            ]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _remove_cgroups(name: str) -> None:
    """Remove the cgroups; the kernel needs a moment after the last process."""
    deadline = time.monotonic() + 120.0
    while left := list(_cgroups(name)):
        for group in left:
            with contextlib.suppress(OSError):
                group.rmdir()
        assert time.monotonic() < deadline, f"the cgroup {left[0]} cannot be removed"
        time.sleep(0.02)


def _cgroups(name: str) -> Iterator[Path]:
    for hierarchy in hierarchies():
        for directory, _, _ in os.walk(f"{hierarchy}{name}", topdown=False):
            yield Path(directory)
