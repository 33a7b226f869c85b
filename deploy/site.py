"""`make site`: the docs as a website that loads nothing from other hosts, with a search in both languages.

Belongs here: which pages are on it, in which order, what is adapted for MkDocs, and the checks of the result. Never: texts.

    python -m deploy.site MKDOCS     MKDOCS is the program; the site is then in build/site
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SETTINGS: Final = ROOT / "deploy" / "mkdocs.yml"
INDEX: Final = Path("docs/README.md")
TARGET: Final = ROOT / "build"
_LINK: Final = re.compile(r"(!?)\[([^]\n]*)\]\(([^)\s]+)\)")
_HAN: Final = re.compile(r"([\u3400-\u4dbf\u4e00-\u9fff])")
_SEPARATOR: Final = "\u200b"
# The theme fetches these only for diagrams that no page has, and for browsers without ResizeObserver.
_OTHER_HOST: Final = "https://unpkg.com/"


class SiteError(Exception):
    """The site cannot be built, or loads something from another host."""


def pages() -> list[Path]:
    """Every page of the repository for people, relative to it."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(page.relative_to(ROOT) for page in found)


def adapted(text: str, page: Path, linked: set[Path]) -> str:
    """A page for MkDocs: lists indented as it reads them, and no links to directories. Adds the files that it links to."""

    def link(found: re.Match[str]) -> str:
        picture, label, target = found.groups()
        name = target.partition("#")[0]
        if not name or re.match(r"[a-z]+:", target):
            return found[0]
        file = (ROOT / page.parent / name).resolve()
        if file.is_dir():
            return label
        if file.suffix != ".md":
            linked.add(file.relative_to(ROOT))
        return f"{picture}[{label}]({target})"

    return "\n".join(_LINK.sub(link, line) for line in indented(text.splitlines())) + "\n"


def indented(lines: list[str]) -> Iterator[str]:
    """Python-Markdown wants four blanks before all that belongs to a list item; GitHub takes the width of its mark."""
    width, fenced = 0, False
    for line in lines:
        if line.startswith("```"):
            fenced = not fenced
        mark = re.match(r"([-*]|\d+\.) +", line)
        blanks = len(line) - len(line.lstrip(" "))
        if fenced or not line.strip():
            yield line
        elif mark:
            width = len(mark[0])
            yield line
        elif width and blanks >= width:
            yield " " * (4 + blanks - width) + line.lstrip(" ")
        else:
            width = 0 if blanks == 0 else width
            yield line


def navigation(index: str, there: list[Path]) -> list[object]:
    """The pages under the headings of the docs' index, in its order; the rest of the repository's pages last."""
    left = {page for page in there if page != Path("README.md")}
    tree: list[object] = ["README.md"]
    for part in re.split(r"^## +", index, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        entries: list[object] = []
        for _, label, target in _LINK.findall(body):
            page = Path("docs") / target  # a link into a page does not name the page
            if page in left:
                left.remove(page)
                entries.append({label: str(page)})
        tree.append({title: entries})
    return [*tree, {"More": [str(page) for page in sorted(left)]}]


def collect(directory: Path) -> list[Path]:
    """Copy the pages, and all that they show and link to, into this directory."""
    there, linked = pages(), set[Path]()
    for page in there:
        target = directory / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(adapted((ROOT / page).read_text(encoding="utf-8"), page, linked), encoding="utf-8")
    pictures = {picture.relative_to(ROOT) for picture in (ROOT / "docs" / "images").iterdir()}
    for file in linked | pictures:
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, directory / file)
    return there


def separate_chinese(index: Path) -> None:
    """Each Chinese character is a word of the search's index: such texts have no blanks between words."""
    content = json.loads(index.read_text(encoding="utf-8"))
    for entry in content["docs"]:
        for field in ("title", "text"):
            entry[field] = _HAN.sub(rf"{_SEPARATOR}\1{_SEPARATOR}", entry[field])
    index.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


class _Loads(HTMLParser):
    """The addresses from which a browser loads something for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video", "audio"):
            self.addresses += [values.get("src") or "", values.get("srcset") or ""]
        if tag == "link" and values.get("rel") not in ("canonical", "alternate", "next", "prev"):
            self.addresses.append(values.get("href") or "")


def other_hosts(site: Path) -> list[str]:
    """What the site would load from other hosts: in its pages, its styles and its programs."""
    found = []
    for page in site.rglob("*.html"):
        loads = _Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        found += [f"{page.relative_to(site)}: {one}" for one in loads.addresses if re.match(r"([a-z]+:)?//", one)]
    for style in site.rglob("*.css"):
        addresses = re.findall(r"(?:url\(|@import) *[\"']?((?:https?:)?//[^\"')]+)", style.read_text(encoding="utf-8"))
        found += [f"{style.relative_to(site)}: {address}" for address in addresses]
    for program in site.rglob("*.js"):
        if _OTHER_HOST in program.read_text(encoding="utf-8"):
            found.append(f"{program.relative_to(site)}: {_OTHER_HOST}")
    return found


def build(mkdocs: Path, target: Path = TARGET) -> Path:
    """The built site; raises SiteError with MkDocs' own words, or with what is wrong about the result."""
    sources, site = target / "site-pages", target / "site"
    for directory in (sources, site):
        shutil.rmtree(directory, ignore_errors=True)
    there = collect(sources)
    places = {
        "docs_dir": str(sources),
        "site_dir": str(site),
        "nav": navigation((ROOT / INDEX).read_text(encoding="utf-8"), there),
    }
    settings = target / "mkdocs.yml"
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in places.items()]
    settings.write_text(SETTINGS.read_text(encoding="utf-8") + "".join(lines), encoding="utf-8")
    command = [str(mkdocs), "build", "--strict", "--config-file", str(settings)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise SiteError(done.stdout + done.stderr)
    separate_chinese(site / "search" / "search_index.json")
    for program in site.rglob("*.js"):
        text = program.read_text(encoding="utf-8")
        if _OTHER_HOST in text:
            program.write_text(text.replace(_OTHER_HOST, "./not-here/"), encoding="utf-8")
    if found := other_hosts(site):
        raise SiteError("loaded from other hosts:\n" + "\n".join(found))
    return site


def main() -> int:
    try:
        site = build(Path(sys.argv[1]))
    except SiteError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{site}: {len(list(site.rglob('*.html')))} pages; look at them with python3 -m http.server -d {site}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
