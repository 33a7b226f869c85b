"""docs/reference/profiles.md lists every key, and its example files are correct."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelshare.ledger.refusals import Reason
from accelshare.vendors.catalog import read_layers
from accelshare.vendors.layers import ProfileFile, survey
from accelshare.vendors.validation import Key, entry_sections, keys

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "profiles.md").read_text(encoding="utf-8")
FILES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def entries(key: str, row: Key) -> Iterator[str]:
    """The keys of the tables within a list or table, as the page writes them."""
    for format_address, section in entry_sections(key, row.type):
        for name, inner in keys(section).items():
            yield f"{format_address}.{name}"
            yield from entries(f"{format_address}.{name}", inner)


@pytest.mark.parametrize("key", [*keys(), *(inner for key, row in keys().items() for inner in entries(key, row))])
def test_every_key_is_explained(key: str) -> None:
    assert f"| `{key}` |" in PAGE


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_named(reason: Reason) -> None:
    assert f"`{reason.value}`" in PAGE


@pytest.mark.parametrize("text", FILES)
def test_every_file_in_the_docs_is_valid(text: str) -> None:
    layers, _ = read_layers([])
    found = survey([*layers, [ProfileFile("shown.toml", tomllib.loads(text))]])
    assert [str(problem) for problem in found.problems] == []


@pytest.mark.parametrize(
    ("key", "default"),
    [(key, row.default) for key, row in keys().items() if isinstance(row.default, str | int) and row.default != ""],
)
def test_every_default_is_the_one_in_force(key: str, default: object) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{key}` |"))
    assert f"`{str(default).lower() if isinstance(default, bool) else default}`" in row


def test_the_chinese_page_explains_the_same_keys() -> None:
    chinese = (Path(__file__).parents[3] / "docs" / "zh" / "reference" / "profiles.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (`[^`]+`) \|", chinese, re.MULTILINE) == re.findall(r"^\| (`[^`]+`) \|", PAGE, re.MULTILINE)
