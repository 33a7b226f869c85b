"""One version: the package's own, repeated in every place; and its release notes are its part of the changelog."""

import shutil
from pathlib import Path

import pytest

from accelshare import __version__
from deploy import release

HAVE_IT = {
    *("src/accelshare/__init__.py", "deploy/chart/accelshare/Chart.yaml", "README.md", "README.zh.md"),
    *("docs/how-to/images.md", "docs/how-to/try-without-hardware.md", "examples/fake-cards.yaml"),
}


def test_every_place_has_the_version_of_the_package() -> None:
    found = release.versions()
    assert {file: named for file, named in found.items() if named != {__version__}} == {}
    assert {str(file) for file in found} >= HAVE_IT
    assert release.current() == __version__


def test_the_release_notes_are_this_versions_part_of_the_changelog() -> None:
    text = release.notes(__version__)
    assert text in (release.ROOT / release.CHANGELOG).read_text(encoding="utf-8")
    assert text.startswith("### ")
    assert "\n## " not in text
    with pytest.raises(release.ReleaseError, match=r"9\.9\.9"):
        release.notes("9.9.9")


def test_another_version_is_written_everywhere_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file, _ in release.places():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(release.ROOT / file, tmp_path / file)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    changed = release.set_version("12.0.3")
    assert {str(file) for file in changed} >= HAVE_IT
    assert set().union(*release.versions().values()) == {"12.0.3"}
    assert "appVersion: 12.0.3\n" in (tmp_path / "deploy/chart/accelshare/Chart.yaml").read_text()
    with pytest.raises(release.ReleaseError, match="next"):
        release.set_version("next")
