"""What may stand where the cursor is: names of nodes, pods and namespaces, asked of the cluster.

Belongs here: completion of arguments. Never: an error; a shell that completes has no place to show one.
"""

from collections.abc import Callable

import click


def nodes(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    return _names(context, begun, lambda _namespace: "/api/v1/nodes")


def namespaces(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    return _names(context, begun, lambda _namespace: "/api/v1/namespaces")


def pods(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    return _names(context, begun, lambda namespace: f"/api/v1/namespaces/{context.params.get('namespace') or namespace}/pods")


def _names(context: click.Context, begun: str, path: Callable[[str], str]) -> list[str]:
    from accelshare.inspect_cli.reading import connect, names
    from accelshare.terminal import is_visible

    try:
        with connect(context.params.get("kubeconfig"), context.params.get("context"), timeout_s=2.0) as door:
            there = names(door.client, path(door.namespace))
            return [name for name in there if name.startswith(begun) and is_visible(name)]
    except Exception:
        return []
