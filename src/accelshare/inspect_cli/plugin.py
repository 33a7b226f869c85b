"""The program `kubectl-inspect-WORD`, a kubectl plugin: WORD in its own name selects the vendor whose cards it shows.

Belongs here: reading that name. Never: a list of words; profiles have them, so a new vendor needs a link and no code.
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
    with without_garbage_collection():
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
def without_garbage_collection() -> Iterator[None]:
    """Pause garbage collection. Loading modules makes many objects that stay; scanning them again and again takes a fifteenth of
    the time until the first byte.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
