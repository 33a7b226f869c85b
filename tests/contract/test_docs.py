"""The docs are true: links resolve, commands exist, and lists agree with the code.

No network, no control plane: the only program that runs long is the demo, for two seconds.
"""

import ast
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
import pytest
import yaml

from accelshare import __version__
from accelshare.agent.metrics import AgentMetrics
from accelshare.cli import accelshare
from accelshare.extender.card_metrics import FAMILIES
from accelshare.extender.metrics import OUTCOMES, Metrics
from accelshare.ledger.refusals import Reason
from accelshare.vendors import catalog
from accelshare.vendors.profile import Profile

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LIMIT_S = 180.0  # for a program that takes one or two; machines that run tests are busy
OF_OPERATING = ("cost", "troubleshooting", "sizing", "gpu-operator", "gitops", "autoscaling", "air-gapped")
TWINS = [
    ("README.md", "README.zh.md"),
    ("docs/how-to/extender.md", "docs/zh/how-to/extender.md"),
    ("docs/how-to/promises.md", "docs/zh/how-to/promises.md"),
    ("docs/how-to/gangs.md", "docs/zh/how-to/gangs.md"),
    ("docs/how-to/queues-and-quotas.md", "docs/zh/how-to/queues-and-quotas.md"),
    ("docs/reference/refusals.md", "docs/zh/reference/refusals.md"),
    ("docs/how-to/scheduler-config.md", "docs/zh/how-to/scheduler-config.md"),
    ("docs/how-to/tls.md", "docs/zh/how-to/tls.md"),
    ("docs/how-to/install.md", "docs/zh/how-to/install.md"),
    ("docs/reference/chart.md", "docs/zh/reference/chart.md"),
    ("docs/explanation/security.md", "docs/zh/explanation/security.md"),
    ("docs/explanation/design.md", "docs/zh/explanation/design.md"),
    ("docs/explanation/limits-compared.md", "docs/zh/explanation/limits-compared.md"),
    ("docs/how-to/inspect.md", "docs/zh/how-to/inspect.md"),
    ("docs/how-to/agent.md", "docs/zh/how-to/agent.md"),
    ("docs/how-to/monitoring.md", "docs/zh/how-to/monitoring.md"),
    ("docs/how-to/doctor.md", "docs/zh/how-to/doctor.md"),
    ("docs/how-to/runbooks.md", "docs/zh/how-to/runbooks.md"),
    ("docs/how-to/delivery.md", "docs/zh/how-to/delivery.md"),
    ("docs/how-to/limits.md", "docs/zh/how-to/limits.md"),
    ("docs/how-to/usage.md", "docs/zh/how-to/usage.md"),
    ("docs/how-to/dashboard.md", "docs/zh/how-to/dashboard.md"),
    *(
        (f"docs/reference/{name}.md", f"docs/zh/reference/{name}.md")
        for name in ("annotations", "cli", "events", "http", "metrics", "profiles")
    ),
    *((f"docs/how-to/{name}.md", f"docs/zh/how-to/{name}.md") for name in OF_OPERATING),
    *((f"docs/explanation/{name}.md", f"docs/zh/explanation/{name}.md") for name in ("faq", "comparison")),
    ("docs/trust.md", "docs/zh/trust.md"),
    ("docs/how-to/images.md", "docs/zh/how-to/images.md"),
    ("docs/how-to/add-a-vendor.md", "docs/zh/how-to/add-a-vendor.md"),
    ("docs/tutorial.md", "docs/zh/tutorial.md"),
    ("docs/how-to/preflight.md", "docs/zh/how-to/preflight.md"),
    ("docs/how-to/try-without-hardware.md", "docs/zh/how-to/try-without-hardware.md"),
    ("docs/migrate-from-gpushare.md", "docs/zh/migrate-from-gpushare.md"),
    ("docs/migrate-from-xpushare.md", "docs/zh/migrate-from-xpushare.md"),
    ("docs/migrate-from-gcushare.md", "docs/zh/migrate-from-gcushare.md"),
    ("docs/migrate-from-stc.md", "docs/zh/migrate-from-stc.md"),
]
SHIPPED = catalog.load([]).profiles


def named(value: object) -> str:
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else getattr(value, "name", str(value))


