"""A host with a containerd of which only the files are there."""

from pathlib import Path
from typing import Literal

from accelshare.files.disk import Disk
from accelshare.runtime_config import apply as applying
from accelshare.runtime_config.site import Site
from accelshare.runtimes.insistence import Standing

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
        self.said: list[str] = []
        self.config.parent.mkdir(parents=True)
        if main is not None:
            self.config.write_text(main)

    @property
    def drop_in(self) -> Path:
        return self.config.parent / "conf.d" / "zz-accelshare.toml"

    def site(self, disk: Disk | None = None, *, directory: Path | None = None) -> Site:
        return Site(self.runtime, self.config, self.backup, directory, self.root / "nri.sock", self.version, disk=disk or Disk())

    def plan(self) -> str:
        site = self.site()
        return site.difference(site.propose())

    def apply(self, disk: Disk | None = None, *, force: bool = False) -> str:
        return applying.apply(self.site(disk), force=force, say=self.said.append)

    def restore(self, disk: Disk | None = None, *, force: bool = False) -> str:
        return applying.restore(self.site(disk), force=force, say=self.said.append)

    def standing(self) -> Standing:
        return self.site().verdict().standing

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
