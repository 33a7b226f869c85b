"""A directory that behaves as the kernel's cgroup v2 tree does, as far as the controller of device memory is concerned."""

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from accelshare.agent.limits import dmem
from accelshare.agent.limits.cgroups import CgroupError, CgroupTree


class Kernel(CgroupTree):
    """Each write to dmem.max sets one region, an unknown region is an error, and groups are made with their files."""

    def __init__(self, root: Path, capacity: dict[str, int], *, controllers: str = "cpu dmem memory") -> None:
        super().__init__(root)
        self._regions = capacity
        self.forgets = False  # accepts limits, and has none
        (root / "cgroup.controllers").write_text(controllers + "\n")
        (root / "cgroup.subtree_control").write_text("cpu memory\n")
        (root / "dmem.capacity").write_text("".join(f"{name} {size}\n" for name, size in capacity.items()))

    def make(self, group: str) -> PurePosixPath:
        path = self.path(PurePosixPath(group))
        path.mkdir(parents=True, exist_ok=True)
        (path / dmem.MAX).write_text("".join(f"{name} max\n" for name in self._regions))
        return PurePosixPath(group)

    def write(self, group: PurePosixPath, file: str, text: str) -> None:
        if file != dmem.MAX:
            return super().write(group, file, text)
        region, value = text.split()
        if region not in self._regions:
            raise CgroupError(f"{text!r} cannot be written to {self.path(group) / file}: Invalid argument")
        values = {**dmem.values(self.read(group, file)), region: None if self.forgets or value == "max" else int(value)}
        lines = (f"{name} {'max' if limit is None else limit}\n" for name, limit in values.items())
        return super().write(group, file, "".join(lines))

    @contextlib.contextmanager
    def scratch(self) -> Iterator[PurePosixPath]:
        with super().scratch() as group:
            assert "dmem" in (self.path(PurePosixPath()) / "cgroup.controllers").read_text()
            self.make(str(group))
            yield group
            (self.path(group) / dmem.MAX).unlink()
