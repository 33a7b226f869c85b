"""The program that kubectl finds as `kubectl_complete-inspect-WORD`: what may stand at the cursor of `kubectl inspect WORD`.

Belongs here: kubectl's protocol. It hands over the words so far, the last of them begun and perhaps empty, and reads one proposal
a line, then a colon and a number that says what the shell should do besides. Never: the proposals (completing.py, click).
"""

import sys
from pathlib import PurePath
from typing import Final

PREFIX: Final = "kubectl_complete-inspect-"
# As in cobra, which kubectl's own completion is made with.
ALSO_FILES: Final = 0
NO_FILES: Final = 4


def main() -> None:
    """The entry point of every `kubectl_complete-inspect-…`."""
    called = PurePath(sys.argv[0]).name.removesuffix(".exe")
    from accelshare.terminal import echo

    *words, begun = sys.argv[1:] or [""]
    echo(answer(called.removeprefix(PREFIX), words, begun))


def answer(plugin: str, words: list[str], begun: str) -> str:
    from click.shell_completion import ShellComplete

    from accelshare.inspect_cli.command import inspect

    asked = ShellComplete(inspect, {"obj": plugin}, f"kubectl inspect {plugin}", "")
    proposals = asked.get_completions(words, begun)
    lines = [f"{each.value}\t{each.help}" if each.help else str(each.value) for each in proposals if each.type == "plain"]
    wants_file = any(each.type in ("file", "dir") for each in proposals)
    return "\n".join([*lines, f":{ALSO_FILES if wants_file else NO_FILES}"])
