"""Run as a script: become another program, in the cluster's cgroup and mount namespace, ended with its parent or left running.

    python -I -S launch.py PID_FILE CGROUPS NAMESPACE PROGRAM [ARGUMENT …]

PID_FILE, if not empty, means: fork, let the child become the program, and write its id and start time there. CGROUPS are
directories separated by colons. NAMESPACE is a file such as /proc/1/ns/mnt, or empty. A script of its own for the reason
that end_with_parent.py gives; imports nothing of this package.
"""

import ctypes
import os
import sys

CLONE_NEWNS = 0x00020000  # linux/sched.h


def main() -> None:
    """Join, write down, become."""
    pid_file, cgroups, namespace, *program = sys.argv[1:]
    for cgroup in filter(None, cgroups.split(":")):
        write(f"{cgroup}/cgroup.procs", str(os.getpid()))
    if namespace:
        enter(namespace)
    if pid_file:
        os.setsid()
        if child := os.fork():
            write(f"{pid_file}.new", f"{child} {start_time(child)}\n")
            os.rename(f"{pid_file}.new", pid_file)  # noqa: PTH104
            return
    os.execvp(program[0], program)  # noqa: S606


def enter(namespace: str) -> None:
    """The kernel requires a process with one thread, which this script is, and leaves it in the root directory."""
    directory = os.getcwd()  # noqa: PTH109
    file = os.open(namespace, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(file, CLONE_NEWNS) != 0:
        sys.exit(f"cannot enter {namespace}: {os.strerror(ctypes.get_errno())}")
    os.close(file)
    os.chdir(directory)


def start_time(pid: int) -> str:
    """Field 22 of its stat; with the id it names a process for ever."""
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 – pathlib would double this script's start
        return stat.read().rpartition(")")[2].split()[19]


def write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(text)


if __name__ == "__main__":
    main()
