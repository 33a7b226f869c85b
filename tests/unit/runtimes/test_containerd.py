"""How containerd combines its configuration files. tests/contract/install/runtime gives them to the real containerd."""

from pathlib import Path

import pytest

from accelshare.runtimes.config_files import NriSettings, Tree, UnreadableConfigError
from accelshare.runtimes.containerd import layers, nri_settings, section

ON = '[plugins."io.containerd.nri.v1.nri".default_validator]\nenable = true\n'
OFF = ON.replace("true", "false")


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root / "config.toml"


def read(root: Path, files: dict[str, str]) -> NriSettings:
    return nri_settings(layers(write(root, files), Tree()))


def names(root: Path, found: tuple[Path, ...]) -> list[str]:
    return [str(path.relative_to(root)) for path in found]


def test_the_main_file_alone(tmp_path: Path) -> None:
    found = read(tmp_path, {"config.toml": ON, "conf.d/a.toml": OFF})
    assert found.enforced
    assert found.files == (tmp_path / "config.toml",)
    assert found.socket == Path("/var/run/nri/nri.sock")


def test_no_file_says_nothing(tmp_path: Path) -> None:
    found = nri_settings(layers(tmp_path / "config.toml", Tree()))
    assert (found.enforced, found.files) == (False, ())


def test_imports_are_read_by_pattern_and_name_and_theirs_last(tmp_path: Path) -> None:
    """Relative ones are beside the file that names them, hidden ones count, nothing is read twice."""
    found = read(
        tmp_path,
        {
            "config.toml": f'imports = ["conf.d/*.toml", "{tmp_path}/one.toml", "conf.d/b.toml"]\n',
            "conf.d/b.toml": "",
            "conf.d/a.toml": 'imports = ["../late.toml", "../config.toml"]\n',
            "conf.d/.hidden.toml": "",
            "conf.d/not.txt": "this is no TOML",
            "one.toml": OFF,
            "late.toml": ON,
        },
    )
    wanted = ["config.toml", "conf.d/.hidden.toml", "conf.d/a.toml", "conf.d/b.toml", "one.toml", "late.toml"]
    assert names(tmp_path, found.files) == wanted
    assert (found.validator, found.validator_in) == (True, tmp_path / "late.toml")


def test_reading_ends_at_an_import_that_is_not_there(tmp_path: Path) -> None:
    config = write(tmp_path, {"config.toml": 'imports = ["conf.d/*.toml", "gone.toml", "on.toml"]\n', "on.toml": ON})
    read_ = layers(config, Tree())
    assert read_.stopped_at == tmp_path / "gone.toml"
    assert not nri_settings(read_).validator


def test_sections_are_joined_key_by_key(tmp_path: Path) -> None:
    config = write(
        tmp_path,
        {
            "config.toml": 'imports = ["a.toml"]\n[plugins."io.containerd.nri.v1.nri"]\nsocket_path = "/s"\ndisable = true\n'
            + OFF,
            "a.toml": '[plugins."io.containerd.nri.v1.nri"]\ndisable = false\n' + ON,
        },
    )
    read_ = layers(config, Tree())
    assert section(read_.layers) == {"socket_path": "/s", "disable": False, "default_validator": {"enable": True}}
    assert nri_settings(read_).enforced
    assert nri_settings(read_).socket == Path("/s")


@pytest.mark.parametrize("key", ["disable", "disable_connections"])
def test_a_validator_without_plugins_does_not_insist(tmp_path: Path, key: str) -> None:
    found = read(tmp_path, {"config.toml": f'[plugins."io.containerd.nri.v1.nri"]\n{key} = true\n' + ON})
    assert found.validator
    assert not found.enforced


def test_a_disabled_plugin_interface_is_off_for_good(tmp_path: Path) -> None:
    found = read(tmp_path, {"config.toml": 'disabled_plugins = ["io.containerd.nri.v1.nri"]\n' + ON})
    assert (found.nri, found.disabled_in) == (False, tmp_path / "config.toml")


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    for raw in (b"garbage", b'a = "\xff"', b"a = " + b"[" * 2000, b"a = " + b"1" * 5000):
        (tmp_path / "config.toml").write_bytes(raw)
        with pytest.raises(UnreadableConfigError, match=r"config\.toml cannot be read"):
            layers(tmp_path / "config.toml", Tree())


def test_planned_files_are_read_as_if_they_were_there(tmp_path: Path) -> None:
    config = write(tmp_path, {"config.toml": 'imports = ["conf.d/*.toml"]\n', "conf.d/a.toml": OFF})
    planned = Tree({tmp_path / "conf.d" / "b.toml": ON.encode()})
    assert nri_settings(layers(config, planned)).enforced
    hidden = Tree({tmp_path / "conf.d" / "a.toml": None})
    assert layers(config, hidden).paths == (config,)
