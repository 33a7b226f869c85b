"""`accelshare runtime-config`, through the whole command line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from accelshare.cli import accelshare
from tests.unit.install.runtime.builders import MAIN, NRI, Host


class Shell:
    """A host to run commands on."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.program = host.root / "containerd"
        self.answers("echo containerd some.place/containerd v2.4.2 abc")

    def answers(self, script: str) -> None:
        """Replace the program by this script, which must print a configuration if one is to be read."""
        self.program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        self.program.chmod(0o755)

    def run(self, command: str, *words: str) -> Result:
        places = [
            f"--config={self.host.config}",
            f"--backup-directory={self.host.backup}",
            f"--nri-socket={self.host.root / 'nri.sock'}",
        ]
        known = (
            [] if any(word.startswith(("--runtime", "--containerd-binary")) for word in words) else ["--runtime-version=2.4.2"]
        )
        return CliRunner().invoke(accelshare, ["runtime-config", command, *places, *known, *words], env={"PATH": "/nowhere"})


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(Host(tmp_path))


def test_plan_shows_the_difference_and_writes_nothing(shell: Shell) -> None:
    before = shell.host.files()
    result = shell.run("plan")
    assert result.exit_code == 0
    assert "+++ " in result.stdout
    assert "+enable = true" in result.stdout
    assert '+imports = ["' in result.stdout
    assert shell.host.files() == before


def test_apply_status_and_restore(shell: Shell) -> None:
    assert shell.run("status").exit_code == 3
    before = shell.host.files()
    applied = shell.run("apply")
    assert applied.exit_code == 0, applied.output
    assert "+enable = true" in applied.stdout
    assert "it takes effect after: systemctl restart containerd" in applied.stderr
    assert shell.run("status").exit_code == 4
    shell.host.start()
    enabled = shell.run("status")
    assert (enabled.exit_code, enabled.stdout.splitlines()[0]) == (0, "enabled")
    assert "written by accelshare" in enabled.stdout
    again = shell.run("apply")
    assert (again.stdout, "unchanged" in again.stderr, "systemctl" in again.stderr) == ("", True, False)
    (shell.host.root / "nri.sock").unlink()
    restored = shell.run("restore")
    assert (restored.exit_code, "it takes effect after" in restored.stderr) == (0, True)
    assert shell.host.files() == before


def test_status_for_programs(shell: Shell) -> None:
    status = json.loads(shell.run("status", "--output=json").stdout)
    assert status["state"] == "off"
    assert status["version"] == "2.4.2"
    assert status["says"] == ["accelshare wrote nothing here"]


@pytest.mark.parametrize(("version", "code"), [("1.7.35", 5), ("2.2.0", 3)])
def test_status_of_versions(shell: Shell, version: str, code: int) -> None:
    assert shell.run("status", f"--runtime-version={version}").exit_code == code


def test_status_of_what_ended_in_the_middle_or_cannot_be_read(shell: Shell) -> None:
    shell.run("apply")
    record = shell.host.backup / "record.json"
    record.write_text(record.read_text().replace('"applied"', '"applying"'))
    assert shell.run("status").exit_code == 6
    shell.run("apply")
    shell.host.config.write_text("garbage")
    assert shell.run("status").exit_code == 7


def test_a_version_that_nobody_knows_is_told(shell: Shell) -> None:
    assert "version of containerd is not known" in shell.run("status", "--runtime=containerd").stdout


def test_the_program_is_asked_for_its_version(shell: Shell) -> None:
    shell.answers("echo containerd some.place/containerd v1.7.35 abc")
    result = shell.run("status", f"--containerd-binary={shell.program}")
    assert result.exit_code == 5
    assert "containerd 1.7.35 has no validator" in result.stdout
    shell.answers("echo something else")
    assert "give --runtime-version" in shell.run("status", f"--containerd-binary={shell.program}").stderr
    shell.answers("exit 1")
    assert shell.run("status", f"--containerd-binary={shell.program}").exit_code == 1


def test_a_program_that_is_not_there_is_named(shell: Shell) -> None:
    result = shell.run("plan", "--containerd-binary=/nowhere/containerd")
    assert result.exit_code == 1
    assert "/nowhere/containerd" in result.stderr


