"""`accelshare demo`: runs the demo of the checkout, or the one in the installed wheel.

Belongs here: finding the demo, and its flags. Never: the demo itself (demo/).
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Final

import click

from accelshare.help_pages import HelpCommand

_PACKAGE: Final = Path(__file__).parent
# In a wheel the demo and what it needs are below the package, in a checkout beside src/.
PLACES: Final = (_PACKAGE / "_tree", _PACKAGE.parents[1])


def find_demo(places: tuple[Path, ...] = PLACES) -> Path | None:
    """The directory that contains the demo."""
    return next((place for place in places if (place / "demo" / "__main__.py").is_file()), None)


@click.command(
    cls=HelpCommand,
    examples=[("", "from manifest to container, in seconds"), ("--keep", "and look around with accelshare inspect")],
)
@click.option("--keep", is_flag=True, help="Keep API server, extender and agents running until Ctrl-C.")
@click.option(
    "--profiles",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Play the vendors of your own profiles in this directory.",
)
def demo(keep: bool, profiles: str | None) -> None:
    """Show accelshare's main job without a cluster, hardware or root. It takes seconds and leaves nothing behind.

    Extender and agents are the real ones; the API server and the kubelets are in-memory replacements.
    """
    place = find_demo()
    if place is None:
        raise click.ClickException("the demo is not part of this installation; a checkout and a wheel of `make dist` have it")
    sys.path.insert(0, str(place))
    words = [*(["--keep"] if keep else []), *([f"--profiles={profiles}"] if profiles else [])]
    try:
        code: int = import_module("demo.__main__").main(words)
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        raise click.ClickException("the demo needs aiohttp; install accelshare with its extra: accelshare[demo]") from error
    raise click.exceptions.Exit(code)
