"""Dashboard and alerts use only metrics that a running extender and agent serve; promtool accepts them."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from cluster.debian_programs import PROMTOOL, ensure
from cluster.errors import ClusterError
from tests.contract import test_docs as docs
from tests.contract.agent.fake_node import MEMORY, FakeNode, open_fake_node
from tests.contract.chart.rendered_objects import objects, one, preset, setting
from tests.contract.fake_cluster import FakeCluster
from tests.fakes.build import build
from tests.fakes.hardware import Hardware

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/chart/accelshare/files/accelshare.rules.yaml"
RECORDING_RULES = ROOT / "deploy/chart/accelshare/files/accelshare.recording.yaml"
RULE_TESTS = ROOT / "tests/contract/alerts/rules.test.yaml"
DASHBOARD = ROOT / "deploy/chart/accelshare/files/accelshare.json"
# What Prometheus itself puts on a series.
OF_PROMETHEUS = {"instance", "job", "le", "__name__"}
SUFFIXES = ("_bucket", "_sum", "_count")

Served = dict[str, set[str]]  # series → names of its labels


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from group["rules"]


def recording_rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RECORDING_RULES.read_text())["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def expressions() -> Iterator[tuple[str, str, str]]:
    """(location, expression, text with labels) of every rule, panel and variable."""
    for rule in rules():
        yield rule["alert"], rule["expr"], " ".join(rule["annotations"].values())
    for rule in recording_rules():
        yield rule["record"], rule["expr"], ""
    for panel in panels():
        for target in panel.get("targets", ()):
            yield f"panel {panel['title']}", target["expr"], target["legendFormat"]
    for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert asked is not None, variable["query"]
            yield f"variable {variable['name']}", asked[1], f"{{{{{asked[2]}}}}}"


def metrics_of(expression: str) -> set[str]:
    """The served series in it; a name with colons is that of a recording rule."""
    return set(re.findall(r"(?<![:\w])accelshare_\w+", expression))


def labels_of(expression: str, words: str) -> set[str]:
    """The labels that an expression selects, groups or joins by, and those that its text shows."""
    named = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression))
    for group in re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", expression):
        named |= {label.strip() for label in group.split(",")}
    return named | set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", words))


def served(*pages: str) -> Served:
    found: Served = {}
    for page in pages:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


async def page_of_extender(fake_cluster: FakeCluster) -> str:
    """An extender that has decided, refused and bound, so that every series exists."""
    fake_cluster.node("n1", 16, 16)
    await fake_cluster.start_extender()
    pod = fake_cluster.pod("a", 4)
    assert (await fake_cluster.filter(pod, "n1"))["NodeNames"] == ["n1"]
    assert (await fake_cluster.filter(fake_cluster.pod("b", 400), "n1"))["NodeNames"] in ([], None)
    assert await fake_cluster.bind(pod, "n1") == ""

    async def complete() -> str:
        text = (await fake_cluster.call("GET", "/metrics"))[1]
        return text if "accelshare_watch_lag_seconds_count 1.0" in text and 'pod="a"' in text else ""

    return str(await fake_cluster.until(complete, "the bind was seen on the watch"))


def add_card(fake_node: FakeNode, fakes: Path, *, used_mib: int) -> list[str]:
    """A card of 16 GiB whose driver reports its memory in use. Returns the flags of an agent that samples it."""
    hardware = Hardware.copied(build("nvidia", fakes / "built"), fakes)
    uuid = "GPU-00000001-1111-2222-3333-0123456789ab"
    hardware.has({"uuid": uuid, "memory_mib": 16384, "minor": 0, "used_mib": used_mib})
    profile = (fake_node.profiles / "acme.toml").read_text().partition("[driver]")[0]
    driver = f'[driver]\nname = "nvidia"\nevery_s = 0.1\nlibraries = ["{hardware.path("libnvidia-ml.so.1")}"]\n'
    (fake_node.profiles / "acme.toml").write_text(profile + driver)
    fake_node.cards(1)
    (fakes / "proc").mkdir()
    return ["--delivery=device-plugin", "--usage", "--usage-every=0.1", f"--proc-root={fakes / 'proc'}"]


async def page_of_agent(fake_node: FakeNode, fakes: Path) -> str:
    """An agent with a card that reports its memory in use, and a pod that it has served."""
    flags = add_card(fake_node, fakes, used_mib=512)
    async with fake_node.kubelet():
        await fake_node.start_agent(*flags)
        fake_node.pod("a", {MEMORY: 4})
        fake_node.bind("a", 0, units=4, id=False)
        await fake_node.settled("a")

        async def complete() -> str:
            text = (await fake_node.page("/metrics")).partition("\r\n\r\n")[2]
            return (
                text
                if "accelshare_card_used_bytes{" in text
                and "accelshare_pod_used_bytes{" in text
                and "accelshare_bound_to_allocated_seconds_count 1.0" in text
                else ""
            )

        return str(await fake_node.until(complete, "the agent has looked at its card and served the pod"))


async def test_every_series_and_label_of_dashboard_and_alerts_is_served(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "fake_node").mkdir()
    (tmp_path / "fakes").mkdir()
    async with open_fake_node(tmp_path / "fake_node") as fake_node:
        found = served(await page_of_extender(fake_cluster), await page_of_agent(fake_node, tmp_path / "fakes"))
    wrong = []
    for where, expression, words in expressions():
        names = metrics_of(expression)
        wrong += [f"{where}: nobody serves {name}" for name in sorted(names - found.keys())]
        recorded = {label for name in re.findall(r"(\w+):accelshare_", expression) for label in name.split("_")}
        known = OF_PROMETHEUS.union(recorded, *(found.get(name, set()) for name in names))
        wrong += [
            f"{where}: no series of {expression} has a label {label}" for label in sorted(labels_of(expression, words) - known)
        ]
    assert wrong == []


async def test_memory_in_use_is_served_if_the_driver_reports_it(tmp_path: Path) -> None:
    (tmp_path / "fake_node").mkdir()
    (tmp_path / "fakes").mkdir()
    async with open_fake_node(tmp_path / "fake_node") as fake_node:
        page = await page_of_agent(fake_node, tmp_path / "fakes")
    where = '{card="0",node="n1",vendor="acme"}'
    assert f"accelshare_card_used_bytes{where} 5.36870912e+08" in page
    assert f"accelshare_card_memory_bytes{where} 1.7179869184e+10" in page
    assert f"accelshare_agent_card_healthy{where} 1.0" in page


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    assert len({panel["id"] for panel in panels()}) == len(panels())
    for panel in panels():
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert x < 24
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]


# Prometheus' own tool.


@pytest.fixture(scope="module")
def promtool() -> Path:
    try:
        return ensure(PROMTOOL, print)
    except ClusterError as error:
        pytest.skip(f"no promtool: {error}")


def run(promtool: Path, *words: str | Path) -> str:
    done = subprocess.run([promtool, *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules(promtool: Path) -> None:
    assert f"{len(list(rules()))} rules found" in run(promtool, "check", "rules", RULES)
    assert f"{len(recording_rules())} rules found" in run(promtool, "check", "rules", RECORDING_RULES)


def test_promtool_accepts_the_rules_that_the_chart_installs(promtool: Path, tmp_path: Path) -> None:
    """The chart reads the same two files, and changes nothing in them."""
    installed = one(objects(*preset("gpushare"), *setting(metrics__prometheusRule=True)), "PrometheusRule")["spec"]
    assert [rule for group in installed["groups"] for rule in group["rules"]] == [*rules(), *recording_rules()]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(installed))
    run(promtool, "check", "rules", tmp_path / "rules.yaml")


PAGES = ["docs/how-to/monitoring.md", "docs/zh/how-to/monitoring.md"]
COST_PAGES = ["docs/how-to/cost.md", "docs/zh/how-to/cost.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_and_queries_of_the_page_work(promtool: Path, tmp_path: Path, page: str) -> None:
    """Also its scrape configuration and its PromQL, by promtool's own parsers."""
    commands = [words[len("promtool ") :].split() for words in docs.commands(ROOT / page) if words.startswith("promtool ")]
    assert commands
    for words in commands:
        run(promtool, *words)
    (configuration,) = [block.text for block in docs.blocks(ROOT / page) if block.text.startswith("scrape_configs:")]
    content = yaml.safe_load(configuration)
    for job in content["scrape_configs"]:
        job.pop("kubernetes_sd_configs", None)  # Debian builds it without; all else can be checked
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(content))
    run(promtool, "check", "config", tmp_path / "prometheus.yml")
    questions = [block.text for block in docs.blocks(ROOT / page) if block.language == "text"]
    records = [{"record": f"question:{number}", "expr": text} for number, text in enumerate(questions)]
    (tmp_path / "questions.yaml").write_text(yaml.safe_dump({"groups": [{"name": "questions", "rules": records}]}))
    assert f"{len(questions)} rules found" in run(promtool, "check", "rules", tmp_path / "questions.yaml")


