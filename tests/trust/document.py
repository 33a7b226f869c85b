"""The outcomes as a page of Markdown, in English and in Chinese.

Belongs here: order and tables of docs/trust.md and docs/zh/trust.md. Never: a number that is not in the outcomes.
"""

from collections.abc import Mapping, Sequence

from tests.trust.control_plane_run import Outcome
from tests.trust.node_outcome import NodeOutcome
from tests.trust.plan import FAULTS, PODS
from tests.trust.texts import CHINESE, COMMANDS, TEXTS


def page(language: str, runs: Sequence[Outcome], nodes: Sequence[NodeOutcome]) -> str:
    texts = TEXTS[language]
    parts = [texts["head"], texts["how"], texts["rules"] + "\n", texts["rules_rows"]]
    parts += [texts["control"] + "\n", _control(language, runs) if runs else texts["none"] + "\n"]
    parts += [texts["node"] + "\n", _node(language, nodes) if nodes else texts["none"] + "\n"]
    parts += [texts["not_run"] + "\n", texts["not_run_rows"], texts["again"] + "\n", COMMANDS]
    return "\n".join(parts)


def _control(language: str, runs: Sequence[Outcome]) -> str:
    texts = TEXTS[language]
    rows = [
        [
            str(run.seed),
            str(sum(run.faults.values())),
            f"{run.pods:,}",
            f"{run.binds:,}",
            f"{run.versions:,}",
            str(run.most_bound),
            str(run.waited),
            f"{run.longest_wait_s:.1f} s{_during(language, run.longest_wait_faults)}",
            f"{run.longest_quiet_wait_s:.1f} s" if run.longest_quiet_wait_s is not None else "–",
            str(run.rebuilds),
            str(run.restarts),
            str(len(run.findings)),
        ]
        for run in runs
    ]
    kinds = _kinds(language, [(str(run.seed), run.faults) for run in runs])
    smaller = any(sum(run.faults.values()) < FAULTS or run.pods < PODS for run in runs)
    note = texts["smaller"].format(faults=FAULTS, pods=PODS) + "\n\n" if smaller else ""
    table = _table(texts["control_head"].split("|"), rows)
    return f"{note}{texts['waits']}\n{table}\n\n{texts['kinds']}\n\n{kinds}\n"


def _node(language: str, nodes: Sequence[NodeOutcome]) -> str:
    texts = TEXTS[language]
    rows = [
        [
            node.delivery,
            str(node.seed),
            str(sum(node.faults.values())),
            str(node.pods),
            str(node.checked),
            str(len(node.failed_with_card)),
            str(len(node.failed_without)),
            str(len(node.findings)),
        ]
        for node in nodes
    ]
    kinds = _kinds(language, [(f"{node.delivery}, {node.seed}", node.faults) for node in nodes])
    head = texts["node_head"].split("|")
    return f"{texts['node_words']}\n\n{_table(head, rows)}\n\n{texts['kinds']}\n\n{kinds}\n"


def _kinds(language: str, columns: Sequence[tuple[str, Mapping[str, int]]]) -> str:
    names = list(dict.fromkeys(name for _, counts in columns for name in sorted(counts)))
    rows = [[_name(language, name), *(str(counts.get(name, 0)) for _, counts in columns)] for name in sorted(names)]
    return _table([TEXTS[language]["kind"], *(title for title, _ in columns)], rows)


def _name(language: str, kind: str) -> str:
    if language == "en":
        return kind
    return CHINESE.get(kind) or "：".join(CHINESE.get(part, part) for part in kind.split(": "))


def _during(language: str, kinds: Sequence[str]) -> str:
    if not kinds:
        return ""
    return f" ({TEXTS[language]['during']} {', '.join(_name(language, kind) for kind in kinds)})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
