"""The program that kubectl finds as `kubectl-inspect-WORD`: the word in its own name says which vendor's cards it shows.

Belongs here: that name. Never: a list of words; they are data of the profiles, so that a new vendor needs a link and no code.
"""

import sys
from pathlib import PurePath
from typing import Final

PREFIX: Final = "kubectl-inspect-"


def main() -> None:
    """The entry point of every `kubectl-inspect-…`."""
    from accelshare.inspect_cli.quick import no_collecting

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
