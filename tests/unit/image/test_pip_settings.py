"""pip inside a build reaches its index as pip on the machine does."""

from pathlib import Path

from cluster.image import pip_settings

LISTED = [
    "global.index-url='https://user:word@packages.example/simple'",
    "global.timeout='15'",
    ":env:.default-timeout='180'",
    ":env:.find-links='/opt/wheels'",
    "install.trusted-host='packages.example'",
]


def test_the_environment_beats_a_file_as_in_pip_itself() -> None:
    assert pip_settings.read([LISTED[2], LISTED[1]])["timeout"] == "180"


def test_settings_go_along_and_paths_of_this_machine_stay() -> None:
    assert pip_settings.configuration(pip_settings.read(LISTED)) == (
        "[global]\nindex-url = https://user:word@packages.example/simple\ntrusted-host = packages.example\ntimeout = 180\n"
    )


def test_an_own_ca_becomes_a_secret(tmp_path: Path) -> None:
    ca = tmp_path / "own.crt"
    ca.write_text("certificate")
    flags = pip_settings.secrets(tmp_path, {"cert": str(ca)})
    assert flags == ["--secret", f"id=pip.conf,src={tmp_path}/pip.conf", "--secret", f"id=ca.crt,src={ca}"]
    assert (tmp_path / "pip.conf").read_text() == "[global]\ncert = /run/secrets/ca.crt\n"


def test_nobody_else_reads_the_file_because_an_address_may_carry_a_password(tmp_path: Path) -> None:
    pip_settings.secrets(tmp_path, {})
    assert (tmp_path / "pip.conf").stat().st_mode & 0o077 == 0
