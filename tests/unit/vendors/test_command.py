"""`accelshare profile`, through the whole command line."""

import json
import os
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from accelshare.cli import accelshare
from accelshare.vendors.catalog import load
from accelshare.vendors.command import as_json, as_table, as_toml
from accelshare.vendors.profile import Profile
from accelshare.vendors.validation import parse
from tests.unit.vendors.builders import COMPLETE, SMALLEST, as_file, profile, saying, write

SHIPPED = ["amd", "ascend", "enflame", "intel", "kunlun", "mthreads", "nvidia", "stream"]


def run(*words: str | Path, env: dict[str, str | None] | None = None) -> Result:
    return CliRunner().invoke(accelshare, ["profile", *map(str, words)], env={"ACCELSHARE_PROFILES": None, **(env or {})})


@pytest.fixture
def site(tmp_path: Path) -> Path:
    write(tmp_path / "site", "acme.toml", as_file(COMPLETE))
    return tmp_path / "site"


def test_list_shows_the_shipped_profiles() -> None:
    result = run("list")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["NAME", *SHIPPED]


def test_list_shows_those_of_extra_directories(site: Path) -> None:
    assert "acme  " in run("list", "--profiles", site).stdout


def test_the_option_may_be_repeated_and_the_last_one_wins(site: Path, tmp_path: Path) -> None:
    write(tmp_path / "over", "acme.toml", 'extends = "acme"\nnoun = "QPU"\n')
    assert "acme      QPU " in run("list", "--profiles", site, "--profiles", tmp_path / "over").stdout


def test_the_environment_may_name_the_directories(site: Path, tmp_path: Path) -> None:
    """Separated as PATH is; a stray separator is not the current directory."""
    write(tmp_path / "over", "acme.toml", 'extends = "acme"\nnoun = "QPU"\n')
    both = os.pathsep.join([str(site), "", str(tmp_path / "over"), ""])
    result = run("list", env={"ACCELSHARE_PROFILES": both})
    assert result.exit_code == 0
    assert "acme      QPU " in result.stdout


def test_show_writes_every_value_in_force(site: Path) -> None:
    result = run("show", "acme", "--profiles", site)
    assert result.exit_code == 0
    shown = tomllib.loads(result.stdout)
    assert shown["annotations"] == COMPLETE["annotations"]
    assert shown["texts"]["no-card-is-empty"] == "no ZPU is empty"
    assert 'count = "acme.example/zpu-count"  # unverified' in result.stdout


def test_show_writes_json_for_tools(site: Path) -> None:
    shown = json.loads(run("show", "acme", "-o", "json", "--profiles", site).stdout)
    assert shown["unverified"] == COMPLETE["unverified"]


def test_an_override_shows_and_loses_its_mark(site: Path, tmp_path: Path) -> None:
    write(tmp_path / "over", "x.toml", 'extends = "acme"\n[resources]\ncount = "acme.example/n"\n')
    assert 'count = "acme.example/n"\n' in run("show", "acme", "--profiles", site, "--profiles", tmp_path / "over").stdout


def test_show_of_an_unknown_name_suggests_one() -> None:
    result = run("show", "nvidai")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("did you mean nvidia?\n")


def test_all_problems_of_a_broken_directory_are_reported_without_a_traceback(site: Path) -> None:
    write(site, "bad.toml", 'name = "bad"\nnoun = 1\n')
    result = run("list", "--profiles", site)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 3
    assert "Traceback" not in result.stderr


def test_check_prints_ok_for_a_valid_file(site: Path) -> None:
    result = run("check", site / "acme.toml")
    assert (result.exit_code, result.stdout) == (0, f"{site}/acme.toml: ok\n")


def test_check_reports_all_problems_of_each_file(site: Path, tmp_path: Path) -> None:
    bad = write(tmp_path, "bad.toml", 'extends = "kunlun"\nnoun = 1\n[request]\nmax_cards = 0\n')
    result = run("check", site / "acme.toml", bad, tmp_path / "nowhere.toml")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{site}/acme.toml: ok",
        f"{bad}: noun is 1; it must be one word of letters and digits, at most 16 long",
        f"{bad}: request.max_cards is 0; it must be a whole number from 1 to 1024",
        f"{tmp_path}/nowhere.toml: cannot be read: No such file or directory",
    ]


def test_check_reports_a_clash_with_a_shipped_profile(tmp_path: Path) -> None:
    thief = write(tmp_path, "thief.toml", as_file(saying("resources.whole", "nvidia.com/gpu")))
    result = run("check", thief)
    assert result.exit_code == 1
    assert "the resource of profile nvidia (nvidia.toml) already" in result.stdout


def test_check_builds_on_the_extra_directories(site: Path, tmp_path: Path) -> None:
    own = write(tmp_path, "own.toml", 'extends = "acme"\ntitle = "Ours"\n')
    assert run("check", own).exit_code == 1
    assert run("check", own, "--profiles", site).exit_code == 0


