"""systemctl without systemd: starts the command of a unit and its drop-ins as a process, and ends it.

Belongs here: the few verbs and keys that the docs need. Never: an import beyond Python's own, because it runs as a program.
"""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

UNITS = Path("/etc/systemd/system")
LIMIT_S = 180.0


def main(verb: str, *units: str) -> None:
    for unit in units:
        name = unit.removesuffix(".service")
        if verb in ("stop", "restart"):
            stop(Path(f"/run/{name}.pid"))
        if verb in ("start", "restart"):
            start(name)
    if verb not in ("start", "stop", "restart", "daemon-reload"):
        sys.exit(f"systemctl {verb}: this stand-in does not know it")


def start(name: str) -> None:
    unit = UNITS / f"{name}.service"
    if not unit.exists():
        sys.exit(f"Failed to start {name}.service: Unit {name}.service not found.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear, Path(f"/var/log/{name}.log").open("ab") as log:
        place = f"/run/{name}.notify"
        Path(place).unlink(missing_ok=True)
        ear.bind(place)
        ear.settimeout(LIMIT_S)
        process = subprocess.Popen(
            shlex.split(last(unit, "ExecStart")),
            env={**os.environ, "NOTIFY_SOCKET": place},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        Path(f"/run/{name}.pid").write_text(str(process.pid))
        while last(unit, "Type") == "notify" and b"READY=1" not in ear.recv(4096):
            pass


def last(unit: Path, key: str) -> str:
    """The last word on it counts, in the unit or in a drop-in."""
    found = ""
    for file in (unit, *sorted(Path(f"{unit}.d").glob("*.conf"))):
        for line in file.read_text().replace("\\\n", " ").splitlines():
            if line.startswith(f"{key}="):
                found = line.partition("=")[2].strip()
    return found


def stop(file: Path) -> None:
    if not file.exists():
        return
    pid = int(file.read_text())
    file.unlink()
    try:
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            os.kill(pid, 0)
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
