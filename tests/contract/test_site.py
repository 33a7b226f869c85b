"""What the docs site is made of: every page once, lists as MkDocs reads them, nothing from other hosts.

`make site` and `make check` build the site itself; tests/e2e/docs/test_site.py searches in it.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from deploy import site

INDEX = (site.ROOT / site.INDEX).read_text(encoding="utf-8")


def listed(tree: Any) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    return [page for child in (tree.values() if isinstance(tree, dict) else tree) for page in listed(child)]


def test_every_page_is_in_the_navigation_once() -> None:
    there = site.pages()
    assert sorted(listed(site.navigation(INDEX, there))) == sorted(map(str, there))


def test_pages_are_under_the_headings_of_the_index() -> None:
    tree = site.navigation(INDEX, site.pages())
    titles = [next(iter(part)) for part in tree if isinstance(part, dict)]
    assert titles[-1] == "More"
    assert {"How to", "Reference", "中文"} <= set(titles)


def test_what_belongs_to_a_list_item_is_indented_by_four() -> None:
    lines = ["- one", "  two", "  - three", "", "1. four", "", "   ```yaml", "   a:", "     b: 1", "   ```", "five", "  six"]
    assert list(site.indented(lines)) == [
        *("- one", "    two", "    - three", "", "1. four", ""),
        *("    ```yaml", "    a:", "      b: 1", "    ```", "five", "  six"),
    ]


def test_a_block_of_code_stays_as_it_is() -> None:
    lines = ["- one", "", "```console", "  $ two", "- three", "```"]
    assert list(site.indented(lines)) == lines


def test_linked_files_go_with_the_page_and_directories_are_no_links() -> None:
    linked = set[Path]()
    page = Path("docs/how-to/new.md")
    text = "[a](tls.md#x) [b](../../Dockerfile) [c](../../tests/contract) [d](https://x.example) ![e](../images/x.png)"
    assert site.adapted(text, page, linked) == text.replace("[c](../../tests/contract)", "c") + "\n"
    assert linked == {Path("Dockerfile"), Path("docs/images/x.png")}


@pytest.mark.parametrize(
    ("name", "content", "host"),
    [
        ("a.html", '<script src="https://x.example/y.js"></script>', "https://x.example/y.js"),
        ("a.html", '<link rel="stylesheet" href="//x.example/y.css">', "//x.example/y.css"),
        ("a.html", '<a href="https://x.example">x</a><img src="../y.png"><link rel="canonical" href="https://x.example">', ""),
        ("a.css", "@font-face { src: url('https://x.example/y.woff') }", "https://x.example/y.woff"),
        ("a.css", "b { background: url(y.svg) }", ""),
        ("a.js", 'load("https://unpkg.com/y")', "https://unpkg.com/"),
    ],
)
def test_what_a_site_loads_from_other_hosts_is_found(tmp_path: Path, name: str, content: str, host: str) -> None:
    (tmp_path / name).write_text(content)
    assert site.other_hosts(tmp_path) == ([f"{name}: {host}"] if host else [])


def test_each_chinese_character_is_a_word_of_the_search(tmp_path: Path) -> None:
    index = tmp_path / "search_index.json"
    index.write_text(json.dumps({"docs": [{"title": "安装 helm", "text": "cards"}]}))
    site.separate_chinese(index)
    (entry,) = json.loads(index.read_text())["docs"]
    assert entry["title"].split("\u200b") == ["", "安", "", "装", " helm"]
    assert entry["text"] == "cards"
