"""Fakes of the vendors' tools, which report the cards of `fake-cards.toml`, and the part of /sys that drivers read.

Belongs here: writing them into one directory, which the agent's pod mounts, and the chart's values that point the agent at them.
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

from cluster.local.devices import CARDS_FILE

FAKES = Path(__file__).parents[2] / "tests/fakes"


def write(directory: Path, number: int = 1) -> list[str]:
    """Everything below this directory, with the cards of this node of the cluster; the vendors that are there."""
    vendors = tomllib.loads(CARDS_FILE.read_text())
    for vendor, entry in vendors.items():
        home = directory / vendor
        home.mkdir(parents=True, exist_ok=True)
        for file in (FAKES / vendor / entry["tool"], FAKES / "tool.py"):
            shutil.copy(file, home)
        (home / entry["tool"]).chmod(0o755)
        for name, content in entry["data"].items():
            (home / name).write_text(_of_node(content, entry["identity"], number))
        for path, content in entry.get("sys", {}).items():
            file = directory / "sys/bus/pci/devices" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{content}\n")
    for tree in ("sys", "proc"):
        (directory / tree).mkdir(parents=True, exist_ok=True)
    return list(vendors)


def values(directory: Path) -> dict[str, Any]:
    """The chart's values: all vendors on, each with its fake tool."""
    vendors = tomllib.loads(CARDS_FILE.read_text())
    driver = '[driver]\nlibraries = ["/nowhere/library.so"]\ntools = ["{tool}"]\nevery_s = 2\n'
    return {
        "vendors": {vendor: {"enabled": True, "privileged": False, "hostPaths": [str(directory)]} for vendor in vendors},
        "profiles": {
            f"{vendor}.toml": f'extends = "{vendor}"\n' + driver.format(tool=directory / vendor / entry["tool"])
            for vendor, entry in vendors.items()
        },
        "agent": {"args": [f"--sys-root={directory}/sys", f"--proc-root={directory}/proc"]},
    }


def _of_node(cards: str, identity: str, number: int) -> str:
    """Cards of a further node: the part of their ids that the file names ends with the node's number."""
    return cards if number == 1 else cards.replace(identity, f"{identity[:-1]}{number}")
