"""Finds the pod of a process by its cgroup, which only root of the host can change.

Belongs here: the spellings of kubelet's and the runtimes' cgroups, and reading /proc. Never: which pod has which card.

/proc/PID/cgroup is relative to the reader's own cgroup namespace. From the agent's container another pod is therefore
`/../../kubepods-burstable-podUID.slice/cri-containerd-ID.scope`, without the part that both have in common.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

# A file has one line for each hierarchy, at most 14 with cgroup v1; a path has at most 4096 characters.
MOST_BYTES: Final = 64 * 1024

_UID: Final = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"
# kubepods-burstable-podUID.slice (systemd) or podUID (cgroupfs). A static pod's uid at kubelet is a hash.
_POD: Final = re.compile(rf"(?:[a-z0-9-]*kubepods(?:-burstable|-besteffort)?-)?pod({_UID})(\.slice)?")
# What is above pods: kubepods.slice, kubepods-burstable.slice, kubepods, burstable, and kubelet's --cgroup-root.
_UNIT: Final = re.compile(r".*\.(?:service|scope)")
_CONTAINER: Final = re.compile(r"(?:[a-z0-9]+-)*([0-9a-f]{64})(?:\.scope)?")
# PROC_PID_INIT_INO: the number of the host's own pid namespace.
_HOST_PID_NAMESPACE: Final = "pid:[4026531836]"


def pod_uid(cgroup: str) -> str | None:
    """The uid of the pod, from the content of /proc/PID/cgroup; None if the process is in no container of a pod."""
    uids = {uid for line in cgroup.splitlines() if (uid := _uid_in(line.partition(":")[2].partition(":")[2])) is not None}
    return uids.pop() if len(uids) == 1 else None


def _uid_in(path: str) -> str | None:
    """The outermost pod of a path counts: a container may be allowed to make groups below its own, with any names."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for place, part in enumerate(parts):
        found = _POD.fullmatch(part)
        if found is not None:
            # Processes of the pod itself are its containers'; a group that is not one belongs to nobody.
            inside = parts[place + 1 : place + 2]
            in_container = bool(inside) and _CONTAINER.fullmatch(inside[0]) is not None
            return found[1].replace("_", "-") if in_container else None
        if _UNIT.fullmatch(part):  # of a user or a daemon, who may make groups of any name below
            return None
    return None


def uids_of(pids: Iterable[int], proc: Path) -> Mapping[int, str]:
    """The uids of the pods of these processes; processes that have ended or are in no pod are left out."""
    found: dict[int, str] = {}
    for pid in pids:
        uid = pod_uid(_read(proc / str(pid) / "cgroup"))
        if uid is not None:
            found[pid] = uid
    return found


def sees_host_processes(proc: Path) -> bool:
    """Whether the processes here are the host's. In a pid namespace of its own, process 1 is in the same container as we are."""
    try:
        namespace = str((proc / "self/ns/pid").readlink())
    except OSError:
        namespace = _HOST_PID_NAMESPACE  # a tree without ourselves is the host's, mounted here
    return namespace == _HOST_PID_NAMESPACE or _read(proc / "1/cgroup") != _read(proc / "self/cgroup")


def _read(path: Path) -> str:
    try:
        with path.open("rb", buffering=0) as file:
            return file.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:  # it has ended meanwhile
        return ""
