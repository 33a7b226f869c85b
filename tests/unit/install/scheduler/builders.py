"""A control-plane host in a directory: kubeadm's manifest, a fake kubelet, and desired configurations."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from accelshare.install.host_files.disk import Disk, sha256
from accelshare.install.scheduler import apply as applying
from accelshare.install.scheduler.desired_config import DesiredConfig, SchedulerSettings, TlsFiles
from accelshare.install.scheduler.health import HealthCheck, Patience
from accelshare.install.scheduler.host import HostState, SchedulerHost
from accelshare.install.scheduler.plan import Intent
from accelshare.install.scheduler.release import Kind, parse
from accelshare.install.scheduler.static_pod import StaticPod

HERE = Path(__file__).parent
# As `kubeadm init phase control-plane scheduler` of 1.36.4 writes it, to the byte.
KUBEADM = (HERE / "kubeadm-1.36.yaml").read_bytes()
RESOURCES = ("acme.example/zpu-mem", "acme.example/zpu")
URL = "http://127.0.0.1:12345/accelshare"
TLS = TlsFiles(
    "/etc/kubernetes/accelshare/ca.crt", "/etc/kubernetes/accelshare/client.crt", "/etc/kubernetes/accelshare/client.key"
)


def desired(
    url: str = URL, *, tls: TlsFiles | None = None, percentage: int | None = None, qps: int | None = None, **more: Any
) -> DesiredConfig:
    return DesiredConfig(url, RESOURCES, tls, settings=SchedulerSettings(percentage, qps, more.pop("burst", None)), **more)


def intent(
    config: DesiredConfig | None = None,
    version: str = "v1.36.4",
    *,
    directory: str = "/etc/kubernetes/accelshare",
    kind: Kind | None = None,
    replace: tuple[str, ...] = (),
) -> Intent:
    return Intent(config or desired(), parse(version), directory, kind, replace)


def words_of(manifest: bytes) -> list[str]:
    found: list[str] = yaml.safe_load(manifest)["spec"]["containers"][0]["command"]
    return found


def with_words(*words: str, version: str = "v1.36.4", manifest: bytes = KUBEADM) -> bytes:
    """kubeadm's manifest with more arguments, of another version if need be."""
    text = manifest.decode().replace("v1.36.4", version)
    lines = "".join(f"    - {word}\n" for word in words)
    return text.replace("    - --leader-elect=true\n", f"    - --leader-elect=true\n{lines}").encode()


def mounting(manifest: bytes, path: str) -> bytes:
    """The manifest with one more file of the host's in it."""
    text = manifest.decode()
    text = text.replace(
        "  hostNetwork: true\n", f"    - mountPath: {path}\n      name: own\n      readOnly: true\n  hostNetwork: true\n"
    )
    volume = f"  - hostPath:\n      path: {path}\n      type: File\n    name: own\n"
    return text.replace("status: {}\n", f"{volume}status: {{}}\n").encode()


@dataclass
class Kubelet:
    """Starts what the manifest says; `breaks` decides which manifests do not come up. Also the clock."""

    manifest: Path
    breaks: Callable[[bytes], bool] = lambda _content: False
    asleep: bool = False
    now: float = 0.0
    running: bytes | None = None
    words: str = ""
    unready: str | None = None
    messages: list[str] = field(default_factory=list)

    def check_health(self) -> HealthCheck:
        if not self.asleep:
            self.running = self.manifest.read_bytes() if self.manifest.exists() else None
        if self.running is None or self.breaks(self.running):
            return HealthCheck(False, "connection refused", gone=True)
        return HealthCheck(True, "ok", certificate=sha256(self.running))

    def not_ready(self) -> str | None:
        return self.unready

    def last_log_lines(self) -> str:
        return self.words

    @property
    def patience(self) -> Patience:
        def sleep(seconds: float) -> None:
            self.now += seconds

        return Patience(30.0, 1.0, clock=lambda: self.now, sleep=sleep)


class Host:
    """A control-plane node below one directory."""

    def __init__(self, root: Path, manifest: bytes = KUBEADM) -> None:
        self.root = root
        self.manifest = root / "manifests" / "kube-scheduler.yaml"
        self.directory = root / "accelshare"
        self.archive = root / "archive"
        self.manifest.parent.mkdir()
        self.manifest.write_bytes(manifest)
        self.manifest.chmod(0o600)
        self.kubelet = Kubelet(self.manifest)

    def scheduler_host(self, disk: Disk | None = None) -> SchedulerHost:
        return SchedulerHost(StaticPod(str(self.manifest)), self.directory, self.archive, disk or Disk())

    def intent(self, config: DesiredConfig | None = None, version: str = "v1.36.4", **more: Any) -> Intent:
        return intent(config, version, directory=str(self.directory), **more)

    def apply(self, config: DesiredConfig | None = None, *, disk: Disk | None = None, force: bool = False, **more: Any) -> str:
        return applying.apply(
            self.scheduler_host(disk),
            self.intent(config, **more),
            self.kubelet,
            patience=self.kubelet.patience,
            force=force,
            say=self.kubelet.messages.append,
        )

    def restore(self, *, disk: Disk | None = None, force: bool = False) -> str:
        return applying.restore(
            self.scheduler_host(disk), self.kubelet, patience=self.kubelet.patience, force=force, say=self.kubelet.messages.append
        )

    def plan(self, config: DesiredConfig | None = None, **more: Any) -> str:
        scheduler_host = self.scheduler_host()
        return scheduler_host.difference(scheduler_host.propose(self.intent(config, **more)))

    def state(self) -> HostState:
        return self.scheduler_host().status().state

    @property
    def config(self) -> Path:
        return self.directory / "scheduler-config.yaml"

    def files(self) -> dict[str, bytes]:
        """Everything there is, with every hidden file."""
        return {str(path.relative_to(self.root)): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}

    def places(self) -> set[str]:
        """Every file and directory."""
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*")}
