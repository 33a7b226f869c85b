"""The page says what ran and what was found, in both languages; outcomes survive their file."""

from pathlib import Path

from tests.trust import faults, node_faults
from tests.trust.control_plane_run import Outcome
from tests.trust.document import page
from tests.trust.history import Finding
from tests.trust.node_outcome import NodeOutcome
from tests.trust.results import keep
from tests.trust.texts import CHINESE


def run(seed: int = 7) -> Outcome:
    kinds = {"etcd: SIGKILL": 3, "extender's watches: 410": 2}
    return Outcome(seed, 2000, kinds, binds=1950, longest_wait_s=12.34, longest_wait_faults=("etcd: SIGKILL",))


def node() -> NodeOutcome:
    failed = {"c1": "UnexpectedAdmissionError: no plugin"}
    return NodeOutcome("NRI", 7, 120, ({"agent: SIGKILL": 4}), checked=300, failed_with_card=failed)


def test_both_parts_are_on_the_page() -> None:
    for language in ("en", "zh"):
        text = page(language, [run()], [node()])
        assert "| 7 | 5 | 2,000 | 1,950 |" in text
        assert "12.3 s" in text
        assert "| NRI | 7 | 4 | 120 | 300 | 1 | 0 | 0 |" in text


def test_a_wait_shows_its_faults_and_what_is_left_after_them() -> None:
    """A run that was kept before this was measured shows no number."""
    measured = run()
    measured.longest_quiet_wait_s = 4.56
    assert "| 12.3 s (during etcd: SIGKILL) | 4.6 s |" in page("en", [measured], [])
    assert "| 12.3 s (during etcd: SIGKILL) | – |" in page("en", [run()], [])


def test_a_part_that_did_not_run_is_named() -> None:
    assert "This part did not run." in page("en", [run()], [])
    assert "这一部分没有运行。" in page("zh", [], [node()])


def test_a_run_of_less_than_the_default_size_is_named() -> None:
    assert "smaller than that of `make trust`" in page("en", [run()], [])
    whole = run()
    whole.faults = {"etcd: SIGKILL": 220}
    assert "smaller" not in page("en", [whole], [])


def test_findings_are_counted() -> None:
    bad = run()
    bad.findings.append(Finding("oversold", "a card"))
    row = next(line for line in page("en", [bad], []).splitlines() if line.startswith("| 7 "))
    assert row.endswith("| 1 |")


def test_every_kind_of_fault_has_a_chinese_name() -> None:
    parts = {part for kind in (*faults.KINDS, *node_faults.KINDS) if kind not in CHINESE for part in kind.split(": ")}
    same = {"kube-scheduler", "kube-apiserver", "etcd", "extender", "agent", "kubelet", "containerd", "SIGKILL", "SIGTERM"}
    same |= {"SIGSTOP, SIGCONT", "409", "410", "429", "500"}
    assert parts - same - CHINESE.keys() == set()


def test_outcomes_of_earlier_runs_stay_in_their_file(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    bad = run(8)
    bad.findings.append(Finding("lost", "a pod", "its history"))
    keep(file, [run()], [])
    runs, nodes = keep(file, [bad], [node()])
    assert (runs, nodes) == ([run(), bad], [node()])
    assert keep(file, [], []) == (runs, nodes)
