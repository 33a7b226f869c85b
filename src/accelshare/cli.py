"""The command `accelshare`: a table of sub-commands, each imported when it is called.

Belongs here: the table, and how an error ends the program. Never: logic, or an import that only one sub-command needs:
`accelshare --help` must not wait for a web server to load.
"""

import gc
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from accelshare import __version__
from accelshare.help_pages import HelpGroup
from accelshare.terminal import visible_lines
from accelshare.vendors.problems import VendorError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


@dataclass(frozen=True, slots=True)
class SubCommand:
    """The `module:attribute` of a sub-command, and its line in `accelshare --help`."""

    target: str
    summary: str


COMMANDS: Final[Mapping[str, SubCommand]] = {
    "agent": SubCommand("accelshare.agent.command:agent", "Deliver this node's cards to its containers."),
    "certificates": SubCommand(
        "accelshare.install.certificates.command:certificates",
        "Create and renew the TLS certificates of both sides.",
    ),
    "completion": SubCommand("accelshare.inspect_cli.completion:completion", "Print the completion script of a shell."),
    "dashboard": SubCommand("accelshare.dashboard.command:dashboard", "Serve a live web page of every card and its pods."),
    "demo": SubCommand("accelshare.demo_command:demo", "Show the main job in seconds, without a cluster or hardware."),
    "doctor": SubCommand("accelshare.doctor.command:doctor", "Name what is wrong in a running cluster, with the fix."),
    "explain": SubCommand("accelshare.inspect_cli.explain_command:explain", "Explain why a pod waits, or why it is on its node."),
    "extender": SubCommand("accelshare.extender.command:extender", "Serve kube-scheduler: filter, prioritize, preempt and bind."),
    "inspect": SubCommand("accelshare.inspect_cli.command:inspect", "Show every card and who is on it."),
    "node-labels": SubCommand(
        "accelshare.install.cluster.node_labels:node_labels", "Label the nodes that share their cards, and undo it."
    ),
    "node-cleanup": SubCommand(
        "accelshare.install.cluster.node_cleanup:node_cleanup", "Remove what agents wrote on their nodes."
    ),
    "preflight": SubCommand("accelshare.install.preflight.command:preflight", "Check whether a cluster is ready for accelshare."),
    "profile": SubCommand("accelshare.vendors.command:profile", "List, show and check vendor profiles."),
    "runtime-config": SubCommand(
        "accelshare.install.runtime.command:runtime_config", "Make the container runtime require the agent, and undo it."
    ),
    "scheduler-config": SubCommand(
        "accelshare.install.scheduler.command:scheduler_config", "Make kube-scheduler call the extender, and undo it."
    ),
}

# Errors whose message is enough: printed without a traceback, exit code 2.
OUR_ERRORS: Final[tuple[type[Exception], ...]] = (VendorError,)


class _OurError(click.ClickException):
    exit_code = 2


class LazyGroup(HelpGroup):
    """A group whose sub-commands are imported when one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = COMMANDS.get(cmd_name)
        return None if row is None else _loaded(cmd_name, row)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].summary) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=COMMANDS[name].summary) for name in names), *options]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OUR_ERRORS as error:
            raise _OurError(visible_lines(str(error))) from error
        except click.ClickException as error:
            if type(error) is not click.ClickException:  # a usage error
                raise
            raise click.ClickException(visible_lines(error.message)) from error


def _loaded(name: str, row: SubCommand) -> click.Command:
    module, _, attribute = row.target.partition(":")
    try:
        # Loaded modules stay, so collecting garbage meanwhile would only delay the first output.
        gc.disable()
        command: click.Command = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        # A missing module of accelshare is a smaller installation; a missing library is a broken one.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise click.ClickException(f"the sub-command {name} is not part of this installation") from error
    finally:
        gc.enable()
    return command


@click.group(cls=LazyGroup, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="accelshare", message="%(prog)s %(version)s")
def accelshare() -> None:
    """Accelerator sharing for Kubernetes: slices of cards, whole cards, every vendor."""


def main() -> None:
    """The entry point of the installed command."""
    accelshare(prog_name="accelshare")
