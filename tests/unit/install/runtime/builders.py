"""A host with a containerd of which only the files are there."""

from pathlib import Path
from typing import Literal

from accelshare.install.host_files.disk import Disk
from accelshare.install.runtime import apply as applying
from accelshare.install.runtime.host import RuntimeHost
from accelshare.runtimes.validator_status import ValidatorState

NRI = 'plugins."io.containerd.nri.v1.nri"'
MAIN = f"""\
# the operator's own
version = 3
root = "/data"   # keep

[{NRI}]
  socket_path = "/run/own.sock"
"""


class Host:
    def __init__(self, root: Path, main: str | None = MAIN, *, runtime: Literal["containerd", "cri-o"] = "containerd") -> None:
        self.root = root
        self.runtime = runtime
        self.config = root / "etc" / ("config.toml" if runtime == "containerd" else "crio.conf")
        self.backup = root / "backup"
        self.version: str | None = "2.4.2" if runtime == "containerd" else "1.34.0"
        self.messages: list[str] = []
        self.config.parent.mkdir(parents=True)
        if main is not None:
            self.config.write_text(main)

    @property
    def drop_in(self) -> Path:
        return self.config.parent / "conf.d" / "zz-accelshare.toml"

    def runtime_host(self, disk: Disk | None = None, *, directory: Path | None = None) -> RuntimeHost:
        return RuntimeHost(
            self.runtime, self.config, self.backup, directory, self.root / "nri.sock", self.version, disk=disk or Disk()
        )

    def plan(self) -> str:
        runtime_host = self.runtime_host()
        return runtime_host.difference(runtime_host.propose())

    def apply(self, disk: Disk | None = None, *, force: bool = False) -> str:
        return applying.apply(self.runtime_host(disk), force=force, say=self.messages.append)

    def restore(self, disk: Disk | None = None, *, force: bool = False) -> str:
        return applying.restore(self.runtime_host(disk), force=force, say=self.messages.append)

    def state(self) -> ValidatorState:
        return self.runtime_host().validator().state

    def start(self) -> None:
        """The runtime's socket is made anew, later than every file."""
        socket = self.root / "nri.sock"
        newest = max(path.stat().st_ctime for path in self.root.rglob("*"))
        while not socket.exists() or socket.stat().st_ctime <= newest:
            socket.write_bytes(b"")

    def files(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.root)): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}

    def places(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*")}
