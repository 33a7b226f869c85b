"""`accelshare completion`: the script that teaches a shell our words.

Belongs here: printing click's own script. Never: a script of ours.
"""

import click

from accelshare.terminal import echo


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
