"""The mount namespace of the cluster: private directories cover every path that another Kubernetes could use.

A process that only sleeps holds it open. Mounts made inside are never seen outside, and all end with the last process inside.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from cluster.local.journal import Journal, Kind
from cluster.local.layout import COVERED, Layout


def make_directories(layout: Layout, journal: Journal) -> None:
    """The private directories, and outside the empty ones that they are mounted on."""
    for path in COVERED:
        layout.covering(path).mkdir(parents=True)
        missing = [directory for directory in (Path(path), *Path(path).parents) if not directory.exists()]
        for directory in reversed(missing):
            journal.write(Kind.DIRECTORY, str(directory))
            directory.mkdir()


def holder(layout: Layout, ready: Path) -> list[str]:
    """The command whose namespace it is; makes the file once every path is covered.

    First a slave of the machine's mounts, so that nothing gets out, then shared among containers, which kubelet needs.
    """
    covers = [f"mount --bind {shlex.quote(str(layout.covering(path)))} {shlex.quote(path)}" for path in COVERED]
    script = " && ".join([*covers, "mount --make-rshared /", f": > {shlex.quote(str(ready))}", "exec sleep infinity"])
    return ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script]
