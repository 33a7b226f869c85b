"""gpushare's sources are checked before they are built, and two lines of them are changed for one row."""

from pathlib import Path

import pytest

from bench.gpushare import CLIENT, LEAST_LOG, MODULE, Gpushare, cause, check_checkout, environment, patch
from bench.results import GPUSHARE, OF_GPUSHARE
from cluster.errors import BuildError


def checkout(directory: Path, *, module: str = MODULE) -> Path:
    (directory / "cmd").mkdir(parents=True)
    (directory / "go.mod").write_text(f"module {module}\n\ngo 1.19\n")
    (directory / "go.sum").write_text("")
    (directory / "cmd/main.go").write_text(f"func init() {{\n\tlogLevel = 50\n\t{LEAST_LOG}\t{CLIENT}\n}}\n")
    return directory


def test_a_checkout_is_known_by_its_module(tmp_path: Path) -> None:
    check_checkout(checkout(tmp_path / "a"))
    with pytest.raises(ValueError, match=r"module example\.org/b"):
        check_checkout(checkout(tmp_path / "b", module="example.org/b"))
    with pytest.raises(ValueError, match=r"c/go\.mod cannot be read"):
        check_checkout(tmp_path / "c")


def test_another_content_is_another_origin(tmp_path: Path) -> None:
    """So it is built again, and the page names it."""
    first, second = checkout(tmp_path / "a"), checkout(tmp_path / "b")
    assert Gpushare(first).origin == Gpushare(second).origin
    (second / "cmd/main.go").write_text("package main\n")
    assert Gpushare(first).origin != Gpushare(second).origin
    assert MODULE in Gpushare().origin


def test_limit_and_log_are_patched_out(tmp_path: Path) -> None:
    main = checkout(tmp_path / "a") / "cmd/main.go"
    patch(main)
    lines = [line.strip() for line in main.read_text().splitlines()]
    assert lines[lines.index(CLIENT) - 1] == "restConfig.QPS = -1"
    assert "logLevel = 0" in lines


def test_sources_in_which_the_line_is_not_found_are_refused(tmp_path: Path) -> None:
    main = tmp_path / "main.go"
    main.write_text("package main\n")
    with pytest.raises(BuildError, match=r"main\.go does not have"):
        patch(main)


@pytest.mark.parametrize("variant", OF_GPUSHARE)
def test_it_is_told_its_port_and_the_cluster(variant: str) -> None:
    variables = environment(variant, Path("/somewhere/kubeconfig"), 4711)
    assert (variables["PORT"], variables["KUBECONFIG"]) == ("4711", "/somewhere/kubeconfig")
    assert (variables["LOG_LEVEL"] == "debug") == (variant == GPUSHARE)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            "m@c0b6141: invalid version: reading https://registry.example/m/@v/c0b6141.info: 403 Forbidden\n\tnot here",
            "403 Forbidden",
        ),
        ("m@c0b6141: Get https://registry.example/m: dial tcp: lookup registry.example: no such host", "no such host"),
        ("no reason", "no reason"),
    ],
)
def test_the_page_gives_the_cause_without_the_address_of_a_registry(error: str, words: str) -> None:
    assert cause(error) == words
