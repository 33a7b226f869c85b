"""`accelshare completion`: the script that teaches a shell our words.

Belongs here: printing click's own script. Never: a script of ours.
"""

from collections.abc import Callable

import click

from accelshare.terminal import echo


def nodes(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    return _names(context, begun, lambda _namespace: "/api/v1/nodes")


def namespaces(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    return _names(context, begun, lambda _namespace: "/api/v1/namespaces")


def pods(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    return _names(context, begun, lambda namespace: f"/api/v1/namespaces/{context.params.get('namespace') or namespace}/pods")


def _names(context: click.Context, begun: str, path: Callable[[str], str]) -> list[str]:
    from accelshare.inspect_cli.cluster_reader import connect, names
    from accelshare.terminal import is_visible

    try:
        with connect(context.params.get("kubeconfig"), context.params.get("context"), timeout_s=2.0) as door:
            there = names(door.client, path(door.namespace))
            return [name for name in there if name.startswith(begun) and is_visible(name)]
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

    found = get_completion_class(shell)
    assert found is not None, "click knows these three shells"
    root = context.find_root()
    echo(found(root.command, {}, "accelshare", "_ACCELSHARE_COMPLETE").source())
