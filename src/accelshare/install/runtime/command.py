"""`accelshare runtime-config`: the flags.

Belongs here: from argv to values, and printing. Never: rules.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from accelshare.install.commands import errors_as_messages
from accelshare.options import PATH, output_option
from accelshare.terminal import echo, echo_document, echo_line

if TYPE_CHECKING:
    from accelshare.install.runtime.host import RuntimeHost

ARCHIVE: Final = Path("/var/lib/accelshare-runtime-config")
_UNFINISHED: Final = 6
_PROGRAMS: Final = {"containerd": "containerd", "cri-o": "crio"}


def _place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option("--runtime", type=click.Choice(["containerd", "cri-o"]), default="containerd", show_default=True),
        click.option("--config", type=PATH, help="The runtime's main file. Default: its own usual one."),
        click.option("--drop-in-directory", type=PATH, help="Where our file goes. Default: where the runtime looks already."),
        click.option("--backup-directory", "archive", type=PATH, default=ARCHIVE, show_default=True, help="Record and backups."),
        click.option("--containerd-binary", help="Asked for its version and to check what was written. Default: found on PATH."),
        click.option("--runtime-version", help="Of the runtime. Default: its program is asked."),
        click.option("--nri-socket", type=PATH, help="The runtime's socket for plugins. Default: as its files say."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _change_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option("--force", is_flag=True, help="Overrule changes of others; what is lost is printed."),
        click.option("--restart", is_flag=True, help="Restart the runtime, and wait for it. Default: print how."),
        click.option("--restart-command", help="How. Default: systemctl restart containerd, or crio."),
        click.option("--wait-s", type=click.FloatRange(0), default=60.0, show_default=True, help="After a restart."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.group("runtime-config", no_args_is_help=True)
def runtime_config() -> None:
    """Tell the container runtime to refuse containers rather than make them without their cards, and put it back."""


@runtime_config.command(short_help="Show what apply would change.")
@_place_options
@errors_as_messages
def plan(**options: Any) -> None:
    """Print the difference that `apply` would make, as `diff -u` does; nothing is printed if there is none."""
    runtime_host = _runtime_host(options)
    proposal = runtime_host.propose()
    echo_document(runtime_host.difference(proposal))
    for notice in proposal.notices:
        _say(f"note: {notice}")


@runtime_config.command(short_help="Switch the validator on; show and remember what was changed.")
@_change_options
@_place_options
@errors_as_messages
def apply(force: bool, restart: bool, restart_command: str | None, wait_s: float, **options: Any) -> None:
    """Write a file of our own that switches the runtime's validator on. Twice is once; after a crash in the middle it finishes.

    The runtime is not restarted, unless --restart says so; running containers stay as they are when it is.
    """
    from accelshare.install.errors import InstallError
    from accelshare.install.runtime import apply as applying
    from accelshare.install.runtime.restarting import restart as restart_by
    from accelshare.install.runtime.restarting import wait_until_it_insists
    from accelshare.runtimes.validator_status import Standing

    runtime_host = _runtime_host(options)
    echo_document(runtime_host.difference(runtime_host.propose()))
    _say(applying.apply(runtime_host, force=force, say=_say))
    verdict = runtime_host.verdict()
    command = restart_command or f"systemctl restart {_PROGRAMS[runtime_host.runtime]}"
    if verdict.standing is Standing.NOT_RESTARTED and restart:
        restart_by(command)
        verdict = wait_until_it_insists(runtime_host, wait_s)
        if not verdict.insists:
            raise InstallError(f"the files are written and `{command}` was run, but {verdict.why}")
    _say(f"{verdict.standing.value}: {verdict.why}")
    if verdict.standing is Standing.NOT_RESTARTED:
        _say(f"it takes effect after: {command}")


@runtime_config.command(short_help="Put everything back as it was.")
@_change_options
@_place_options
@errors_as_messages
def restore(force: bool, restart: bool, restart_command: str | None, wait_s: float, **options: Any) -> None:
    """Bring back the original files to the byte and remove ours; after a crash in the middle it finishes."""
    from accelshare.install.runtime import apply as applying
    from accelshare.install.runtime.restarting import restart as restart_by

    runtime_host = _runtime_host(options)
    outcome = applying.restore(runtime_host, force=force, say=_say)
    _say(outcome)
    command = restart_command or f"systemctl restart {_PROGRAMS[runtime_host.runtime]}"
    if outcome == "restored" and restart:
        restart_by(command)
    elif outcome == "restored":
        _say(f"it takes effect after: {command}")


@runtime_config.command(short_help="Say how things stand.")
@output_option
@_place_options
@errors_as_messages
def status(output: str, **options: Any) -> None:
    """Say how things stand.

    Exit codes: 0 insisting, 3 off, 4 written but not restarted since, 5 too old, 6 unfinished, 7 unknown.
    """
    from accelshare.install.runtime.host import EXIT_CODES

    runtime_host = _runtime_host(options)
    verdict, says = runtime_host.verdict(), runtime_host.says()
    if runtime_host.version is None:
        says.append(f"the version of {runtime_host.runtime} is not known, and was taken to be new enough")
    if output == "json":
        told = {
            "runtime": runtime_host.runtime,
            "version": runtime_host.version,
            "state": verdict.standing.value,
            "why": verdict.why,
            "says": says,
        }
        echo(json.dumps(told, indent=2))
    else:
        echo_line(verdict.standing.value)
        for line in (verdict.why, *says):
            echo_line(f"  {line}")
    raise click.exceptions.Exit(_UNFINISHED if runtime_host.unfinished else EXIT_CODES[verdict.standing])


def _runtime_host(options: dict[str, Any]) -> "RuntimeHost":
    from accelshare.install.errors import NotUnderstood
    from accelshare.install.runtime.host import RuntimeHost
    from accelshare.install.runtime.program import find
    from accelshare.runtimes import containerd, crio

    runtime = options["runtime"]
    wanted = options["containerd_binary"] if runtime == "containerd" else None
    program = find(wanted or _PROGRAMS[runtime])
    if wanted is not None and program is None:
        raise NotUnderstood(f"--containerd-binary {wanted} is no program that can be run")
    version = options["runtime_version"] or (program.version() if program is not None else None)
    config = options["config"] or (containerd.CONFIG if runtime == "containerd" else crio.CONFIG)
    directory = options["drop_in_directory"]
    return RuntimeHost(
        runtime=runtime,
        config=config.absolute(),
        archive_directory=options["archive"].absolute(),
        drop_in_directory=directory.absolute() if directory is not None else None,
        socket=options["nri_socket"],
        version=version,
        program=program if runtime == "containerd" else None,
    )


def _say(line: str) -> None:
    echo_line(line, err=True)
