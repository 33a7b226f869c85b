"""What is planned for every layout of the runtimes' files."""

import tomllib
from pathlib import Path

import pytest

from accelshare.install.errors import NotUnderstood
from accelshare.runtimes.validator_status import ValidatorState
from tests.unit.install.runtime.builders import MAIN, NRI, Host

ENABLE = {"default_validator": {"enable": True}}


def planned(host: Host) -> dict[str, str]:
    return {
        str(Path(file.path).relative_to(host.root / "etc")): file.content.decode() for file in host.runtime_host().propose().files
    }


def ours(text: str) -> object:
    return tomllib.loads(text)["plugins"]["io.containerd.nri.v1.nri"]


def test_a_drop_in_and_the_line_that_names_it(tmp_path: Path) -> None:
    host = Host(tmp_path)
    plan = planned(host)
    pattern = host.drop_in.with_name("zz-accelshare*.toml")
    assert list(plan) == ["conf.d/zz-accelshare.toml", "config.toml"]  # in this order
    assert plan["config.toml"] == MAIN.replace("version = 3\n", f'version = 3\nimports = ["{pattern}"]\n')
    assert ours(plan["conf.d/zz-accelshare.toml"]) == ENABLE


def test_no_file_at_all(tmp_path: Path) -> None:
    plan = planned(Host(tmp_path, None))
    assert tomllib.loads(plan["config.toml"])["version"] == tomllib.loads(plan["conf.d/zz-accelshare.toml"])["version"] == 3


@pytest.mark.parametrize(("version", "line"), [("version = 2\n", 2), ("version = 4\n", 4), ("", None)])
def test_the_drop_in_is_of_the_main_files_version(tmp_path: Path, version: str, line: int | None) -> None:
    plan = planned(Host(tmp_path, version))
    assert tomllib.loads(plan["conf.d/zz-accelshare.toml"]).get("version") == line


@pytest.mark.parametrize("imports", ['["conf.d/*.toml"]', '[\n  "/nowhere/*.toml",\n  "{etc}/conf.d/*.toml",\n]'])
def test_a_main_file_that_reads_the_directory_is_not_touched(tmp_path: Path, imports: str) -> None:
    host = Host(tmp_path, f"imports = {imports.replace('{etc}', str(tmp_path / 'etc'))}\n")
    assert list(planned(host)) == ["conf.d/zz-accelshare.toml"]


def test_a_directory_that_is_read_already_is_preferred(tmp_path: Path) -> None:
    host = Host(tmp_path, 'imports = ["early/*.toml", "late/*.toml", "one.toml"]\n')
    (tmp_path / "etc" / "one.toml").write_text("")
    assert list(planned(host)) == ["late/zz-accelshare.toml"]


def test_a_directory_of_the_operators_choice(tmp_path: Path) -> None:
    host = Host(tmp_path, 'imports = ["conf.d/*.toml"]\n')
    plan = host.runtime_host(directory=tmp_path / "etc" / "mine").propose()
    assert [Path(file.path).name for file in plan.files] == ["zz-accelshare.toml", "config.toml"]
    assert f'"{tmp_path}/etc/mine/zz-accelshare*.toml"' in plan.files[1].content.decode()


@pytest.mark.parametrize("key", ["disable", "disable_connections"])
def test_plugins_that_are_off_are_switched_on_too(tmp_path: Path, key: str) -> None:
    host = Host(tmp_path, f"version = 3\n[{NRI}]\n{key} = true\n")
    assert ours(planned(host)["conf.d/zz-accelshare.toml"]) == {key: False, **ENABLE}


def test_where_sections_may_be_replaced_whole_the_operators_keys_are_carried(tmp_path: Path) -> None:
    """Not where they are joined: there the operator's own file must keep its say."""
    host = Host(tmp_path, MAIN + f'[{NRI}.default_validator]\nrequired_plugins = ["a"]\n')
    host.version = None
    text = planned(host)["conf.d/zz-accelshare.toml"]
    assert ours(text) == {"socket_path": "/run/own.sock", "default_validator": {"required_plugins": ["a"], "enable": True}}
    assert any("version of containerd is not known" in notice for notice in host.runtime_host().propose().notices)


