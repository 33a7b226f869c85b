"""The real kube-scheduler's word on a configuration, before anything is written.

Belongs here: running it with --write-config-to, which reads the configuration strictly and ends. Never: writing outside a
temporary directory.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from accelshare.scheduler_config.arguments import flags
from accelshare.scheduler_config.plan import Plan
from accelshare.scheduler_config.problems import Rejected

_LIMIT_S: Final = 60.0
_KEPT: Final = ("feature-gates", "emulated-version", "master")  # they decide what a configuration may say


def checker(program: Path) -> Callable[[Plan], None]:
    """A check that raises Rejected with kube-scheduler's own words."""

    def check(plan: Plan) -> None:
        with tempfile.TemporaryDirectory(prefix="accelshare-check-") as directory:
            file, out = Path(directory) / Path(plan.configuration.path).name, Path(directory) / "defaulted.yaml"
            file.write_bytes(plan.configuration.content)
            given = flags(plan.words)
            policy = given.get("policy-config-file") == plan.configuration.path
            words = [str(program), f"--{'policy-config-file' if policy else 'config'}={file}", f"--write-config-to={out}"]
            # The port is the running scheduler's.
            words += ["--secure-port=0", *(f"--{name}={given[name]}" for name in _KEPT if name in given)]
            if policy and "kubeconfig" in given:
                words.append(f"--kubeconfig={given['kubeconfig']}")
            try:
                done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S, check=False, cwd=directory)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise Rejected(f"{program} could not check the configuration: {error}") from error
            if done.returncode != 0 or not out.exists():
                said = _in_words(done.stderr.strip() or done.stdout.strip()).replace(str(file), "it")
                raise Rejected(f"{program} refuses the configuration: {said}")

    return check


def _in_words(output: str) -> str:
    """The error in kube-scheduler's last line, without what its logger puts around it."""
    last = (output.splitlines() or ["without a word"])[-1]
    found = re.search(r'err=("(?:[^"\\]|\\.)*")', last)
    try:
        return str(json.loads(found[1])) if found else last
    except ValueError:
        return last
