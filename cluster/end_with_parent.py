"""Run as a script: become another program that the kernel kills when its parent dies.

    python -I -S end_with_parent.py PARENT_PID PROGRAM [ARGUMENT …]

A killed process cannot clean up, so the kernel does it. This is a script of its own and not a
`preexec_fn`, because code between fork and exec is unsafe in a program with threads. Imports nothing of this package.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Ask for the parent-death signal, check that the parent still lives, become the program."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the signal was requested
        sys.exit(1)
    os.execv(program[0], program)  # noqa: S606


if __name__ == "__main__":
    main()