def test_a_validator_that_is_on_already_needs_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path, f"[{NRI}.default_validator]\nenable = true\n")
    assert planned(host) == {}
    assert "already enabled" in host.runtime_host().propose().notices[0]
    assert host.apply() == "unchanged"
    assert host.places() == {"etc", "etc/config.toml"}


@pytest.mark.parametrize(
    ("main", "more", "words"),
    [
        ("garbage", {}, "cannot be read"),
        ('disabled_plugins = ["io.containerd.nri.v1.nri"]\n', {}, "disabled_plugins"),
        ('imports = ["gone.toml"]\n', {}, "gone.toml is imported but does not exist"),
        ("# DO NOT EDIT: made by a program\nversion = 3\n", {}, "by another program"),
        (
            'imports = ["conf.d/*.toml", "last.toml"]\n',
            {"last.toml": f"[{NRI}.default_validator]\nenable = false\n"},
            "last.toml is read after .* and overrides it",
        ),
        ('"imports" = ["/a"]\n', {"/a": None}, "list of imports|not there"),
    ],
)
def test_what_would_have_no_effect_or_be_a_guess_is_refused(
    tmp_path: Path, main: str, more: dict[str, str | None], words: str
) -> None:
    host = Host(tmp_path, main)
    for name, text in more.items():
        if text is not None:
            (host.config.parent / name).write_text(text)
    before = host.files()
    with pytest.raises(NotUnderstood, match=words):
        host.apply()
    assert host.files() == before
    assert not host.backup.exists()


def test_a_symbolic_link_is_not_replaced(tmp_path: Path) -> None:
    host = Host(tmp_path, None)
    (tmp_path / "real.toml").write_text(MAIN)
    host.config.symlink_to(tmp_path / "real.toml")
    with pytest.raises(NotUnderstood, match=r"symbolic link.*real\.toml"):
        host.plan()


def test_a_version_without_validator_is_refused(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.version = "1.7.35"
    with pytest.raises(NotUnderstood, match=r"containerd 1\.7\.35 has no validator; 2\.2"):
        host.apply()


def test_cri_o_needs_no_change_of_its_main_file(tmp_path: Path) -> None:
    host = Host(tmp_path, "[crio.nri]\nenable_nri = false\n", runtime="cri-o")
    plan = host.runtime_host().propose()
    assert [str(Path(file.path).relative_to(tmp_path)) for file in plan.files] == ["etc/crio.conf.d/zz-accelshare.conf"]
    section = {"enable_nri": True, "default_validator": {"nri_enable_default_validator": True}}
    assert tomllib.loads(plan.files[0].content.decode()) == {"crio": {"nri": section}}
    assert "CRI-O" in plan.notices[0]
    assert host.apply() == "applied"
    assert host.state() is ValidatorState.NOT_RESTARTED
    host.start()
    assert host.state() is ValidatorState.ENABLED
    assert host.restore() == "restored"
    assert host.places() == {"etc", "etc/crio.conf", "nri.sock"}


def test_cri_o_with_a_later_word_or_another_directory_is_refused(tmp_path: Path) -> None:
    host = Host(tmp_path, None, runtime="cri-o")
    with pytest.raises(NotUnderstood, match="CRI-O does not read"):
        host.runtime_host(directory=tmp_path / "elsewhere").propose()
    later = host.config.parent / "crio.conf.d" / "zzz"
    later.parent.mkdir()
    later.write_text("[crio.nri.default_validator]\nnri_enable_default_validator = false\n")
    with pytest.raises(NotUnderstood, match="zzz is read later"):
        host.plan()
