"""`make dist` packs the chart: helm reads it, and it names the source from which it was built."""

import tarfile
from pathlib import Path

import pytest
import yaml

from accelshare import __version__
from deploy import package_chart
from deploy.render import helm


@pytest.mark.parametrize(
    ("by_git", "for_people"),
    [
        ("https://example.com/team/accelshare.git", "https://example.com/team/accelshare"),
        ("https://user:secret@example.com/team/accelshare/", "https://example.com/team/accelshare"),
        ("git@example.com:team/accelshare.git", "https://example.com/team/accelshare"),
        ("ssh://git@example.com/team/accelshare", "https://example.com/team/accelshare"),
    ],
)
def test_the_source_is_named_as_people_read_it_without_credentials(by_git: str, for_people: str) -> None:
    assert package_chart.address(by_git) == for_people


@pytest.mark.parametrize(
    "text", ["", "/srv/git/accelshare", "http://example.com/a", "https://example.com/a\nicon: x", "file:///a"]
)
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(package_chart.PackageError) as raised:
        package_chart.address(text)
    assert repr(text) in str(raised.value)


def test_the_archive_has_every_file_of_the_chart_and_its_source(tmp_path: Path) -> None:
    archive = package_chart.package(tmp_path, ["https://example.com/team/accelshare"])
    with tarfile.open(archive) as packed:
        names = set(packed.getnames())
        chart = packed.extractfile("accelshare/Chart.yaml")
        assert chart is not None
        content = yaml.safe_load(chart.read())
    assert archive.read_bytes() == package_chart.package(tmp_path / "again", content["sources"]).read_bytes()
    assert names == {
        f"accelshare/{file.relative_to(package_chart.CHART)}" for file in package_chart.CHART.rglob("*") if file.is_file()
    }
    assert (content["version"], content["sources"]) == (__version__, ["https://example.com/team/accelshare"])
    with tarfile.open(package_chart.package(tmp_path / "none", [])) as packed:
        chart = packed.extractfile("accelshare/Chart.yaml")
        assert chart is not None
        assert "sources" not in yaml.safe_load(chart.read())


@pytest.mark.real
def test_helm_renders_the_archive_as_it_renders_the_directory(tmp_path: Path) -> None:
    archive = package_chart.package(tmp_path, ["https://example.com/team/accelshare"])
    words = ("template", "accelshare", "--namespace=kube-system", "--set=vendors.nvidia.enabled=true")
    first, second = (helm(*words, chart) for chart in (package_chart.CHART, archive))
    assert "kind: Deployment" in first
    assert first == second
    assert "- https://example.com/team/accelshare\n" in helm("show", "chart", archive)
