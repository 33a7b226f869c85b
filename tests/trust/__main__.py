"""`make trust`, `python -m tests.trust`: faults by the hundred while pods come and go, judged from outside; writes docs/trust.md.

Belongs here: argv, the order of the parts, where the pages go. Never: a fault, a rule.
"""

import argparse
import asyncio
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.trust.control_plane_run import Outcome, Say, play_plan, print_findings
from tests.trust.document import page
from tests.trust.faults import KINDS, WEIGHTS
from tests.trust.node_outcome import NodeOutcome
from tests.trust.plan import FAULTS, PODS, SHORT, SHORT_PODS, Pace, draw_plan
from tests.trust.results import keep

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = {"en": ROOT / "docs/trust.md", "zh": ROOT / "docs/zh/trust.md"}
NODE_FAULTS: Final = 24  # for each way of delivery
NODE_PODS: Final = 120


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if nothing was found; 1 with the findings; 130 if interrupted."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both signals clean up
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:6.1f} s] {line}", flush=True)

    say(f"seed {options.seed}: the same again with --seed {options.seed}")
    try:
        runs = _play_control_plane(options, say, until=began + 60 * options.soak) if options.only != "node" else []
        nodes = _play_node(options, say) if options.only != "control-plane" else []
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    clean = True
    for run in runs:
        print_findings(run, say)
        clean &= not run.findings
        counts = (
            f"{sum(run.faults.values())} faults, {run.pods} pods, {run.binds} binds, {run.longest_wait_s:.1f} s without a bind"
        )
        say(f"seed {run.seed}: {counts}, {len(run.findings)} findings, {run.took_s:.0f} s")
    for node in nodes:
        for finding in node.findings:
            say(f"FOUND {finding.rule}: {finding.text}\n{finding.history}")
        clean &= not node.findings
        say(f"{node.delivery}: {sum(node.faults.values())} faults, {node.pods} pods with a card, {len(node.findings)} findings")
    if options.results is not None:
        runs, nodes = keep(options.results, runs, nodes)
    if options.write:
        for language, file in PAGES.items():
            file.write_text(page(language, runs, nodes))
            say(f"written to {file.relative_to(ROOT)}")
    return 0 if clean else 1


def _play_control_plane(options: argparse.Namespace, say: Say, *, until: float) -> list[Outcome]:
    """One plan, or one after the other until this moment, each on a control plane of its own."""
    runs: list[Outcome] = []
    weights = {kind: weight for kind, weight in WEIGHTS.items() if not options.kind or kind in options.kind}
    if not weights:
        return runs
    while not runs or time.monotonic() < until:
        seed = options.seed + len(runs)
        pace = SHORT if options.short else Pace()
        plan = draw_plan(seed, weights, faults=options.faults, pods=options.pods, pace=pace)
        with tempfile.TemporaryDirectory(prefix="accelshare-trust-") as directory:
            runs.append(asyncio.run(play_plan(plan, Path(directory), say, options.extender_flag)))
        if runs[-1].findings:
            break
    return runs


def _play_node(options: argparse.Namespace, say: Say) -> list[NodeOutcome]:
    if sys.platform != "linux" or os.geteuid() != 0:
        say("the part on a real node was left out: it needs root on Linux")
        return []
    from tests.trust.node_run import play_both_ways

    return play_both_ways(options.seed, options.kind or (), faults=options.node_faults, pods=options.node_pods, say=say)


def _kinds() -> list[str]:
    """Of both parts."""
    from tests.trust import node_faults

    return [*KINDS, *node_faults.KINDS]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.trust", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="repeat the run of this seed; default: a new one")
    parser.add_argument("--faults", type=int, default=FAULTS, help=f"on the control plane ({FAULTS})")
    parser.add_argument("--pods", type=int, default=PODS, help=f"on the control plane ({PODS})")
    parser.add_argument("--node-faults", type=int, default=NODE_FAULTS, help=f"on the node, for each delivery ({NODE_FAULTS})")
    parser.add_argument("--node-pods", type=int, default=NODE_PODS, help=f"with a card, for each delivery ({NODE_PODS})")
    parser.add_argument("--only", choices=("control-plane", "node"), help="only this part; writes no page")
    parser.add_argument("--kind", action="append", choices=_kinds(), help="only this fault; repeatable; writes no page")
    parser.add_argument("--short", action="store_true", help="the run of tests/e2e/test_trust.py; writes no page")
    parser.add_argument(
        "--extender-flag",
        action="append",
        default=[],
        help="of both extenders, e.g. --extender-flag=--promises=8 --extender-flag=--promises-from-nodes=1; writes no page",
    )
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES", help="repeat the first part for so long")
    parser.add_argument("--write", action="store_true", help="write docs/trust.md although it is not the whole run")
    parser.add_argument("--results", type=Path, metavar="FILE", help="add the outcomes to this file; the page shows all in it")
    options = parser.parse_args(arguments)
    for name in ("faults", "pods", "node_faults", "node_pods"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name)}; it must be at least 1")
    options.write |= not (options.only or options.short or options.kind or options.extender_flag)
    if options.short:
        options.faults, options.pods, options.only = len(KINDS), SHORT_PODS, "control-plane"
    if options.seed is None:
        options.seed = secrets.randbelow(2**31)
    return options


if __name__ == "__main__":
    sys.exit(main())
