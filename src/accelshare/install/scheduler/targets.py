"""The two ways kube-scheduler is started on a host, behind the few questions that applying asks.

Belongs here: which file makes kube-scheduler read ours, what it is made from, and how the change takes effect. Never:
order, backups.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from accelshare.install.errors import InstallError, NotUnderstood
from accelshare.install.host_files.disk import Disk
from accelshare.install.scheduler import static_pod, systemd
from accelshare.install.scheduler.arguments import asked_at
from accelshare.install.scheduler.plan import Existing, Intent, Plan
from accelshare.install.scheduler.release import Release

_SYSTEMCTL_LIMIT_S: Final = 90.0
# Where systemd looks for drop-ins too, wherever the unit is; the last one counts.
_UNIT_DIRECTORIES: Final = ("/usr/lib/systemd/system", "/run/systemd/system", "/etc/systemd/system")


@dataclass(frozen=True, slots=True)
class Made:
    """A plan, and the operator's files that it was made from beside the base."""

    plan: Plan
    sources: tuple[str, ...]


class Target(Protocol):
    """One way of starting kube-scheduler."""

    @property
    def trigger(self) -> str:
        """The file whose change makes kube-scheduler start anew."""

    @property
    def restarts_itself(self) -> bool:
        """Somebody watches the trigger; else `restart` has to be called."""

    def is_ours(self, trigger: bytes) -> bool:
        """We wrote this content of the trigger."""

    def given(self, base: bytes | None, disk: Disk) -> dict[str, str]:
        """kube-scheduler's flags without us."""

    def release(self, base: bytes | None) -> Release | None:
        """The version that really runs, where it can be seen here."""

    def make(self, base: bytes | None, intent: Intent, disk: Disk) -> Made:
        """The plan, from the trigger as it would be without us."""

    def health_url(self, base: bytes | None, disk: Disk) -> str:
        """Where this scheduler says how it is."""

    def restart(self) -> None:
        """Make the change effective, where nobody watches."""


@dataclass(frozen=True, slots=True)
class StaticPod:
    """A manifest that kubelet watches."""

    manifest: str

    @property
    def trigger(self) -> str:
        return self.manifest

    @property
    def restarts_itself(self) -> bool:
        return True

    def is_ours(self, trigger: bytes) -> bool:
        return static_pod.is_ours(trigger)

    def given(self, base: bytes | None, disk: Disk) -> dict[str, str]:
        return static_pod.given_flags(self._needed(base), self.manifest)

    def release(self, base: bytes | None) -> Release | None:
        return static_pod.release_of(self._needed(base), self.manifest)

    def make(self, base: bytes | None, intent: Intent, disk: Disk) -> Made:
        manifest = self._needed(base)
        path = static_pod.existing_path(manifest, self.manifest, intent)
        existing = None if path is None else Existing(path, _needed(path, disk))
        return Made(static_pod.plan(manifest, self.manifest, existing, intent), () if path is None else (path,))

    def health_url(self, base: bytes | None, disk: Disk) -> str:
        return static_pod.health_url(self._needed(base), self.manifest)

    def restart(self) -> None:
        """kubelet does."""

    def _needed(self, base: bytes | None) -> bytes:
        if base is None:
            raise NotUnderstood(f"{self.manifest} is not there; it must be the manifest of kube-scheduler's static pod")
        return base


@dataclass(frozen=True, slots=True)
class Systemd:
    """A unit of a binary installation."""

    unit: str
    systemctl: str = "systemctl"

    @property
    def trigger(self) -> str:
        return systemd.drop_in_path(self.unit)

    @property
    def restarts_itself(self) -> bool:
        return False

    def is_ours(self, trigger: bytes) -> bool:
        return systemd.is_ours(trigger)

    def given(self, base: bytes | None, disk: Disk) -> dict[str, str]:
        unit, variables, _ = self._unit(disk)
        return systemd.given_flags(unit, self.unit, variables)

    def release(self, base: bytes | None) -> Release | None:
        return None

    def make(self, base: bytes | None, intent: Intent, disk: Disk) -> Made:
        if base is not None and not systemd.is_ours(base):
            raise NotUnderstood(f"{self.trigger} is there already and is not ours; remove it first")
        unit, variables, files = self._unit(disk)
        path = systemd.existing_path(unit, self.unit, variables, intent)
        existing = None if path is None else Existing(path, _needed(path, disk))
        made = systemd.plan(unit, self.unit, variables, existing, intent)
        return Made(made, (self.unit, *files, *(() if path is None else (path,))))

    def health_url(self, base: bytes | None, disk: Disk) -> str:
        return f"https://{asked_at(self.given(base, disk))}/healthz"

    def restart(self) -> None:
        for words in (["daemon-reload"], ["restart", Path(self.unit).name]):
            try:
                done = subprocess.run(
                    [self.systemctl, *words], capture_output=True, text=True, timeout=_SYSTEMCTL_LIMIT_S, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise InstallError(f"{self.systemctl} {' '.join(words)}: {error}") from error
            if done.returncode != 0:
                raise InstallError(f"{self.systemctl} {' '.join(words)}: {done.stderr.strip() or done.returncode}")

    def _unit(self, disk: Disk) -> tuple[bytes, dict[str, str], tuple[str, ...]]:
        """The unit with everybody else's drop-ins, as systemd puts them together; its variables; the files beside it."""
        drop_ins = {path: _needed(path, disk) for path in self._drop_ins()}
        systemd.refuse_to_be_overruled(drop_ins)
        unit = b"\n".join([_needed(self.unit, disk), *drop_ins.values()])
        files = systemd.environment_files(unit, self.unit)
        contents = {file: content for file in files if (content := disk.read(file)) is not None}
        return unit, systemd.environment(unit, self.unit, contents), (*drop_ins, *contents)

    def _drop_ins(self) -> list[str]:
        """Everybody else's: of one name one file counts, and all of them are read in the order of their names."""
        name = Path(self.unit).name
        places = [Path(self.unit), *(Path(directory) / name for directory in _UNIT_DIRECTORIES)]
        found = {file.name: str(file) for place in places for file in Path(f"{place}.d").glob("*.conf")}
        return [found[name] for name in sorted(found) if name != systemd.DROP_IN]


def _needed(path: str, disk: Disk) -> bytes:
    content = disk.read(path)
    if content is None:
        raise NotUnderstood(f"{path} is not there, although kube-scheduler is told to read it")
    return content
