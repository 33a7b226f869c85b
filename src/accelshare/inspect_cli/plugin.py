"""The program that kubectl finds as `kubectl-inspect-WORD`: the word in its own name says which vendor's cards it shows.

Belongs here: that name. Never: a list of words; they are data of the profiles, so that a new vendor needs a link and no code.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Final

PREFIX: Final = "kubectl-inspect-"


def main() -> None:
    """The entry point of every `kubectl-inspect-…`."""
    with no_collecting():
        from accelshare.inspect_cli.command import inspect
        from accelshare.terminal import echo
        from accelshare.vendors.problems import VendorError

    called = PurePath(sys.argv[0]).name.removesuffix(".exe")
    word = called.removeprefix(PREFIX)
    try:
        inspect(prog_name=f"kubectl inspect {word}", obj=word, help_option_names=["-h", "--help"])
    except VendorError as error:
        echo(f"Error: {error}", err=True)
        sys.exit(2)


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
