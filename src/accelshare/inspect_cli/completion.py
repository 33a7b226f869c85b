"""Shell completion: `accelshare completion`, and the names of nodes, pods and namespaces from the cluster.

Belongs here: click's own script, and proposals for arguments. A proposal never raises: a shell that completes shows no error.
"""

from collections.abc import Callable
from typing import Final

import click

from accelshare.help_pages import HelpCommand
from accelshare.terminal import echo

_FISH_SPLIT: Final = 'string split "," '
_FISH_SPLIT_ONCE: Final = 'string split --max 1 "," '


def nodes(context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    return _names(context, prefix, lambda _namespace: "/api/v1/nodes")


def namespaces(context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    return _names(context, prefix, lambda _namespace: "/api/v1/namespaces")


def pods(context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    """Names, or after `NAMESPACE/` names with it."""
    there, slash, start = prefix.rpartition("/")
    if slash:
        return [f"{there}/{name}" for name in _names(context, start, lambda _namespace: f"/api/v1/namespaces/{there}/pods")]
    return _names(context, prefix, lambda namespace: f"/api/v1/namespaces/{context.params.get('namespace') or namespace}/pods")


def _names(context: click.Context, prefix: str, path: Callable[[str], str]) -> list[str]:
    from accelshare.inspect_cli.cluster_reader import connect, names
    from accelshare.terminal import is_visible

    try:
        with connect(context.params.get("kubeconfig"), context.params.get("context"), timeout_s=2.0) as cluster:
            there = names(cluster.client, path(cluster.namespace))
            return [name for name in there if name.startswith(prefix) and is_visible(name)]
    except Exception:
        return []


@click.command(
    cls=HelpCommand,
    short_help="Print the completion script of a shell.",
    examples=[("bash > /etc/bash_completion.d/accelshare", "for every user")],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes accelshare's commands, flags, nodes and pods in SHELL."""
    from click.shell_completion import get_completion_class

    match = get_completion_class(shell)
    assert match is not None, "click knows these three shells"
    root = context.find_root()
    script = match(root.command, {}, "accelshare", "_ACCELSHARE_COMPLETE").source()
    # click's script would end a description at its first comma.
    echo(script.replace(_FISH_SPLIT, _FISH_SPLIT_ONCE) if shell == "fish" else script)
