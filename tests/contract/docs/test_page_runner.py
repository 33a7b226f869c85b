"""The page runner notices a command that fails or prints something else, and discards changes."""

from pathlib import Path

import pytest

from tests.contract.docs.machine import Machine
from tests.contract.docs.page_runner import PageRunner
from tests.contract.docs.pages import ROOT, Command

PAGE = "docs/reference/cli.md"


def typed(words: str, *shown: str) -> list[Command]:
    return [Command(PAGE, 7, "", words, shown)]


async def test_a_command_that_fails_is_named_with_its_words_and_what_to_do(plain_machine: Machine) -> None:
    with pytest.raises(AssertionError) as failure:
        await PageRunner(plain_machine).run(typed("accelshare profile show nobody"))
    message = str(failure.value)
    assert message.startswith(f"{PAGE}:7: accelshare profile show nobody\nended with 2, not 0; mend the page")
    assert "nobody" in message.splitlines()[-1]


async def test_what_a_page_shows_is_what_must_come(plain_machine: Machine) -> None:
    page_runner = PageRunner(plain_machine)
    await page_runner.run(typed("printf 'one\\ntwo\\nthree\\n'", "one", "…", "three"))
    for shown in (("one",), ("one", "two", "four"), ("…", "two")):
        with pytest.raises(AssertionError, match="the page shows"):
            await page_runner.run(typed("printf 'one\\ntwo\\nthree\\n'", *shown))


async def test_a_server_that_ends_early_is_noticed(plain_machine: Machine) -> None:
    with pytest.raises(AssertionError, match="ended without printing"):
        await PageRunner(plain_machine).run(typed("accelshare extender --kubeconfig /nowhere"))


async def test_nothing_gets_out_of_the_machine(plain_machine: Machine) -> None:
    """Neither into the checkout nor into the rest of the file system; inside, what one line did the next one sees."""
    plain_machine.must("echo kept > of-the-docs-test && cp of-the-docs-test /etc/ && cd /etc && export MINE=kept")
    assert plain_machine.must("cat of-the-docs-test; echo $MINE") == "kept\nkept\n"
    assert not (ROOT / "of-the-docs-test").exists()
    assert not Path("/etc/of-the-docs-test").exists()