@pytest.mark.parametrize("page", COST_PAGES)
def test_the_rules_and_queries_of_costs_are_valid(promtool: Path, tmp_path: Path, page: str) -> None:
    (rule_file,) = [block.text for block in docs.blocks(ROOT / page) if block.text.startswith("groups:")]
    (tmp_path / "prices.yaml").write_text(rule_file)
    run(promtool, "check", "rules", tmp_path / "prices.yaml")
    series = {rule["record"] for rule in recording_rules()}
    assert {cells[0].strip("`") for cells in docs.rows((ROOT / page).read_text()) if ":accelshare_" in cells[0]} == series


def test_every_alert_fires_when_it_should_and_not_when_all_is_well(promtool: Path, tmp_path: Path) -> None:
    tests = tmp_path / "rules.test.yaml"
    tests.write_text(RULE_TESTS.read_text().replace("RULES", str(RULES)))
    assert "SUCCESS" in run(promtool, "test", "rules", tests)


def test_every_alert_has_a_test_that_it_fires_and_one_that_it_does_not() -> None:
    healthy, *others = yaml.safe_load(RULE_TESTS.read_text())["tests"]
    alerts = {rule["alert"] for rule in rules()}
    assert {test["alertname"] for test in healthy["alert_rule_test"]} == alerts
    text = json.dumps(others)
    assert [alert for alert in sorted(alerts) if alert not in text] == []