def dumping(config: Path, after: str) -> str:
    """A containerd that reads the files in its own manner once our line is in the main file."""
    on = f"[{NRI}.default_validator]\\nenable = true\\n"
    return (
        'case "$1" in --version) echo containerd x v2.4.2;; *) '
        f"if grep -q accelshare {config}; then printf '{after.replace('ON', on)}'; else printf 'a = 1\\n'; fi;; esac"
    )


def test_what_containerd_reads_as_it_was_meant_stays(shell: Shell) -> None:
    shell.answers(dumping(shell.host.config, "imports = []\\na = 1\\nON"))
    result = shell.run("apply", f"--containerd-binary={shell.program}")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("after", "words"), [("a = 1\\n", "does not find the validator enabled"), ("a = 2\\nON", "also changes a")]
)
def test_what_containerd_reads_in_another_way_is_put_back(shell: Shell, after: str, words: str) -> None:
    shell.answers(dumping(shell.host.config, after))
    before = shell.host.files()
    result = shell.run("apply", f"--containerd-binary={shell.program}")
    assert result.exit_code == 1
    assert words in result.stderr
    assert "the former files are restored" in result.stderr
    assert shell.host.files() == before
    assert not shell.host.backup.exists()


def test_restart_is_run_and_waited_for(shell: Shell) -> None:
    """The host's own command makes the socket anew; running it twice is not needed."""
    command = shell.host.root / "restart"
    command.write_text(f'#!/bin/sh\n/bin/sleep 0.1\n: > "{shell.host.root / "nri.sock"}"\n')
    command.chmod(0o755)
    result = shell.run("apply", "--restart", f"--restart-command={command}")
    assert result.exit_code == 0, result.output
    assert "enabled: the validator is on" in result.stderr
    command.write_text("#!/bin/sh\nexit 1\n")
    assert shell.run("apply", "--restart", f"--restart-command={command}").exit_code == 0


def test_a_restart_that_fails_or_changes_nothing_is_told(shell: Shell) -> None:
    failed = shell.run("apply", "--restart", "--restart-command=/bin/sh -c 'echo no >&2; exit 3'")
    assert failed.exit_code == 1
    assert "ended with 3: no" in failed.stderr
    missing = shell.run("apply", "--restart", "--restart-command=/nowhere/restart")
    assert "failed" in missing.stderr
    idle = shell.run("apply", "--restart", "--restart-command=/bin/true", "--wait-s=0")
    assert idle.exit_code == 1
    assert "nri.sock" in idle.stderr


def test_restore_restarts_if_wished(shell: Shell) -> None:
    shell.run("apply")
    mark = shell.host.root / "restarted"
    result = shell.run("restore", "--restart", f"--restart-command=/bin/touch {mark}")
    assert result.exit_code == 0, result.output
    assert mark.exists()
    assert shell.host.config.read_text() == MAIN


def test_a_refusal_is_words_without_a_traceback(shell: Shell) -> None:
    shell.host.config.write_text('disabled_plugins = ["io.containerd.nri.v1.nri"]\n')
    result = shell.run("apply")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("command", "closed"), [("plan", "config"), ("apply", "config"), ("restore", "record"), ("status", "record")]
)
def test_a_file_that_cannot_be_read_is_told_without_a_traceback(shell: Shell, command: str, closed: str) -> None:
    """As an ordinary user meets it, whom our record is closed to and the runtime's files may be."""
    shell.host.config.unlink()
    place = shell.host.config if closed == "config" else shell.host.backup / "record.json"
    place.mkdir(parents=True)
    result = shell.run(command)
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stderr) == (1, f"Error: {place}: Is a directory\n")


@pytest.mark.parametrize("command", ['systemctl restart "containerd', " "])
def test_a_restart_command_that_is_none_is_refused_before_anything_is_written(shell: Shell, command: str) -> None:
    before = shell.host.files()
    for action in ("apply", "restore"):
        result = shell.run(action, "--restart", f"--restart-command={command}")
        assert result.exit_code == 1, result.output
        assert isinstance(result.exception, SystemExit)
        assert repr(command) in result.stderr
    assert shell.host.files() == before
