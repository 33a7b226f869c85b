"""The real containerd reads the files that we read and write: `config dump` shows the result, and nothing is started."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from accelshare.install.errors import NotUnderstood
from accelshare.install.runtime import apply as applying
from accelshare.install.runtime.host import RuntimeHost
from accelshare.install.runtime.program import RuntimeProgram
from accelshare.runtimes.config_files import Tree
from accelshare.runtimes.containerd import NRI, layers, nri_settings
from cluster.build import binaries, missing
from cluster.versions import CONTAINERD_VERSION

pytestmark = pytest.mark.real
SECTION = f'plugins."{NRI}"'
OFF = f"[{SECTION}.default_validator]\nenable = false\n"
OWN = f"""
[{SECTION}]
  disable = true
  socket_path = "/run/own.sock"
  plugin_request_timeout = "7s"
  [{SECTION}.default_validator]
    required_plugins = ["one", "two"]
"""
# Files by name; {etc} is their directory.
LAYOUTS: dict[str, dict[str, str]] = {
    "no file at all": {},
    "an empty file": {"config.toml": ""},
    "no version": {"config.toml": "root = '/r'\n" + OWN},
    "version 2": {"config.toml": "version = 2\n" + OWN},
    "version 3": {"config.toml": "# mine\nversion = 3\n" + OWN},
    "version 4": {"config.toml": "version = 4\n" + OWN},
    "an empty list of imports": {"config.toml": "version = 3\nimports = []\n" + OFF},
    "the directory as a pattern": {"config.toml": 'version = 3\nimports = ["{etc}/conf.d/*.toml"]\n' + OWN},
    "a relative pattern": {"config.toml": 'version = 3\nimports = ["conf.d/*.toml"]\n', "conf.d/own.toml": "version = 3\n" + OWN},
    "a list over several lines": {
        "config.toml": 'version = 3\nimports = [\n  "{etc}/one.toml", # mine\n  "{etc}/none/*.toml"\n]\n',
        "one.toml": "version = 3\n" + OWN,
    },
    "files that nobody reads": {"config.toml": "version = 3\n", "conf.d/own.toml": "version = 3\n" + OWN},
    "imports of imports": {
        "config.toml": 'version = 3\nimports = ["conf.d/*.toml"]\n',
        "conf.d/own.toml": 'version = 3\nimports = ["../deep.toml"]\n',
        "deep.toml": "version = 3\n[timeouts]\n'io.containerd.timeout.task.state' = '3s'\n" + OWN.replace("disable = true", ""),
    },
}
HOPELESS: dict[str, dict[str, str]] = {
    "an import that is not there": {"config.toml": 'version = 3\nimports = ["gone.toml"]\n'},
    "plugins switched off by a last word": {
        "config.toml": 'version = 3\nimports = ["conf.d/*.toml", "last.toml"]\n',
        "last.toml": f"version = 3\n[{SECTION}]\ndisable = true\n",
    },
    "another last word": {
        "config.toml": 'version = 3\nimports = ["conf.d/*.toml", "last.toml"]\n',
        "last.toml": "version = 3\n" + OFF,
    },
}


@pytest.fixture(scope="module")
def program() -> RuntimeProgram:
    if missing(["containerd"]):
        pytest.skip("containerd is not built; `make test-real` builds it as root")
    return RuntimeProgram(binaries(["containerd"])["containerd"])


def site_with(root: Path, files: dict[str, str], program: RuntimeProgram) -> RuntimeHost:
    etc = root / "etc"
    etc.mkdir()
    for name, text in files.items():
        (etc / name).parent.mkdir(exist_ok=True)
        (etc / name).write_text(text.replace("{etc}", str(etc)))
    return RuntimeHost("containerd", etc / "config.toml", root / "backup", version=program.version(), program=program)


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def section(dump: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = dump["plugins"][NRI]
    return found


def test_its_version_is_read(program: RuntimeProgram) -> None:
    assert program.version() == CONTAINERD_VERSION.removeprefix("v")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("known", [True, False], ids=["version known", "version unknown"])
def test_every_layout_is_switched_on_and_back(tmp_path: Path, program: RuntimeProgram, layout: str, known: bool) -> None:
    """Nothing else is read in another way, our own reading agrees, and the files come back to the byte."""
    runtime_host = site_with(tmp_path, LAYOUTS[layout], program)
    if not known:
        runtime_host = RuntimeHost("containerd", runtime_host.config, runtime_host.archive_directory, program=program)
    files, before = contents(tmp_path), section(program.dump(runtime_host.config))
    assert before["default_validator"]["enable"] is False
    assert applying.apply(runtime_host) == "applied"
    after = section(program.dump(runtime_host.config))
    desired = {**before, "disable": False, "default_validator": {**before["default_validator"], "enable": True}}
    assert after == desired
    ours = nri_settings(layers(runtime_host.config, Tree()))
    assert (ours.enforced, str(ours.socket)) == (True, after["socket_path"])
    assert applying.apply(runtime_host) == "unchanged"
    assert applying.restore(runtime_host) == "restored"
    assert contents(tmp_path) == files


@pytest.mark.parametrize("layout", LAYOUTS | HOPELESS)
def test_our_reading_is_containerds(tmp_path: Path, program: RuntimeProgram, layout: str) -> None:
    runtime_host = site_with(tmp_path, (LAYOUTS | HOPELESS)[layout], program)
    theirs, ours = section(program.dump(runtime_host.config)), nri_settings(layers(runtime_host.config, Tree()))
    assert (ours.nri, ours.connections, ours.validator) == (
        not theirs["disable"],
        not theirs["disable_connections"],
        theirs["default_validator"]["enable"],
    )


@pytest.mark.parametrize("layout", HOPELESS)
def test_what_we_refuse_would_really_have_no_effect(tmp_path: Path, program: RuntimeProgram, layout: str) -> None:
    runtime_host = site_with(tmp_path, HOPELESS[layout], program)
    with pytest.raises(NotUnderstood):
        runtime_host.propose()
    main = runtime_host.config.read_text()
    drop_in = runtime_host.config.parent / "conf.d" / "zz-accelshare.toml"
    drop_in.parent.mkdir(exist_ok=True)
    drop_in.write_text(f"version = 3\n[{SECTION}.default_validator]\nenable = true\n")
    if "conf.d" not in main:
        names = [*tomllib.loads(main)["imports"], "conf.d/*.toml"]
        runtime_host.config.write_text(f"version = 3\nimports = {names}\n")
    with_it = section(program.dump(runtime_host.config))
    assert with_it["disable"] or not with_it["default_validator"]["enable"]
