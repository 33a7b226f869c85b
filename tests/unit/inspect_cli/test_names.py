"""Which vendor a kubectl plugin shows: by its program name and the profiles."""

import os
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from accelshare.inspect_cli import plugin
from accelshare.inspect_cli.colours import coloured, paint
from accelshare.inspect_cli.command import chosen_profiles, inspect
from accelshare.inspect_cli.explain_command import explain
from accelshare.vendors.catalog import Catalog, load
from accelshare.vendors.problems import UnknownProfile

CATALOG = load()
ROOT = Path(__file__).parents[3]


def test_every_inspect_command_of_a_profile_is_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    installed = {name: target for name, target in scripts.items() if name.startswith(plugin.PREFIX)}
    wanted = {f"{plugin.PREFIX}{profile.inspect.command}" for profile in CATALOG if profile.inspect.command}
    assert installed == dict.fromkeys(sorted(wanted), f"{plugin.__name__}:main")


@pytest.mark.parametrize(
    ("vendors", "word", "names"),
    [
        ((), "gpushare", ["nvidia"]),
        ((), "xpushare", ["kunlun"]),
        ((), "gcushare", ["enflame"]),
        ((), None, []),
        (("stream", "nvidia"), None, ["stream", "nvidia"]),
        (("stream",), "gpushare", ["stream"]),
    ],
)
def test_the_selected_profiles_are_shown(vendors: tuple[str, ...], word: str | None, names: list[str]) -> None:
    assert [profile.name for profile in chosen_profiles(CATALOG, vendors, plugin=word)] == names


def test_a_word_that_no_profile_has_is_an_error() -> None:
    with pytest.raises(click.ClickException, match="no profile has the inspect command 'zpushare'; there are gcushare, gpushare"):
        chosen_profiles(CATALOG, (), plugin="zpushare")
    with pytest.raises(UnknownProfile):
        chosen_profiles(CATALOG, ("nvidea",), plugin=None)


def test_a_users_own_profile_needs_no_code(tmp_path: Path) -> None:
    (tmp_path / "acme.toml").write_text(
        'name = "acme"\ntitle = "Acme"\nnoun = "ZPU"\n[resources]\nwhole = "acme.example/zpu"\n[inspect]\ncommand = "zpushare"\n'
    )
    catalog: Catalog = load([tmp_path])
    assert [profile.name for profile in chosen_profiles(catalog, (), plugin="zpushare")] == ["acme"]


@pytest.mark.parametrize(
    ("terminal", "environ", "colours"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_only_on_a_terminal_and_only_if_wanted(terminal: bool, environ: dict[str, str], colours: bool) -> None:
    assert coloured(terminal, environ) is colours
    assert paint("x", "bad") == "\x1b[31mx\x1b[0m"
    assert os.environ is not environ


@pytest.mark.parametrize("command", [inspect, explain])
@pytest.mark.parametrize("namespace", ["命名", "a b", "a/../b", "Default"])
def test_an_invalid_namespace_is_reported(command: click.Command, namespace: str) -> None:
    """No request is sent: it could not even be written into one."""
    inventories = CliRunner().invoke(command, ["pod", "-n", namespace], env={"KUBECONFIG": "/nowhere"})
    assert inventories.exit_code == 2
    assert f"namespace {namespace!r}: it must be lower-case letters" in inventories.output


@pytest.mark.parametrize("pod", ["a/b/c", "../x", "Default/x", "a b/x"])
def test_an_invalid_namespace_before_the_name_of_a_pod_is_reported(pod: str) -> None:
    """It is part of a path, so it is checked as -n is."""
    result = CliRunner().invoke(explain, [pod], env={"KUBECONFIG": "/nowhere"})
    assert result.exit_code == 2
    assert f"namespace {pod.rpartition('/')[0]!r}: it must be lower-case letters" in result.output
