"""One host: which runtime it has, where its files are, and their status.

Belongs here: reading and planning. Never: changing anything (`apply.py`).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from accelshare.install.errors import NotUnderstood
from accelshare.install.host_files.archive import Archive, Record, TrackedFile
from accelshare.install.host_files.changes import FileChanges, PlannedFile, difference
from accelshare.install.host_files.disk import Disk, HostFile
from accelshare.install.runtime import plan as planning
from accelshare.install.runtime.plan import RuntimePlan
from accelshare.install.runtime.program import RuntimeProgram
from accelshare.runtimes.config_files import UnreadableConfigError
from accelshare.runtimes.validator_status import Files, ValidatorState, ValidatorStatus, status_by_version, validator_status
from accelshare.runtimes.versions import VALIDATOR_SINCE, merges_sections

EXIT_CODES = {
    ValidatorState.ENABLED: 0,
    ValidatorState.OFF: 3,
    ValidatorState.NOT_RESTARTED: 4,
    ValidatorState.TOO_OLD: 5,
    ValidatorState.UNKNOWN: 7,
}


class RuntimeRecord(Record, frozen=True):
    """The record of one runtime's configuration."""

    config: str


@dataclass(frozen=True, slots=True)
class RuntimeHost:
    """The runtime of this host, its files and the archive."""

    runtime: Literal["containerd", "cri-o"]
    config: Path
    archive_directory: Path
    drop_in_directory: Path | None = None
    socket: Path | None = None  # if it is not the one that the files name
    version: str | None = None  # if it is known
    program: RuntimeProgram | None = None  # containerd's, if it is available
    disk: Disk = field(default_factory=Disk)

    @property
    def archive(self) -> Archive[RuntimeRecord]:
        return Archive(self.archive_directory, self.disk, RuntimeRecord)

    @property
    def changes(self) -> FileChanges[RuntimeRecord]:
        return FileChanges(self.archive, self.disk, _is_operators)

    def record(self) -> RuntimeRecord | None:
        """What accelshare changed here, if anything."""
        record = self.archive.load()
        if record is not None and record.config != str(self.config):
            raise NotUnderstood(
                f"the record in {self.archive_directory} is about {record.config}, not about {self.config}; "
                "give --config or --backup-directory"
            )
        return record

    def validator(self) -> ValidatorStatus:
        """Whether the runtime's validator is enabled now."""
        return validator_status(self.runtime, self.version, files=self._files, socket=self.socket)

    def propose(self) -> RuntimePlan:
        """What `apply` would do. Refuses what would have no effect, and what cannot be done without guessing."""
        too_old = status_by_version(self.runtime, self.version)
        if too_old is not None:
            raise NotUnderstood(too_old.why)
        if self.config.is_symlink():
            raise NotUnderstood(f"{self.config} is a symbolic link; give its target with --config: {self.config.resolve()}")
        try:
            plan = self._plan()
        except UnreadableConfigError as error:
            raise NotUnderstood(str(error)) from error
        if self.version is not None:
            return plan
        since = ".".join(map(str, VALIDATOR_SINCE[self.runtime][:2]))
        doubt = f"the version of {self.runtime} is not known; only {since} and newer have the validator"
        return RuntimePlan(plan.files, (*plan.notices, doubt))

    def difference(self, plan: RuntimePlan) -> str:
        """The plan as a diff; empty if nothing would change."""
        return difference(plan.files, self.disk)

    def remarks(self) -> list[str]:
        """What to know beside the validator's status."""
        record = self.record()
        if record is None:
            return ["accelshare wrote nothing here"]
        if record.unfinished is not None:
            return [record.unfinished]
        changed = [file.path for file in record.files if not file.knows(_digest(self.disk.find(file.path)))]
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

    def _plan(self) -> RuntimePlan:
        if self.runtime == "containerd":
            merges = self.version is not None and merges_sections(self.version)
            return planning.for_containerd(self.config, directory=self.drop_in_directory, merges=merges)
        return planning.for_crio(self.config, directory=self.drop_in_directory)


def _is_operators(file: PlannedFile, current: HostFile, tracked: TrackedFile | None) -> bool:
    """Whether the operator wrote their main file since; accelshare owns the drop-in, and a main file that did not exist."""
    return not file.owned and (tracked is None or not tracked.knows(current.sha256))


def _digest(file: HostFile | None) -> str | None:
    return file.sha256 if file is not None else None
