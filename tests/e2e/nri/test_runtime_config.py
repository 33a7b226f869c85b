"""`accelshare runtime-config` on a real containerd: before apply, after the restart, and after restore."""

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from accelshare.cli import accelshare
from cluster.build import binaries
from tests.e2e.nri.containerd_alone import IMAGE, ContainerdAlone
from tests.e2e.nri.cri import Cri, CriError

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="a real container runtime needs root on Linux"
)
REQUIRED = {"required-plugins.noderesource.dev": '["accelshare"]'}


class ClusterAdmin:
    """Runs the command beside a runtime that has no systemd."""

    def __init__(self, containerd: ContainerdAlone, backup: Path) -> None:
        self.containerd = containerd
        self.places = [
            f"--config={containerd.directory / 'config.toml'}",
            f"--backup-directory={backup}",
            f"--containerd-binary={binaries(['containerd'])['containerd']}",
        ]

    def run(self, command: str) -> Result:
        return CliRunner().invoke(accelshare, ["runtime-config", command, *self.places])

    def restart(self) -> None:
        self.containerd.kill()
        self.containerd.start()

    @property
    def cri(self) -> Cri:
        assert self.containerd.cri is not None
        return self.containerd.cri


def test_a_pod_that_requires_the_plugin_is_refused_after_apply_and_restart(tmp_path: Path) -> None:
    """The runtime's main file says that the validator is off, and has settings of its own, which must stay in force."""
    with ContainerdAlone() as containerd:
        admin = ClusterAdmin(containerd, tmp_path / "backup")
        original = (containerd.directory / "config.toml").read_bytes()
        pod = admin.cri.run_pod("careful", cgroup=containerd.cgroup, annotations=REQUIRED)
        admin.cri.create(pod, "bare", image=IMAGE)  # the hole
        assert admin.run("status").exit_code == 3

        applied = admin.run("apply")
        assert applied.exit_code == 0, applied.output
        assert admin.run("status").exit_code == 4
        admin.cri.create(pod, "still-bare", image=IMAGE)

        admin.restart()
        assert admin.run("status").exit_code == 0
        with pytest.raises(CriError, match='required plugin "accelshare" not present'):
            admin.cri.create(pod, "refused", image=IMAGE)
        other = admin.cri.run_pod("careless", cgroup=containerd.cgroup)
        admin.cri.start(admin.cri.create(other, "main", image=IMAGE))  # who requires nothing is not touched

        restored = admin.run("restore")
        assert restored.exit_code == 0, restored.output
        assert (containerd.directory / "config.toml").read_bytes() == original
        admin.restart()
        assert admin.run("status").exit_code == 3
        admin.cri.create(pod, "bare-again", image=IMAGE)
