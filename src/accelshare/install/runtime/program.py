"""The runtime's own program: its version, and how it reads its files.

Belongs here: running it with arguments that change nothing. Never: starting a runtime.
"""

import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from accelshare.install.errors import NotUnderstood, Rejected
from accelshare.runtimes.containerd import NRI, VALIDATOR

_LIMIT_S: Final = 60.0


def find(name: str) -> "RuntimeProgram | None":
    """The program of this name or path; None if it is not installed."""
    path = shutil.which(name)
    return RuntimeProgram(Path(path)) if path is not None else None


@dataclass(frozen=True, slots=True)
class RuntimeProgram:
    """A runtime's program. It need not be the running one: the package may have been updated since."""

    path: Path

    def version(self) -> str:
        output = self._run("--version")
        match = re.search(r"\bv?(\d+\.\d+\.\d+\S*)", output)
        if match is None:
            raise NotUnderstood(f"{self.path} --version prints {output.strip()!r}, which is no version; give --runtime-version")
        return match[1]

    def dump(self, config: Path) -> dict[str, Any]:
        """containerd's whole configuration with these files."""
        try:
            return tomllib.loads(self._run("--config", str(config), "config", "dump"))
        except (ValueError, RecursionError) as error:
            raise NotUnderstood(f"{self.path} config dump cannot be read: {error}") from error

    def _run(self, *words: str) -> str:
        try:
            done = subprocess.run([self.path, *words], capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotUnderstood(f"{self.path} could not be run: {error}") from error
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise NotUnderstood(f"{self.path} cannot read its configuration: {last}")
        return done.stdout


def require_planned_change_only(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Raise Rejected if containerd does not find the validator enabled, or finds another setting changed."""
    section = after.get("plugins", {}).get(NRI, {})
    if not section.get(VALIDATOR, {}).get("enable") or section.get("disable") or section.get("disable_connections"):
        raise Rejected("containerd does not find the validator enabled in the new files")
    different = sorted(_different(_without_planned(before), _without_planned(after)))
    if different:
        raise Rejected(f"with the new files containerd also changes {', '.join(different)}")


def _without_planned(dump: dict[str, Any]) -> dict[str, Any]:
    plugins = dict(dump.get("plugins", {}))
    nri = {key: value for key, value in plugins.get(NRI, {}).items() if key not in ("disable", "disable_connections")}
    nri[VALIDATOR] = {key: value for key, value in nri.get(VALIDATOR, {}).items() if key != "enable"}
    return {**{key: value for key, value in dump.items() if key != "imports"}, "plugins": {**plugins, NRI: nri}}


def _different(before: Any, after: Any, at: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = {*before, *after}
        return [place for key in keys for place in _different(before.get(key), after.get(key), f"{at}.{key}" if at else key)]
    return [] if before == after else [at]
