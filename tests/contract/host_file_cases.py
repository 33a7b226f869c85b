"""Hosts whose files accelshare changes, and its commands on them, for this version and for version 0.1.

Belongs here: the files of a host before accelshare, the commands, writing and reading a tree of files. Never: expectations.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOST: Final = Path("/tmp/accelshare-recorded-host")  # stands for the host's root; files in it name it
KUBEADM: Final = Path(__file__).parents[1] / "unit/install/scheduler/kubeadm-1.36.yaml"
UNIT: Final = (
    "[Unit]\nDescription=kube-scheduler\n[Service]\nExecStart=/usr/bin/kube-scheduler --kubeconfig=/etc/scheduler.conf\n"
)
LIMIT_S: Final = 120.0
Tree = dict[str, str]  # path below HOST → text


@dataclass(frozen=True, slots=True)
class HostCase:
    """`apply`: the words of one apply after the other. The other version repeats the last one."""

    command: str
    original: Mapping[str, str]
    where: Sequence[str]
    apply: Sequence[Sequence[str]]


def _scheduler(original: Mapping[str, str], *where: str, more: Sequence[str] = ()) -> HostCase:
    places = (*where, f"--directory={HOST}/accelshare", f"--backup-directory={HOST}/backup", "--wait-s=0")
    common = ("--vendor=nvidia", *more)
    urls = ("http://10.0.0.1:12345/accelshare", "http://10.0.0.2:12345/accelshare")
    return HostCase("scheduler-config", original, places, [(f"--url={url}", *common) for url in urls])


def _runtime(config: str, content: str, *where: str) -> HostCase:
    places = (f"--config={HOST}/{config}", f"--backup-directory={HOST}/backup", "--runtime-version=2.2.0", *where)
    return HostCase("runtime-config", {config: content}, places, [()])


_MANIFEST: Final = "manifests/kube-scheduler.yaml"
CASES: Final[Mapping[str, HostCase]] = {
    "static pod": _scheduler({_MANIFEST: KUBEADM.read_text()}, f"--manifest={HOST}/{_MANIFEST}"),
    "static pod with a policy": _scheduler(
        {_MANIFEST: KUBEADM.read_text().replace("v1.36.4", "v1.20.15")}, f"--manifest={HOST}/{_MANIFEST}", more=["--kind=policy"]
    ),
    "systemd unit": _scheduler(
        {"systemd/kube-scheduler.service": UNIT},
        "--target=systemd",
        f"--unit={HOST}/systemd/kube-scheduler.service",
        "--systemctl=true",
        more=["--kubernetes-version=1.36.4"],
    ),
    "containerd": _runtime("containerd/config.toml", f'version = 3\nimports = ["{HOST}/containerd/conf.d/*.toml"]\n[plugins]\n'),
    "containerd without imports": _runtime("containerd/config.toml", "# of the operator\nversion = 3\n\n[plugins]\n"),
    "CRI-O": _runtime("crio/crio.conf", "[crio]\n", "--runtime=cri-o", f"--drop-in-directory={HOST}/crio/crio.conf.d"),
}


@contextmanager
def empty_host() -> Iterator[None]:
    """HOST is empty, and nobody else's until the end of the block. It is always the same: files and hashes in records name it."""
    with HOST.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(HOST, ignore_errors=True)
        HOST.mkdir()
        try:
            yield
        finally:
            shutil.rmtree(HOST)


def write(tree: Mapping[str, str]) -> None:
    for name, text in tree.items():
        path = HOST / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(_owner(0, 0), _owner(os.getuid(), os.getgid())))
        path.chmod(0o644)


def read() -> Tree:
    """As if all files belonged to root, who is not needed here."""
    files = {str(path.relative_to(HOST)): path.read_text() for path in sorted(HOST.rglob("*")) if path.is_file()}
    return {name: text.replace(_owner(os.getuid(), os.getgid()), _owner(0, 0)) for name, text in files.items()}


def _owner(uid: int, gid: int) -> str:
    """In a record."""
    return f'"uid": {uid},\n        "gid": {gid}'


def call(program: Sequence[str], case: HostCase, verb: str, *words: str, source: Path) -> subprocess.CompletedProcess[str]:
    """One command of the version in this source directory."""
    command = [*program, "-m", "accelshare", case.command, verb, *case.where, *words]
    environment = {**os.environ, "PYTHONPATH": f"{source}:{os.environ.get('LIBRARIES', '')}"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S)
