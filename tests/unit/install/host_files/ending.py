"""Ends a process at a chosen write to the disk: by an exception in this process, or by SIGKILL in another one."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import TypeVar

from accelshare.install.host_files.disk import Disk

HostT = TypeVar("HostT")
LIMIT_S = 120  # for some seconds of work on a busy machine


class Killed(BaseException):
    """Not an Exception: nothing in the product may catch it, as nothing catches a SIGKILL."""


class Executioner:
    """Lets so many steps pass."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, step: str) -> None:
        if self.left == 0:
            raise Killed(step)
        self.left -= 1


def ended_at_each_step(prepare: Callable[[], HostT], act: Callable[[HostT, Disk], object], *, least: int) -> Iterator[HostT]:
    """A host prepared anew for each step at which `act` can be ended, ended there; there are more than `least` of them."""
    for step in range(1000):
        host = prepare()
        try:
            act(host, Disk(Executioner(step)))
        except Killed:
            yield host
        else:
            assert step > least
            return
    raise AssertionError("it never ends")


def killed_at(step: int, act: Callable[[Disk], object]) -> bool:
    """Run it in a process of its own that dies at this step; False if it ended before.

    A process that was forked beside threads can stop for ever when it starts its own. It is killed where it is, which is as good.
    """
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LIMIT_S)
        left = step

        def die(_step: str) -> None:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

        code = 1
        try:
            act(Disk(die))
            code = 0
        finally:
            os._exit(code)
    _, how = os.waitpid(child, 0)
    assert os.WIFSIGNALED(how) or os.waitstatus_to_exitcode(how) == 0
    return os.WIFSIGNALED(how)
