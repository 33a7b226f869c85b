"""The program `kubectl_complete-inspect-WORD`: kubectl calls it to complete `kubectl inspect WORD`.

Belongs here: kubectl's protocol. Arguments are the words so far, the last one unfinished and perhaps empty. The answer has one
proposal per line, then a colon and a number with a directive for the shell. Never: the proposals (completion.py, click).
"""

import sys
from pathlib import PurePath
from typing import Final

PREFIX: Final = "kubectl_complete-inspect-"
# Directives of cobra, the library of kubectl's completion.
ALSO_FILES: Final = 0
NO_FILES: Final = 4


def main() -> None:
    """The entry point of every `kubectl_complete-inspect-…`."""
    called = PurePath(sys.argv[0]).name.removesuffix(".exe")
    from accelshare.terminal import echo

    *words, prefix = sys.argv[1:] or [""]
    echo(answer(called.removeprefix(PREFIX), words, prefix))


def answer(plugin: str, words: list[str], prefix: str) -> str:
    from click.shell_completion import ShellComplete

    from accelshare.inspect_cli.command import inspect

    completion = ShellComplete(inspect, {"obj": plugin}, f"kubectl inspect {plugin}", "")
    proposals = completion.get_completions(words, prefix)
    lines = [f"{each.value}\t{each.help}" if each.help else str(each.value) for each in proposals if each.type == "plain"]
    wants_file = any(each.type in ("file", "dir") for each in proposals)
    return "\n".join([*lines, f":{ALSO_FILES if wants_file else NO_FILES}"])