# Reading Markdown.


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the word after the fence, and what is in it."""

    language: str
    text: str


_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in _FENCE.findall(text_of(page))]


def prose(page: Path) -> str:
    return _FENCE.sub("", text_of(page))


def headings(page: Path) -> list[tuple[int, str]]:
    return [(len(marks), title) for marks, title in re.findall(r"^(#+) +(.+)$", prose(page), re.MULTILINE)]


@cache
def anchors(page: Path) -> frozenset[str]:
    """The names that GitHub gives to headings: lower case, punctuation left out, blanks as dashes, repeated ones numbered."""
    seen: Counter[str] = Counter()
    names = set()
    for _, title in headings(page):
        name = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        names.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return frozenset(names)


def rows(text: str) -> list[list[str]]:
    """The cells of every table row; a pipe inside a code span is none."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and not set(line) <= set("|- ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]


def sections(page: Path) -> dict[str, str]:
    """What stands under each heading, up to the next one."""
    parts = re.split(r"^#+ +(.+)$", prose(page), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


# Links.


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Every relative link of a page, as (file, anchor)."""
    for target in re.findall(r"\]\(([^)\s]+)\)", _SPAN.sub("", prose(page))):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            yield file, anchor


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for file, anchor in links(page):
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{file}#{anchor}" if anchor else file)
    assert broken == []


def test_every_page_is_reached_from_the_index() -> None:
    """A page that nobody links to is a page that nobody reads."""
    reached = {(page.parent / file).resolve() for page in PAGES for file, _ in links(page) if file}
    assert [named(page) for page in PAGES if DOCS in page.parents and page not in reached] == []


def named_tests(page: Path) -> list[str]:
    return re.findall(r"tests/[\w/]+\.py::\w+", page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    """A test that a page refers to exists."""
    places = [name.split("::") for name in named_tests(page)]
    missing = [
        f"{file}::{test}"
        for file, test in places
        if not (ROOT / file).exists() or not re.search(rf"^(async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE)
    ]
    assert missing == []


@pytest.mark.parametrize("page", ["security.md", "limits-compared.md"])
def test_both_languages_name_the_same_tests(page: str) -> None:
    english, chinese = (named_tests(DOCS / place / page) for place in ("explanation", "zh/explanation"))
    assert english == chinese != []


@pytest.mark.parametrize("place", ["explanation", "zh/explanation"])
def test_every_gap_of_another_system_has_a_test(place: str) -> None:
    for system in ("kai-gpu-fractioning", "HAMi"):
        _, *gaps = rows(sections(DOCS / place / "limits-compared.md")[system])
        assert [gap for gap, _, tests in gaps if "::" not in tests] == []


# The README and the pages in two languages.


def test_the_readme_is_short() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) <= 150


@pytest.mark.parametrize(("english", "chinese"), TWINS)
def test_a_page_in_two_languages_is_one_page(english: str, chinese: str) -> None:
    """The same headings, level by level and in the same order, the same code to the letter, and a link to each other."""
    ours, theirs = ROOT / english, ROOT / chinese
    assert [level for level, _ in headings(ours)] == [level for level, _ in headings(theirs)]
    assert blocks(ours) == blocks(theirs)
    for page, twin in ((ours, theirs), (theirs, ours)):
        assert twin in {(page.parent / file).resolve() for file, _ in links(page) if file}, (
            f"{named(page)} does not name its twin"
        )


@pytest.mark.parametrize(("english", "chinese"), TWINS)
def test_a_chinese_page_leads_to_chinese_pages(english: str, chinese: str) -> None:
    """Where there is one; only its own twin is linked in English."""
    page = ROOT / chinese
    twins = {ROOT / ours for ours, _ in TWINS} - {ROOT / english}
    assert [file for file, _ in links(page) if file and (page.parent / file).resolve() in twins] == []


def test_every_page_for_people_is_there_in_two_languages() -> None:
    """How-to, moving from another system, and the reference of what is typed and seen."""
    seen = ("annotations", "cli", "events", "http", "metrics", "refusals")
    pages = [*DOCS.glob("how-to/*.md"), *DOCS.glob("migrate-*.md"), *(DOCS / "reference" / f"{name}.md" for name in seen)]
    assert sorted(named(page) for page in pages) == sorted({english for english, _ in TWINS} & {named(page) for page in pages})


def test_the_changelog_knows_this_version() -> None:
    titles = [title for level, title in headings(ROOT / "CHANGELOG.md") if level == 2]
    assert any(title.split()[0] == __version__ for title in titles), titles


# Code in the pages.


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_data_in_blocks_can_be_read(page: Path) -> None:
    for block in blocks(page):
        match block.language:
            case "json":
                json.loads(block.text)
            case "toml":
                tomllib.loads(block.text)
            case "yaml":
                list(yaml.safe_load_all(block.text))


def commands(page: Path) -> Iterator[str]:
    """Every line a reader might type: after a `$` in a console block, or in a code span."""
    for block in blocks(page):
        if block.language == "console":
            yield from re.findall(r"^\$ (.+)$", block.text.replace("\\\n", " "), re.MULTILINE)
    yield from _SPAN.findall(prose(page))


def programs(page: Path, name: str) -> Iterator[list[str]]:
    """The arguments of every call of a program, up to a pipe."""
    for command in commands(page):
        try:
            words = shlex.split(command, comments=True)
        except ValueError:
            continue  # a span that is no command
        if words and words[0].rpartition("/")[2] == name:
            yield words[1 : words.index("|") if "|" in words else None]


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = {(named(page), words[0]) for page in PAGES for words in programs(page, "make") if words and words[0].islower()}
    assert wanted
    assert {(page, target) for page, target in wanted if target not in targets} == set()


def command_at(words: list[str]) -> tuple[click.Command, list[str]]:
    """The (sub-)command that these words call, and what is left of them."""
    command: click.Command = accelshare
    left = list(words)
    while isinstance(command, click.Group) and left and not left[0].startswith("-"):
        found = command.get_command(click.Context(command), left.pop(0))
        assert found is not None, f"there is no command {' '.join(words)!r}"
        command = found
    return command, left


def flags(command: click.Command) -> set[str]:
    parameters = command.get_params(click.Context(command, help_option_names=["-h", "--help"]))
    return {flag for parameter in parameters for flag in (*parameter.opts, *parameter.secondary_opts)}


CALLS = sorted({tuple(words) for page in PAGES for words in programs(page, "accelshare")})


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_every_command_and_flag_exists(words: tuple[str, ...]) -> None:
    command, left = command_at(list(words))
    assert [word for word in left if word.startswith("-") and word.partition("=")[0] not in flags(command)] == []


PLUGIN_CALLS = sorted({tuple(words) for page in PAGES for words in programs(page, "kubectl") if words[:1] == ["inspect"]})


@pytest.mark.parametrize("words", PLUGIN_CALLS, ids=" ".join)
def test_every_call_of_a_kubectl_plugin_exists(words: tuple[str, ...]) -> None:
    command, left = command_at(list(words))
    if left:
        assert left[0] in {profile.inspect.command for profile in SHIPPED}
    assert [word for word in left if word.startswith("-") and word.partition("=")[0] not in flags(command)] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_file_that_a_command_names_is_there(page: Path) -> None:
    """Of ours, that is: what lies in these folders."""
    words = {word for block in blocks(page) if block.language == "console" for word in re.findall(r"[^\s'\"=]+", block.text)}
    ours = {word for word in words if re.match(r"(\./)?(deploy|examples|bench|requirements)/[\w./-]+$", word)}
    assert [word for word in sorted(ours) if not (ROOT / word).exists()] == []


def harmless(words: tuple[str, ...]) -> bool:
    """It reads what is shipped, prints, and ends."""
    shows = [("profile", "list"), *(("profile", "show", profile.name) for profile in SHIPPED)]
    return words[-1:] in [("--help",), ("--version",)] or words[:3] in shows


@pytest.mark.parametrize("words", [words for words in CALLS if harmless(words)], ids=" ".join)
def test_harmless_commands_work(words: tuple[str, ...]) -> None:
    done = run("-m", "accelshare", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)


# Reference pages.


def leaves(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from leaves(found, f"{path} {name}".strip())
    else:
        yield path, command


@pytest.mark.parametrize(("path", "command"), list(leaves(accelshare)), ids=named)
def test_every_flag_is_explained_with_its_default(path: str, command: click.Command) -> None:
    title = f"accelshare {path.split()[0]}"
    head, *in_docs = rows(sections(DOCS / "reference" / "cli.md").get(title, "")) or [["flag"]]
    flag, default = head.index("flag"), len(head) - 1
    for option in command.params:
        if isinstance(option, click.Option):
            found = [row for row in in_docs if re.search(rf"`{option.opts[-1]}[ `]", row[flag])]
            assert len(found) == 1, f"{option.opts[-1]} needs one row under {title!r}, it has {len(found)}"
            value = option.to_info_dict()["default"]
            if isinstance(value, str | int | Path) and not isinstance(value, bool):
                assert found[0][default] == f"`{value}`"


def test_no_flag_is_explained_that_does_not_exist() -> None:
    known = {flag for _, command in leaves(accelshare) for flag in flags(command)}
    in_docs = set(re.findall(r"`(--?[a-z][a-z0-9-]*)", prose(DOCS / "reference" / "cli.md")))
    assert in_docs - known == set()


REFUSALS = [DOCS / "reference" / "refusals.md", DOCS / "zh" / "reference" / "refusals.md"]


@pytest.mark.parametrize("page", REFUSALS, ids=named)
@pytest.mark.parametrize("profile", SHIPPED, ids=named)
def test_every_refusal_has_its_text(page: Path, profile: Profile) -> None:
    in_docs = {cells[0]: cells[1] for cells in rows(sections(page)[profile.name])[1:]}
    assert in_docs == {f"`{reason.value}`": profile.text(reason) for reason in Reason}


@pytest.mark.parametrize("page", REFUSALS, ids=named)
def test_every_refusal_is_explained_under_the_right_heading(page: Path) -> None:
    """Three tables: eviction could help, it could not, the request itself is wrong; each row names the map it comes in."""
    in_docs = {cells[0].strip("`"): cells[1].strip("`") for cells in rows(prose(page)) if len(cells) == 4 and cells[0][0] == "`"}
    curable, incurable = "FailedNodes", "FailedAndUnresolvableNodes"
    assert in_docs == {reason.value: curable if reason.eviction_could_help else incurable for reason in Reason}
    tables = [[cells[0].strip("`") for cells in rows(part)[1:]] for part in list(sections(page).values())[1:4]]
    about_the_node = [reason for reason in Reason if not reason.about_the_request]
    assert list(map(set, tables)) == [
        {reason.value for reason in about_the_node if reason.eviction_could_help},
        {reason.value for reason in about_the_node if not reason.eviction_could_help},
        {reason.value for reason in Reason if reason.about_the_request},
    ]


def in_two_languages(page: str) -> list[Path]:
    return [DOCS / page, DOCS / "zh" / page]


@pytest.mark.parametrize("page", in_two_languages("reference/metrics.md"), ids=named)
def test_every_metric_is_explained(page: Path) -> None:
    texts = (Metrics().text() + AgentMetrics().text()).decode()
    served = dict(re.findall(r"^# TYPE (\w+) (\w+)$", texts, re.MULTILINE)) | dict.fromkeys(FAMILIES, "gauge")
    in_docs = {cells[0].strip("`"): cells[1] for cells in rows(prose(page)) if "accelshare_" in cells[0]}
    assert in_docs == {name: kind for name, kind in served.items() if not name.endswith("_created")}


@pytest.mark.parametrize("page", in_two_languages("how-to/monitoring.md"), ids=named)
def test_every_alert_is_explained(page: Path) -> None:
    groups = yaml.safe_load((ROOT / "deploy/chart/accelshare/files/accelshare.rules.yaml").read_text())["groups"]
    in_docs = [cells[0].strip("`") for cells in rows(prose(page)) if cells[0].startswith("`Accelshare")]
    assert in_docs == [rule["alert"] for group in groups for rule in group["rules"]]


def test_the_outcomes_that_are_counted_are_those_that_are_explained() -> None:
    table = rows(sections(DOCS / "reference" / "metrics.md")["Outcomes"])[1:]
    in_docs = {(cells[0], cells[1].strip("`")) for cells in table if cells[0] != "all"}
    assert in_docs == {(verb, outcome) for verb, outcomes in OUTCOMES.items() for outcome in outcomes}


def test_every_flag_is_on_the_chinese_page_too() -> None:
    """Section by section, with the same default where that is a value."""
    english, chinese = (list(sections(page).values()) for page in in_two_languages("reference/cli.md"))
    for ours, theirs in zip(english, chinese, strict=True):
        assert [flags_of(cells) for cells in rows(ours)] == [flags_of(cells) for cells in rows(theirs)]


def flags_of(cells: list[str]) -> tuple[list[str], str]:
    named = [span for cell in cells for span in _SPAN.findall(cell) if re.match(r"--?[a-z]", span)]
    return named, cells[-1] if re.fullmatch(r"`[^`]+`", cells[-1]) else ""


def test_every_outcome_of_a_bind_is_explained() -> None:
    source = (ROOT / "src/accelshare/extender/binder.py").read_text()
    in_docs = {
        cells[1].strip("`") for cells in rows(sections(DOCS / "reference" / "metrics.md")["Outcomes"]) if cells[0] == "bind"
    }
    assert in_docs == set(re.findall(r"BindOutcome\(\s*\"([a-z-]+)\"", source))


@pytest.mark.parametrize("page", in_two_languages("reference/events.md"), ids=named)
def test_every_event_is_explained(page: Path) -> None:
    """A reason is a CamelCase argument of `record(…, reason="…")` or `_record_event(pod, "…", …)`."""
    in_code = {reason for file in (ROOT / "src").rglob("*.py") for reason in event_reasons(ast.parse(file.read_text()))}
    table = rows(prose(page))
    assert in_code
    assert {cells[0].strip("`") for cells in table[1:]} == in_code


def event_reasons(tree: ast.AST) -> Iterator[str]:
    for call in ast.walk(tree):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr in ("record", "_record", "_record_event")
        ):
            for value in (*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "reason")):
                if isinstance(value, ast.Constant) and re.fullmatch(r"([A-Z][a-z]+){2,}", str(value.value)):
                    yield str(value.value)


@pytest.mark.parametrize("profile", SHIPPED, ids=named)
def test_every_name_on_pods_and_nodes_is_explained(profile: Profile) -> None:
    names: Iterable[str | None] = (
        profile.resources.memory,
        profile.resources.count,
        profile.resources.whole,
        profile.request.cards_label,
        profile.annotations.index,
        profile.annotations.card_size,
        profile.annotations.pod_units,
        profile.annotations.assigned,
        profile.annotations.assign_time,
        "=".join(profile.node_label) if profile.node_label else None,
    )
    in_docs = set(_SPAN.findall(prose(DOCS / "reference" / "annotations.md")))
    assert [name for name in names if name is not None and name not in in_docs] == []


def test_every_annotation_and_label_of_ours_is_explained() -> None:
    ours = {name for file in (ROOT / "src").rglob("*.py") for name in re.findall(r'"(accelshare\.io/[a-z-]+)"', file.read_text())}
    assert ours - set(_SPAN.findall(prose(DOCS / "reference" / "annotations.md"))) == set()


def test_every_path_is_explained() -> None:
    routes = (ROOT / "src/accelshare/extender/routes.py").read_text()
    paths = set(re.findall(r'^ +"(/[a-z]+)": ', routes, re.MULTILINE))
    paths |= {f"/<prefix>/{verb}" for verb in re.findall(r'^ +"([a-z]+)": self\._', routes, re.MULTILINE)}
    paths |= {profile.http.prefix.strip("/") for profile in SHIPPED if profile.http.prefix}
    assert len(paths) > 8
    assert paths - set(_SPAN.findall(prose(DOCS / "reference" / "http.md"))) == set()


# The demo in the README.


def test_the_readme_shows_what_the_demo_prints() -> None:
    """Every line of the transcript, in its order; only ports, process numbers, times and the checkout's place may differ."""
    done = run("-m", "demo")
    assert done.returncode == 0, done.stderr
    (shown,) = [block.text for block in blocks(ROOT / "README.md") if block.language == "text"]
    printed = iter(comparable(done.stdout))
    missing = [line for line in comparable(shown) if line not in printed]
    assert any("→" in line for line in comparable(shown))
    assert missing == []


def comparable(transcript: str) -> list[str]:
    text = transcript.replace(f"{ROOT}/", "")
    for pattern, mark in ((r"127\.0\.0\.1:\d+", "ADDRESS"), (r"process \d+", "PROCESS"), (r"\d+\.\d s\b", "SECONDS")):
        text = re.sub(pattern, mark, text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]
