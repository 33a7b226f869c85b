"""The pictures of a terminal in the docs show what the commands print: compared to the letter.

`python -m pytest tests/contract/test_pictures.py --write-pictures` writes them again.
"""

import asyncio
import json
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from accelshare.testing.api_server import FakeApiServer
from deploy.terminal_picture import picture
from tests.contract.test_inspect import InspectedCluster, _typed

IMAGES = Path(__file__).parents[2] / "docs/images"
COLUMNS = 96
NODE = "accelshare-local"
INVENTORY = {
    "enflame": {"unit": "1", "delivery": "nri", "cards": [(f"GCU-U5300009010{n}", 16, "T20") for n in range(4)]},
    "nvidia": {"unit": "GiB", "delivery": "nri", "cards": [(f"GPU-8f6d470d-{n}", 15, "Tesla T4") for n in range(2)]},
}


@pytest.fixture
async def tour(tmp_path: Path) -> AsyncIterator[InspectedCluster]:
    """The node of `make up` with fewer cards, and the pods of examples/tour.yaml where they are placed."""
    async with FakeApiServer() as api:
        cluster = InspectedCluster(api, tmp_path)
        kinds = {
            kind: {**entry, "cards": [dict(zip(("index", "id", "size", "model"), (n, *card), strict=True)) for n, card in cards]}
            for kind, entry in INVENTORY.items()
            for cards in [list(enumerate(entry["cards"]))]
        }
        annotations = {"accelshare.io/inventory": json.dumps(kinds)}
        addresses = {"addresses": [{"type": "InternalIP", "address": "10.198.0.2"}]}
        api.store.create("nodes", {"metadata": {"name": NODE, "annotations": annotations}, "status": addresses})
        for number, (units, card) in enumerate(((4, "0"), (8, "0"), (12, "1"), (20, "")), start=1):
            on = f"{NODE} enflame/{card}" if card else ""
            cluster.pod(f"gcushare-pod-{number}", {"enflame.com/gcu-memory": units}, on=on)
        yield cluster


@pytest.mark.parametrize(
    ("name", "words"),
    [("terminal-inspect", ("inspect",)), ("terminal-explain", ("explain", "gcushare-pod-4"))],
)
async def test_a_picture_shows_what_the_command_prints(
    tour: InspectedCluster, name: str, words: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    line = f"accelshare {' '.join(words)}"
    command = (sys.executable, "-m", "accelshare", *words)
    code, text = await asyncio.to_thread(_typed, tour, *command, COLUMNS=str(COLUMNS), LANG="C.UTF-8", TERM="xterm-256color")
    assert code == 0, text
    made = picture(f"$ {line}\n{text}", label=f"The output of {line} on a terminal")
    file = IMAGES / f"{name}.svg"
    if request.config.getoption("--write-pictures"):
        file.write_text(made, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == made, "look at what changed, then write the pictures again with --write-pictures"


def test_texts_of_others_are_no_markup() -> None:
    """Colours become classes, and what looks like XML stays text."""
    made = picture("\x1b[31m<b>&\x1b[0m plain\n  x", label='a "b"')
    root = ElementTree.fromstring(made)  # noqa: S314 – made here
    texts = [(element.get("class"), element.get("x"), element.text) for element in root if element.tag.endswith("text")]
    assert texts == [("bad", "12", "<b>&"), (None, "52", "plain"), (None, "28", "x")]
    assert root.get("aria-label") == 'a "b"'
