"""Whether a runtime refuses containers while the agent is not connected."""

import os
import shutil
import time
from pathlib import Path

import pytest

from accelshare.runtimes.validator_status import Files, ValidatorState, ValidatorStatus, validator_status

ON = '[plugins."io.containerd.nri.v1.nri".default_validator]\nenable = true\n'
CRIO_ON = "[crio.nri.default_validator]\nnri_enable_default_validator = true\n"


class Host:
    """Files and a socket, each of which may be made later than the other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = Files(root / "config.toml", root / "crio.conf")
        self.socket = root / "nri.sock"

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def start(self) -> None:
        """The runtime makes its socket anew, later than all that is there."""
        newest = max((path.stat().st_ctime for path in self.root.rglob("*")), default=0.0)
        later(self.socket, newest)

    def status(self, name: str = "containerd", version: str | None = "v2.4.2") -> ValidatorStatus:
        return validator_status(name, version, files=self.files, socket=self.socket)


def later(path: Path, than: float) -> None:
    """Clocks of file systems are coarse; a file is written until it is newer."""
    deadline = time.monotonic() + 60.0
    while not path.exists() or path.stat().st_ctime <= than:
        path.write_bytes(path.read_bytes() if path.exists() else b"")
        assert time.monotonic() < deadline


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_validator_that_was_on_at_the_start(host: Host) -> None:
    where = host.write("config.toml", ON)
    host.start()
    assert host.status() == ValidatorStatus(ValidatorState.ENABLED, f"the validator is on in {where}")
    assert host.status().enabled


def test_a_file_that_has_changed_since_the_start(host: Host) -> None:
    host.write("config.toml", f'imports = ["{host.root}/conf.d/*"]\n' + ON)
    other = host.write("conf.d/other.toml", "")
    host.start()
    assert host.status().enabled
    later(other, host.socket.stat().st_ctime)
    validator = host.status()
    assert validator.state is ValidatorState.NOT_RESTARTED
    assert not validator.enabled
    assert f"{other} changed after containerd was started: restart containerd" in validator.why


def test_an_old_file_that_was_moved_here_since_the_start(host: Host) -> None:
    """Its time of writing is old, and yet the runtime has not read it."""
    waiting = host.write("waiting.toml", ON)
    os.utime(waiting, (1.0, 1.0))
    host.start()
    started = host.socket.stat().st_ctime
    while True:
        shutil.move(waiting, host.files.containerd_config)
        if host.files.containerd_config.stat().st_ctime > started:
            break
        shutil.move(host.files.containerd_config, waiting)
    assert host.files.containerd_config.stat().st_mtime == 1.0
    assert host.status().state is ValidatorState.NOT_RESTARTED


def test_a_runtime_that_has_no_socket(host: Host) -> None:
    host.write("config.toml", ON)
    validator = host.status()
    assert validator.state is ValidatorState.NOT_RESTARTED
    assert str(host.socket) in validator.why


def test_the_socket_is_where_the_files_say(host: Host) -> None:
    host.write("config.toml", f'[plugins."io.containerd.nri.v1.nri"]\nsocket_path = "{host.socket}"\n' + ON)
    host.start()
    assert validator_status("containerd", "2.4.2", files=host.files).enabled


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the validator is off"),
        (ON.replace("true", "false"), "the validator is off in "),
        ('[plugins."io.containerd.nri.v1.nri"]\ndisable = true\n' + ON, "NRI is disabled in "),
        ('disabled_plugins = ["io.containerd.nri.v1.nri"]\n' + ON, "NRI is disabled by disabled_plugins in "),
    ],
)
def test_a_validator_that_is_off(host: Host, text: str, words: str) -> None:
    host.write("config.toml", text)
    host.start()
    validator = host.status()
    assert validator.state is ValidatorState.OFF
    assert validator.why.startswith(words)


def test_no_file_is_off(host: Host) -> None:
    assert host.status().state is ValidatorState.OFF
    assert str(host.files.containerd_config) in host.status().why
    assert str(host.files.crio_config) in host.status("cri-o", "1.34.0").why


def test_a_file_that_cannot_be_read(host: Host) -> None:
    host.write("config.toml", "garbage")
    assert host.status().state is ValidatorState.UNKNOWN
    assert "config.toml cannot be read" in host.status().why


@pytest.mark.parametrize(
    ("name", "version", "since"), [("containerd", "v2.1.9", "2.2"), ("containerd", "1.7.35", "2.2"), ("cri-o", "1.33.0", "1.34")]
)
def test_a_version_without_validator(host: Host, name: str, version: str, since: str) -> None:
    host.write("config.toml", ON)
    host.write("crio.conf", CRIO_ON)
    host.start()
    validator = host.status(name, version)
    assert validator.state is ValidatorState.TOO_OLD
    assert all(fact in validator.why for fact in (name, version, since))


def test_an_unknown_version_is_believed_to_be_new(host: Host) -> None:
    host.write("config.toml", ON)
    host.start()
    assert host.status(version=None).enabled


def test_an_unknown_runtime(host: Host) -> None:
    assert host.status("other", "9.9.9").state is ValidatorState.UNKNOWN


def test_cri_o_reads_its_directory_by_name(host: Host) -> None:
    host.write("crio.conf", "[crio.nri]\nenable_nri = false\n")
    host.write("crio.conf.d/10-on", f"[crio.nri]\nenable_nri = true\n{CRIO_ON}")
    host.start()
    assert host.status("cri-o", "1.34.0").enabled
    last = host.write("crio.conf.d/20-off", CRIO_ON.replace("true", "false"))
    host.start()
    assert host.status("cri-o", "1.34.0") == ValidatorStatus(ValidatorState.OFF, f"the validator is off in {last}")


def test_cri_o_without_connections_does_not_insist(host: Host) -> None:
    host.write("crio.conf", f"[crio.nri]\nnri_disable_connections = true\n{CRIO_ON}")
    host.start()
    assert host.status("cri-o", "1.34.0").state is ValidatorState.OFF
