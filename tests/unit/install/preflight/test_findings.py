"""Findings are printed for people and for programs, and only a problem stops an install."""

import json
from pathlib import Path

from accelshare.install.preflight.checks import chosen, findings
from accelshare.install.preflight.checks.control_plane import needed_rights
from accelshare.install.preflight.findings import Finding, Grade, as_json, as_text, ready
from accelshare.install.preflight.snapshot import Snapshot
from accelshare.vendors import catalog
from tests.unit.install.preflight.builders import node, scheduler_pod, workload

ROOT = Path(__file__).parents[4]

FINE = Finding("versions", Grade.FINE, "Kubernetes v1.36.4")
WARNING = Finding("ports", Grade.WARNING, "taken", ("free it", "or leave it"))
PROBLEM = Finding("permissions", Grade.PROBLEM, "you may not")


def test_text_has_a_line_each_what_to_do_and_a_sum() -> None:
    assert as_text([FINE, WARNING]) == (
        "fine     versions      Kubernetes v1.36.4\n"
        "warning  ports         taken\n"
        "                       → free it\n"
        "                       → or leave it\n"
        "\n"
        "ready for accelshare (1 warning)\n"
    )
    assert as_text([WARNING, WARNING]).endswith("ready for accelshare (2 warnings)\n")
    assert as_text([PROBLEM, WARNING]).endswith("not ready: solve the problems first (1 problem, 1 warning)\n")
    assert as_text([FINE]).endswith("\nready for accelshare\n")


def test_json_says_the_same() -> None:
    document = json.loads(as_json([WARNING, PROBLEM]))
    assert document["ready"] is False
    assert document["findings"][0] == {"check": "ports", "grade": "warning", "says": "taken", "do": ["free it", "or leave it"]}


def test_only_a_problem_stops_an_install() -> None:
    assert ready([FINE, WARNING])
    assert not ready([FINE, PROBLEM])


def test_the_page_shows_what_is_printed() -> None:
    """The cluster of docs/how-to/preflight.md, in both languages; a line that ends with … is cut there."""
    nodes = tuple(node(name, kubelet="v1.22.17", runtime="docker://20.10.7") for name in ("gpu-1", "gpu-2", "master"))
    snapshot = Snapshot(
        "v1.22.17",
        nodes=nodes,
        pods=(scheduler_pod("master"),),
        deployments=(workload("gpushare-schd-extender"),),
        daemon_sets=(workload("gpushare-device-plugin-ds"),),
        rights=dict.fromkeys(needed_rights("kube-system"), True),
    )
    printed = as_text(findings(chosen(), snapshot, catalog.load()))
    for page in (ROOT / "docs/how-to/preflight.md", ROOT / "docs/zh/how-to/preflight.md"):
        shown = page.read_text().partition("```text\n")[2].partition("```")[0].splitlines()
        assert len(shown) > 5
        assert [line for line in shown if line.removesuffix("…") not in printed] == []
