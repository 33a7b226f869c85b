"""The runtime started anew, if that is wished: a command of the host's, and a wait until it shows.

Belongs here: running the command, and waiting. Never: which files changed.
"""

import shlex
import subprocess
import time
from typing import Final

from accelshare.install.errors import InstallError
from accelshare.install.runtime.host import RuntimeHost
from accelshare.runtimes.validator_status import Verdict

_LIMIT_S: Final = 300.0
_LOOK_S: Final = 0.2


def restart(command: str) -> None:
    try:
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"the files are written, but `{command}` failed: {error}") from error
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip() or "no word"
        raise InstallError(f"the files are written, but `{command}` ended with {done.returncode}: {said}")


def wait_until_it_insists(runtime_host: RuntimeHost, limit_s: float) -> Verdict:
    """The verdict at the end of the wait: that it insists, or why it does not yet."""
    deadline = time.monotonic() + limit_s
    while not (verdict := runtime_host.verdict()).insists and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return verdict
