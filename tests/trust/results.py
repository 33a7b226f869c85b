"""Keeps outcomes in a file, so that parts that ran at different times are on one page.

Belongs here: writing and reading them. Never: what they mean.
"""

from pathlib import Path
from typing import Any

import msgspec

from tests.trust.control_plane_run import Outcome
from tests.trust.node_outcome import NodeOutcome


def keep(file: Path, runs: list[Outcome], nodes: list[NodeOutcome]) -> tuple[list[Outcome], list[NodeOutcome]]:
    """Add these to the file; returns all that are in it then."""
    known: dict[str, list[Any]] = msgspec.json.decode(file.read_bytes()) if file.exists() else {"runs": [], "nodes": []}
    all_runs = [*(msgspec.convert(run, Outcome) for run in known["runs"]), *runs]
    all_nodes = [*(msgspec.convert(node, NodeOutcome) for node in known["nodes"]), *nodes]
    file.write_bytes(msgspec.json.format(msgspec.json.encode({"runs": all_runs, "nodes": all_nodes})))
    return all_runs, all_nodes
