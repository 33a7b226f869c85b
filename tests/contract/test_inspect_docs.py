"""The how-to about inspect and explain is true: every command in it runs, and prints what the page shows."""

import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from accelshare.testing.api_server import FakeApiServer
from tests.contract import test_docs as docs
from tests.contract.test_inspect import InspectedCluster

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/inspect.md"
TWIN = ROOT / "docs/zh/how-to/inspect.md"
SHOWN = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


@pytest.fixture
async def inspected(tmp_path: Path) -> AsyncIterator[InspectedCluster]:
    async with FakeApiServer() as api:
        yield InspectedCluster(api, tmp_path)


def calls() -> list[tuple[str, str]]:
    """Every command that can run here, with the output on the page."""
    found = [call for block in docs.blocks(PAGE) if block.language == "console" for call in SHOWN.findall(block.text)]
    return [(words, text) for words, text in found if runs(words)]


def runs(words: str) -> bool:
    return words.startswith(("kubectl inspect ", "accelshare ")) and not re.search(r"--watch|>|\| ", words)


def the_scene(inspected: InspectedCluster) -> None:
    """The xpushare guide's Deployment, two pods that fill the other cards, and pods that wait."""
    inspected.example_node("kunlun")
    for name, index in (("xpu-pod-6bf885cf6d-2vzgz", 0), ("xpu-pod-6bf885cf6d-m6vf6", 1)):
        inspected.pod(name, {"baidu.com/xpu-mem": 4500}, on=f"minikube kunlun/{index}")
    inspected.pod("train-0", {"baidu.com/xpu-mem": 8064}, on="minikube kunlun/2")
    inspected.pod("train-1", {"baidu.com/xpu-mem": 2000}, on="minikube kunlun/3")
    inspected.pod("waits", {"baidu.com/xpu-mem": 7000})
    inspected.pod("odd", {"baidu.com/xpu-mem": 4000}, labels={"baidu.com/xpu-count": "3"})


async def test_every_command_of_the_page_prints_what_the_page_shows(inspected: InspectedCluster) -> None:
    the_scene(inspected)
    assert len(calls()) >= 6
    for words, text in calls():
        program, *arguments = shlex.split(words)
        if program == "kubectl":
            _, out, err = await inspected.run(inspected.plugin(arguments[1]), *arguments[2:])
        else:
            _, out, err = await inspected.accelshare(*arguments)
        if text:
            assert shown(err + out) == shown(text), words
        else:
            assert out, words


def shown(text: str) -> list[str]:
    """Lines as a page can hold them: without blanks at their ends."""
    return [line.rstrip() for line in text.rstrip("\n").split("\n")]


def test_the_page_is_one_page_in_two_languages() -> None:
    docs.test_a_page_in_two_languages_is_one_page(str(PAGE.relative_to(ROOT)), str(TWIN.relative_to(ROOT)))


def test_the_plugins_of_the_page_are_those_of_the_profiles() -> None:
    commands = set(re.findall(r"`kubectl inspect (\w+)`", docs.text_of(PAGE)))
    assert commands == {profile.inspect.command for profile in docs.SHIPPED if profile.inspect.command}