def test_promtool_parses_every_expression_of_the_dashboard(promtool: Path, tmp_path: Path) -> None:
    """Grafana replaces the variables; the parser accepts any value."""
    records = [
        {
            "record": f"panel:{number}",
            "expr": re.sub(r"\$__rate_interval", "5m", expression)
            .replace("$vendor", "x")
            .replace("$node", "y")
            .replace("$namespace", "z"),
        }
        for number, (where, expression, _) in enumerate(expressions())
        if where.startswith("panel")
    ]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": records}]}))
    assert f"{len(records)} rules found" in run(promtool, "check", "rules", file)


@pytest.mark.parametrize("page", ["docs/how-to/runbooks.md", "docs/zh/how-to/runbooks.md"])
def test_every_alert_has_a_runbook_that_its_annotation_points_to(page: str) -> None:
    """One section for each alert, in the order of the rules, with something to look at and something to do."""
    alerts = [rule["alert"] for rule in rules()]
    sections = docs.sections(ROOT / page)
    assert [title for title in sections if title.startswith("Accelshare")] == alerts
    assert [alert for alert in alerts if sections[alert].count("\n- **") != 2] == []
    for rule in rules():
        file, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert (file, anchor in docs.anchors(ROOT / file)) == ("docs/how-to/runbooks.md", True)
        assert anchor == rule["alert"].lower()
