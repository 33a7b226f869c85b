"""Shell completion: `accelshare completion`, and the names of nodes, pods and namespaces from the cluster.

Belongs here: click's own script, and proposals for arguments. A proposal never raises: a shell that completes shows no error.
"""

from collections.abc import Callable

import click

from accelshare.terminal import echo


def nodes(context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    return _names(context, prefix, lambda _namespace: "/api/v1/nodes")


def namespaces(context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    return _names(context, prefix, lambda _namespace: "/api/v1/namespaces")


def pods(context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
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


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes accelshare's commands, flags, nodes and pods in SHELL.

    bash: accelshare completion bash > /etc/bash_completion.d/accelshare
    """
    from click.shell_completion import get_completion_class

    match = get_completion_class(shell)
    assert match is not None, "click knows these three shells"
    root = context.find_root()
    echo(match(root.command, {}, "accelshare", "_ACCELSHARE_COMPLETE").source())