def test_check_reports_problems_of_the_extra_directories_too(site: Path, tmp_path: Path) -> None:
    write(site, "bad.toml", "name = 1")
    own = write(tmp_path, "own.toml", 'extends = "acme"\ntitle = "Ours"\n')
    result = run("check", own, "--profiles", site)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == f"{own}: ok"
    assert f"{site}/bad.toml: name is 1" in result.stdout


def test_a_file_checked_in_its_own_directory_is_reported_once(site: Path) -> None:
    bad = write(site, "bad.toml", 'extends = "acme"\nnoun = 1\n[resources]\nmemory = 1\n')
    result = run("check", bad, "--profiles", site)
    assert len(result.stdout.splitlines()) == len(set(result.stdout.splitlines()))


def test_check_requires_a_file() -> None:
    assert run("check").exit_code == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a" + ".a" * 100_000 + " = 1", "a line has more than 4096 characters"),
        ("[x]\n" + "".join(f"[{'.'.join(['x'] * depth)}]\n" for depth in range(2, 60)), "is nested more than 16 deep"),
        ("a = " + "[\n" * 50_000, "is nested too deep"),
        ("a = " + "[" * 500 + "]" * 500, "is nested"),
        ("container.env.A = " + "{A = " * 200 + "1" + "}" * 200, "is nested"),
        ("request.max_cards = " + "9" * 400, "request.max_cards is a whole number of 1329 bits; TOML's have at most 64"),
        ("request.max_cards = 0x" + "f" * 4000, "request.max_cards is a whole number of 16000 bits"),
        ("request.max_cards = " + "9" * 4090 + "\n", "cannot be read"),
        ("request.max_cards = -9223372036854775809", "request.max_cards is a whole number of 64 bits"),
        ("driver.static.pattern = '(?P<index>a{99999999999999})'", "driver.static.pattern is "),
        ('http.prefix = "/accelshare"', 'http.prefix is "/accelshare"; it must'),
        ('http.prefix = "/gpushare-scheduler"', "the url prefix of profile nvidia"),
        ("#" * 300_000, "it has more than 262144 bytes"),
        ("\n".join(f"key{number} = 1" for number in range(5000)), "has more than 4000 values"),
        ("\n".join(f"key{number} = 1" for number in range(3000)), "has 2900 more keys"),
        ('"\\u001b[2J\\nown.toml: ok" = 1', r"\x1b[2J\nown.toml: ok is no key of a profile"),
        ('title = "\\u001b[2J"', r'title is "\u001b[2J"; it must'),
    ],
    ids=range(17),
)
def test_a_file_with_extreme_values_is_reported_without_a_traceback(tmp_path: Path, text: str, says: str) -> None:
    head = 'name = "own"\nnoun = "XPU"\nresources.whole = "own.example/xpu"\n'
    file = write(tmp_path, "own.toml", f"{head}{text}\n" if "title" in text else f'{head}title = "Own"\n{text}\n')
    result = run("check", file)
    assert result.exit_code == 1, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert says in result.output
    for line in result.output.splitlines():
        assert line.startswith(str(file))
        assert line.isprintable()


EVERY = (*load(), profile(), profile(title='quotes " and \\ and 昆仑'), parse(SMALLEST, file="tiny.toml"))


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.title)
def test_toml_written_out_and_read_again_is_the_same_profile(one: Profile) -> None:
    assert parse(tomllib.loads(as_toml(one)), file="again.toml") == one


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.title)
def test_json_written_out_and_read_again_is_the_same_profile(one: Profile) -> None:
    assert parse(json.loads(as_json(one)), file="again.json") == one


def test_only_unverified_values_are_marked() -> None:
    lines = as_toml(profile()).splitlines()
    marked = [line for line in lines if line.endswith("# unverified")]
    assert marked == [
        'count = "acme.example/zpu-count"  # unverified',
        "GiB = 1024  # unverified",
        'no-cards = "nothing here"  # unverified',
        'ACME_VISIBLE = "{index}"  # unverified',
    ]


def test_an_unverified_table_is_marked_at_its_header_even_if_empty() -> None:
    text = as_toml(profile(container={"env": {}}, unverified=["container.env", "title"]))
    assert "[container.env]  # unverified" in text
    assert 'title = "Acme ZPU (zpushare)"  # unverified' in text


def test_the_table_has_a_row_per_profile_and_a_dash_for_nothing() -> None:
    assert as_table([profile(), parse(SMALLEST, file="tiny.toml")]).splitlines() == [
        "NAME  NOUN  MEMORY                WHOLE             URL PREFIX           TITLE",
        "acme  ZPU   acme.example/zpu-mem  acme.example/zpu  /zpushare-scheduler  Acme ZPU (zpushare)",
        "tiny  TPU   -                     tiny.example/tpu  -                    Tiny",
    ]
