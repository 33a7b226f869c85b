"""The kernel's configuration: what must be in it, and when it is built again."""

from pathlib import Path

import pytest

from cluster.vm import kernel


def test_an_option_that_the_kernel_dropped_is_named() -> None:
    wanted = '# why\nCONFIG_A=y\nCONFIG_B="x"\nCONFIG_C=y\n# CONFIG_D is not set\n'
    assert kernel.missing_options(wanted, 'CONFIG_A=y\nCONFIG_B="x"\n# CONFIG_C is not set\nCONFIG_D=y\n') == ["CONFIG_C=y"]
    assert kernel.missing_options(wanted, 'CONFIG_C=y\nCONFIG_B="x"\nCONFIG_A=y\n') == []


def test_the_fragment_has_the_device_memory_controller_and_no_option_twice() -> None:
    lines = [line for line in kernel.CONFIG.read_text().splitlines() if "CONFIG_" in line]
    names = [line.removeprefix("# ").partition("=")[0].partition(" ")[0] for line in lines]
    assert "CONFIG_CGROUP_DMEM=y" in lines
    assert sorted({name for name in names if names.count(name) > 1}) == []


@pytest.mark.parametrize("changed", ["kernel.config", "fakevram.c"])
def test_a_changed_input_is_another_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    (tmp_path / "module").mkdir()
    files = {"kernel.config": tmp_path / "kernel.config", "fakevram.c": tmp_path / "module/fakevram.c"}
    for file in files.values():
        file.write_text("a")
    monkeypatch.setattr(kernel, "CONFIG", files["kernel.config"])
    monkeypatch.setattr(kernel, "MODULE", tmp_path / "module")
    before = kernel.identity()
    assert kernel.identity() == before
    files[changed].write_text("b")
    assert kernel.identity() != before
