"""`accelshare runtime-config`: its options and output.

Belongs here: from argv to values, and printing. Never: rules.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from accelshare.help_pages import HelpGroup, grouped
from accelshare.install.commands import errors_as_messages
from accelshare.options import PATH, FloatRange, output_option
from accelshare.terminal import echo, echo_document, echo_line

if TYPE_CHECKING:
    from accelshare.install.runtime.host import RuntimeHost

ARCHIVE: Final = Path("/var/lib/accelshare-runtime-config")
_UNFINISHED: Final = 6
_PROGRAMS: Final = {"containerd": "containerd", "cri-o": "crio"}


_host_options = grouped(
    "Runtime",
    click.option(
        "--runtime",
        type=click.Choice(["containerd", "cri-o"]),
        default="containerd",
        show_default=True,
        help="The container runtime.",
    ),
    click.option("--config", type=PATH, help="The runtime's main configuration file. Default: its usual path."),
    click.option(
        "--drop-in-directory", type=PATH, help="Directory for accelshare's drop-in file. Default: one that the runtime reads."
    ),
    click.option(
        "--backup-directory",
        "archive",
        type=PATH,
        default=ARCHIVE,
        show_default=True,
        help="Directory for the record of changes and the backups.",
    ),
    click.option(
        "--containerd-binary",
        help="containerd program, run to get its version and to check the written files. Default: from PATH.",
    ),
    click.option("--runtime-version", help="The runtime's version. Default: from its program."),
    click.option("--nri-socket", type=PATH, help="The runtime's NRI socket. Default: from its configuration."),
)


_change_options = grouped(
    "Change",
    click.option("--force", is_flag=True, help="Overwrite changes that others made, and print what is lost."),
    click.option("--restart", is_flag=True, help="Restart the runtime and wait for it. Default: print the command."),
    click.option("--restart-command", help="Command that restarts the runtime. Default: systemctl restart containerd, or crio."),
    click.option("--wait-s", type=FloatRange(0), default=60.0, show_default=True, help="How long to wait after a restart."),
)


@click.group("runtime-config", cls=HelpGroup, no_args_is_help=True)
def runtime_config() -> None:
    """Make the container runtime refuse containers while the agent is not connected, and restore its files."""


@runtime_config.command(short_help="Show what apply would change.", examples=[("--runtime cri-o", "for CRI-O")])
@_host_options
@errors_as_messages
def plan(**options: Any) -> None:
    """Print the difference that `apply` would make, as `diff -u` does; nothing is printed if there is none."""
    host = _host_from(options)
    proposal = host.propose()
    echo_document(host.difference(proposal))
    for notice in proposal.notices:
        _say(f"note: {notice}")


@runtime_config.command(
    short_help="Enable the validator; print and record the change.", examples=[("--restart", "and restart the runtime")]
)
@_change_options
@_host_options
@errors_as_messages
def apply(force: bool, restart: bool, restart_command: str | None, wait_s: float, **options: Any) -> None:
    """Write a drop-in that enables the runtime's validator. Safe to repeat; finishes an interrupted apply.

    The runtime is restarted only with --restart; a restart does not affect running containers.
    """
    from accelshare.install.errors import InstallError
    from accelshare.install.runtime import apply as applying
    from accelshare.runtimes.validator_status import ValidatorState

    host = _host_from(options)
    command = restart_command or f"systemctl restart {_PROGRAMS[host.runtime]}"
    applying.parsed(command)  # before anything is written
    echo_document(host.difference(host.propose()))
    _say(applying.apply(host, force=force, say=_say))
    validator = host.validator()
    if validator.state is ValidatorState.NOT_RESTARTED and restart:
        applying.restart(command)
        validator = applying.wait_until_enabled(host, wait_s)
        if not validator.enabled:
            raise InstallError(f"the files are written and `{command}` was run, but {validator.why}")
    _say(f"{validator.state.value}: {validator.why}")
    if validator.state is ValidatorState.NOT_RESTARTED:
        _say(f"it takes effect after: {command}")


@runtime_config.command(short_help="Restore the original files.", examples=[("--restart", "and restart the runtime")])
@_change_options
@_host_options
@errors_as_messages
def restore(force: bool, restart: bool, restart_command: str | None, wait_s: float, **options: Any) -> None:
    """Restore the original files to the byte and remove the drop-in; finishes an interrupted restore."""
    from accelshare.install.runtime import apply as applying

    host = _host_from(options)
    command = restart_command or f"systemctl restart {_PROGRAMS[host.runtime]}"
    applying.parsed(command)  # before anything is written
    outcome = applying.restore(host, force=force, say=_say)
    _say(outcome)
    if outcome == "restored" and restart:
        applying.restart(command)
    elif outcome == "restored":
        _say(f"it takes effect after: {command}")


@runtime_config.command(short_help="Show the status.", examples=[("-o json", "for programs")])
@output_option
@_host_options
@errors_as_messages
def status(output: str, **options: Any) -> None:
    """Show whether the validator is enabled.

    Exit codes: 0 enabled, 3 off, 4 written but not restarted since, 5 too old, 6 unfinished, 7 unknown.
    """
    from accelshare.install.runtime.host import EXIT_CODES

    host = _host_from(options)
    validator, remarks = host.validator(), host.remarks()
    if host.version is None:
        remarks.append(f"the version of {host.runtime} is not known; it is assumed to be new enough")
    if output == "json":
        content = {
            "runtime": host.runtime,
            "version": host.version,
            "state": validator.state.value,
            "why": validator.why,
            "says": remarks,
        }
        echo(json.dumps(content, indent=2))
    else:
        echo_line(validator.state.value)
        for line in (validator.why, *remarks):
            echo_line(f"  {line}")
    raise click.exceptions.Exit(_UNFINISHED if host.unfinished else EXIT_CODES[validator.state])


def _host_from(options: dict[str, Any]) -> "RuntimeHost":
    from accelshare.install.errors import NotUnderstood
    from accelshare.install.runtime.host import RuntimeHost
    from accelshare.install.runtime.program import find
    from accelshare.runtimes import containerd, crio

    runtime = options["runtime"]
    wanted = options["containerd_binary"] if runtime == "containerd" else None
    program = find(wanted or _PROGRAMS[runtime])
    if wanted is not None and program is None:
        raise NotUnderstood(f"--containerd-binary {wanted} is not an executable program")
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
