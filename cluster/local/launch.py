"""Run as a script: become another program, in a node's cgroup and namespaces, ended with its parent or left running.

    python -I -S launch.py PID_FILE CGROUPS NAMESPACES PROGRAM [ARGUMENT …]

PID_FILE, if not empty, means: fork, let the child become the program, and write its id and start time there. CGROUPS are
directories and NAMESPACES files such as /proc/1/ns/mnt, each separated by colons or empty. A script of its own for the reason
that end_with_parent.py gives; imports nothing of this package.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PID_NAMESPACE = "/pid_for_children"  # the end of its file: a process changes that of its children, never its own


def main() -> None:
    """Join, write down, become."""
    pid_file, cgroups, namespaces, *program = sys.argv[1:]
    for cgroup in filter(None, cgroups.split(":")):
        write(f"{cgroup}/cgroup.procs", str(os.getpid()))
    names = [name for name in namespaces.split(":") if name]
    of_children = [name for name in names if name.endswith(PID_NAMESPACE)]
    own = [name for name in names if name not in of_children]
    enter(of_children)
    if pid_file:
        os.setsid()
        if child := os.fork():
            write(f"{pid_file}.new", f"{child} {start_time(child)}\n")
            os.rename(f"{pid_file}.new", pid_file)  # noqa: PTH104
            return
    elif of_children:
        if child := os.fork():
            sys.exit(end_of(child))
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    enter(own)
    os.execvp(program[0], program)  # noqa: S606


def enter(namespaces: list[str]) -> None:
    """The kernel requires a process with one thread, which this script is, and leaves it in the root directory."""
    directory = os.getcwd()  # noqa: PTH109
    files = [os.open(namespace, os.O_RDONLY) for namespace in namespaces]  # all, before /proc is another
    for namespace, file in zip(namespaces, files, strict=True):
        if ctypes.CDLL(None, use_errno=True).setns(file, 0) != 0:
            sys.exit(f"cannot enter {namespace}: {os.strerror(ctypes.get_errno())}")
        os.close(file)
    os.chdir(directory)


def end_of(child: int) -> int:
    """Its exit code. A signal to the whole process group is the child's to answer."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def start_time(pid: int) -> str:
    """Field 22 of its stat; with the id it names a process for ever."""
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 – pathlib would double this script's start
        return stat.read().rpartition(")")[2].split()[19]


def write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(text)


if __name__ == "__main__":
    main()
