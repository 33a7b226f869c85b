"""The namespaces of a node: private directories cover every path that another Kubernetes could use.

The first node has a mount namespace and shares all else with the machine. A further node has mount, pid, network and cgroup
namespaces, and its own /dev, /proc and view of the cgroups. A process that only sleeps holds them open. Mounts made inside are
never seen outside, and all end with the last process inside.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from cluster.local import cgroups
from cluster.local.journal import Journal, Kind
from cluster.local.layout import Layout

KINDS_OF_FIRST: Final = ("mnt",)
KINDS: Final = ("cgroup", "net", "pid_for_children", "mnt")  # below /proc/PID/ns, in the order in which one enters them

# What programs expect of any machine. A further node has these of the machine, and its own cards.
_DEVICES: Final = ("fd", "full", "fuse", "kmsg", "null", "random", "stderr", "stdin", "stdout", "tty", "urandom", "zero")


def make_directories(layout: Layout, journal: Journal) -> None:
    """The private directories, and outside the empty ones that they are mounted on."""
    for path in layout.covered:
        layout.covering(path).mkdir(parents=True)
        missing = [directory for directory in (Path(path), *Path(path).parents) if not directory.exists()]
        for directory in reversed(missing):
            journal.write(Kind.DIRECTORY, str(directory))
            directory.mkdir()
    if not layout.first:
        layout.covering("/dev").mkdir()


def holder(layout: Layout, ready: Path) -> list[str]:
    """The command whose namespaces they are; makes the file once every path is covered.

    First a slave of the machine's mounts, so that nothing gets out, then shared among containers, which kubelet needs.
    """
    covers = [_bind(layout.covering(path), path) for path in layout.covered]
    made = ["mount --make-rshared /", f": > {shlex.quote(str(ready))}"]
    if layout.first:
        script = " && ".join([*covers, *made, "exec sleep infinity"])
        return ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script]
    own = [*cgroups.join(layout, cgroups.DAEMONS), *cgroups.mount_again(), "mount -t proc proc /proc", *_devices(layout)]
    own += ["ip link set lo up", "echo 1 > /proc/sys/net/ipv4/ip_forward"]
    # The first process of a pid namespace inherits orphans; with this signal ignored the kernel reaps them.
    script = " && ".join([*own, *covers, *made, "exec env --ignore-signal=CHLD sleep infinity"])
    kinds = ["--mount", "--pid", "--net", "--cgroup", "--fork", "--kill-child"]
    inner = shlex.join(["unshare", *kinds, "--propagation", "slave", "sh", "-c", script])
    # The cgroup that a process is in becomes the root of the namespace that it makes.
    return ["sh", "-c", " && ".join([*cgroups.join(layout), f"exec {inner}"])]


def _devices(layout: Layout) -> list[str]:
    """In memory, because a file system on disk may be mounted without devices."""
    dev = shlex.quote(str(layout.covering("/dev")))
    present = shlex.join([str(path) for name in _DEVICES if (path := Path("/dev") / name).exists()])
    return [
        f"mount -t tmpfs -o mode=755 tmpfs {dev}",
        f"cp -a {present} {dev}",
        f"mkdir {dev}/pts {dev}/shm",
        f"mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts {dev}/pts",
        f"ln -s pts/ptmx {dev}/ptmx",
        f"mount --rbind {dev} /dev",
    ]


def _bind(source: Path, target: str) -> str:
    return f"mount --bind {shlex.quote(str(source))} {shlex.quote(target)}"
