"""The command itself: what it lists, what it loads, and how it ends when something is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from accelshare import __version__, cli


def test_help_lists_every_row_of_the_table() -> None:
    result = CliRunner().invoke(cli.accelshare, ["--help"])
    assert result.exit_code == 0
    for name, row in cli.COMMANDS.items():
        assert f"  {name}" in result.stdout
        assert row.summary in result.stdout


def test_completion_shows_the_lines_of_the_help_and_loads_no_sub_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "COMMANDS", {"do-x": cli.SubCommand("accelshare.nowhere:x", "Do x, then y.")})
    context = click.Context(cli.accelshare)
    items = cli.accelshare.shell_complete(context, "do")
    assert [(item.value, item.help) for item in items] == [("do-x", "Do x, then y.")]
    assert [item.value for item in cli.accelshare.shell_complete(context, "--v")] == ["--version"]


def test_version_is_the_packages() -> None:
    assert CliRunner().invoke(cli.accelshare, ["--version"]).stdout == f"accelshare {__version__}\n"


def test_an_unknown_sub_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(cli.accelshare, ["profiles"])
    assert result.exit_code == 2
    assert "No such command 'profiles'" in result.stderr


def test_a_row_names_a_click_command_of_that_name() -> None:
    found = cli.accelshare.get_command(click.Context(cli.accelshare), "profile")
    assert found is not None
    assert found.name == "profile"


@pytest.mark.parametrize("target", ["accelshare.nowhere.command:x", "accelshare.vendors.nowhere:x"])
def test_a_sub_command_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    monkeypatch.setattr(cli, "COMMANDS", {"x": cli.SubCommand(target, "Do x.")})
    result = CliRunner().invoke(cli.accelshare, ["x"])
    assert result.exit_code == 1
    assert result.stderr == "Error: the sub-command x is not part of this installation\n"
    assert CliRunner().invoke(cli.accelshare, ["--help"]).exit_code == 0


def test_a_library_that_is_missing_is_not_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only a missing module of ours is a smaller installation; a missing dependency is a fault to be seen."""
    (tmp_path / "needs_library.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(cli, "COMMANDS", {"x": cli.SubCommand("needs_library:x", "Do x.")})
    result = CliRunner().invoke(cli.accelshare, ["x"])
    assert isinstance(result.exception, ModuleNotFoundError)
    assert result.exception.name == "no_such_library"


def test_the_command_loads_no_sub_command_before_its_turn() -> None:
    """`accelshare --help` is quick: it waits for no web server and no API client to load."""
    script = (
        "import sys, accelshare.cli as cli\n"
        "try: cli.accelshare(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'aiohttp', 'uvicorn', 'msgspec', 'orjson', 'prometheus_client', 'yaml', 'accelshare.vendors.catalog'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["certificates", "scheduler-config", "extender"])
def test_only_who_makes_certificates_pays_for_them(command: str) -> None:
    """The library is large, and whoever only serves or plans does not need it."""
    script = (
        "import sys, accelshare.cli as cli\n"
        f"try: cli.accelshare(['{command}', '--help'])\n"
        "except SystemExit: pass\n"
        "import accelshare.install.scheduler.apply, accelshare.extender.serving\n"
        "assert 'cryptography' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_extender_without_a_dashboard_does_not_load_it() -> None:
    """Its imports take an eighth of the CPU of the extender's own, at every start."""
    script = (
        "import sys, accelshare.extender.command, accelshare.extender.serving\n"
        "assert 'accelshare.dashboard.serving' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_program_ends_with_two_and_no_traceback(tmp_path: Path) -> None:
    """The whole way, as a process: the reason on stderr, nothing on stdout."""
    words = [sys.executable, "-m", "accelshare", "profile", "list", "--profiles", str(tmp_path / "nowhere")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Error: {tmp_path}/nowhere: is no directory; it must be one with profile files (*.toml)\n"


@pytest.mark.parametrize("words", [["profile", "list"], ["profile", "show", "nvidia"]])
def test_output_that_cannot_be_written_is_no_traceback(words: list[str]) -> None:
    """A full disk behind `> file`."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "accelshare", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == "Error: the output cannot be written: No space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize(
    "words",
    [
        ["node-cleanup", "remove", "--namespace", "a/b"],
        ["node-cleanup", "remove", "--daemonset", "a/b"],
        ["certificates", "ensure", "--ca-secret", "a/b"],
        ["certificates", "status", "--namespace", "a/b"],
        ["certificates", "remove", "--ca-secret", "a/b"],
    ],
)
def test_a_name_that_no_object_can_have_is_an_error_without_a_traceback(tmp_path: Path, words: list[str]) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "x", "user": ""}}
    kubeconfig.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "current-context": "x"}))
    result = CliRunner().invoke(cli.accelshare, [*words, "--kubeconfig", str(kubeconfig)])
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, "'a/b': it must be" in result.stderr) == (1, True), result.stderr


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["doctor", "--patience"], "nan"),
        (["inspect", "--watch", "--every"], "nan"),
        (["inspect", "--idle"], "nan"),
        (["certificates", "ensure", "--ca-days"], "nan"),
        (["certificates", "ensure", "--also"], "bücher.example"),
        (["certificates", "ensure", "--also"], ""),
        (["inspect"], ""),
        (["certificates", "ensure", "--ca-days"], "4000000"),  # until after the year 9999
        (["certificates", "ensure", "--ca-days"], "inf"),
        (["scheduler-config", "restore", "--wait-s"], "nan"),
    ],
)
def test_a_value_that_no_option_can_have_is_a_usage_error(words: list[str], value: str) -> None:
    result = CliRunner().invoke(cli.accelshare, [*words, value], env={"KUBECONFIG": "/nowhere"})
    assert result.exit_code == 2, result.exception
    assert "Invalid value for" in result.stderr
    assert value in result.stderr
