"""One host: which runtime it has, where its files and ours lie, and how they stand.

Belongs here: looking. Never: changing anything.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from accelshare.install.errors import NotUnderstood
from accelshare.install.host_files.archive import Archive
from accelshare.install.host_files.difference import unified
from accelshare.install.host_files.disk import Disk
from accelshare.install.runtime import containerd, crio
from accelshare.install.runtime.plan import Plan
from accelshare.install.runtime.program import Program
from accelshare.install.runtime.record import Record
from accelshare.runtimes.plugin_settings import UnreadableError
from accelshare.runtimes.validator_status import Files, Standing, Verdict, judge, judge_version
from accelshare.runtimes.versions import merges_sections


@dataclass(frozen=True, slots=True)
class RuntimeHost:
    """Everything that looking and changing needs to know about the host."""

    runtime: Literal["containerd", "cri-o"]
    config: Path
    archive_directory: Path  # record and backups, seen by nobody else
    drop_in_directory: Path | None = None
    socket: Path | None = None  # if it is not the one that the files name
    version: str | None = None  # if it is known
    program: Program | None = None  # containerd's, if it is at hand
    disk: Disk = field(default_factory=Disk)

    @property
    def archive(self) -> Archive[Record]:
        return Archive(self.archive_directory, self.disk, Record, NotUnderstood)

    def record(self) -> Record | None:
        """What we have done here, if anything."""
        record = self.archive.load()
        if record is not None and record.config != str(self.config):
            raise NotUnderstood(
                f"the record in {self.archive_directory} is about {record.config}, not about {self.config}; "
                "give --config or --backup-directory"
            )
        return record

    def verdict(self) -> Verdict:
        """What the runtime would do now if a required plugin were away."""
        return judge(self.runtime, self.version, files=self._files, socket=self.socket)

    def propose(self) -> Plan:
        """What `apply` would do. Refuses what would have no effect, and what it would have to guess."""
        too_old = judge_version(self.runtime, self.version)
        if too_old is not None:
            raise NotUnderstood(too_old.why)
        if self.config.is_symlink():
            raise NotUnderstood(
                f"{self.config} is a symbolic link; give the file it leads to with --config: {self.config.resolve()}"
            )
        try:
            plan = self._plan()
        except UnreadableError as error:
            raise NotUnderstood(str(error)) from error
        return Plan(plan.files, (*plan.notices, *self._doubts()))

    def difference(self, plan: Plan) -> str:
        """The plan as people read it; empty if nothing would change."""
        return "".join(unified(file.path, self.disk.read(file.path), file.content) for file in plan.files)

    def foreign(self, plan: Plan) -> list[Path]:
        """Files of ours with a content that is not ours: somebody else's work, not to be lost."""
        record = self.record()
        found = []
        for file in plan.files:
            there = self.disk.find(file.path)
            tracked = record.file(file.path) if record is not None else None
            if file.ours and there is not None and there.content != file.content and not (tracked and tracked.knows(there)):
                found.append(file.path)
        return found

    def says(self) -> list[str]:
        """What there is to know beside the verdict."""
        record = self.record()
        if record is None:
            return ["nothing here was written by accelshare"]
        if record.unfinished is not None:
            return [record.unfinished]
        changed = [file.path for file in record.files if not file.knows(self.disk.find(Path(file.path)))]
        return [f"written by accelshare: {', '.join(file.path for file in record.files)}"] + [
            f"{path} was changed by somebody else since" for path in changed
        ]

    @property
    def unfinished(self) -> bool:
        record = self.record()
        return record is not None and record.unfinished is not None

    @property
    def _files(self) -> Files:
        return Files(containerd_config=self.config) if self.runtime == "containerd" else Files(crio_config=self.config)

    def _plan(self) -> Plan:
        if self.runtime == "containerd":
            merges = self.version is not None and merges_sections(self.version)
            return containerd.plan(self.config, directory=self.drop_in_directory, merges=merges)
        return crio.plan(self.config, directory=self.drop_in_directory)

    def _doubts(self) -> list[str]:
        if self.version is not None:
            return []
        since = {"containerd": "2.2", "cri-o": "1.34"}[self.runtime]
        return [f"the version of {self.runtime} is not known; only {since} and newer have the validator"]


EXIT_CODES = {
    Standing.INSISTS: 0,
    Standing.OFF: 3,
    Standing.NOT_RESTARTED: 4,
    Standing.TOO_OLD: 5,
    Standing.UNKNOWN: 7,
}
