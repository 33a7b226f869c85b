"""A short command in a hurry.

Belongs here: one trick. Never: anything a long-running process would want.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collecting() -> Iterator[None]:
    """Leave garbage where it is. Loading modules makes a great many objects that stay, and looking at them all again and again
    is a fifteenth of the time until the first byte.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
