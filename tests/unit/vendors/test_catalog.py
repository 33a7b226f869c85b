"""Reading profile files, and finding a profile by name, resource and URL."""

from pathlib import Path

import pytest

from accelshare.vendors.catalog import Catalog, load, load_usable
from accelshare.vendors.problems import ProfileError, UnknownProfile
from accelshare.vendors.validation import parse
from tests.unit.vendors.builders import COMPLETE, SMALLEST, as_file, profile, saying, write


@pytest.fixture
def catalog() -> Catalog:
    return Catalog((parse(SMALLEST, file="tiny.toml"), profile()))


def test_the_profiles_are_ordered_by_name(catalog: Catalog) -> None:
    assert [found.name for found in catalog.profiles] == [found.name for found in catalog] == ["acme", "tiny"]
    assert len(catalog) == 2


def test_a_profile_is_found_by_name(catalog: Catalog) -> None:
    assert catalog["acme"].title == "Acme ZPU (zpushare)"
    assert "acme" in catalog
    assert "acne" not in catalog


def test_an_unknown_name_suggests_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(UnknownProfile) as caught:
        catalog["acne"]
    assert str(caught.value) == 'there is no profile "acne"; known are acme, tiny; did you mean acme?'
    assert isinstance(caught.value, LookupError)


def test_a_resource_identifies_its_profile_and_the_kind_of_request(catalog: Catalog) -> None:
    assert catalog.by_resource("acme.example/zpu-mem") == (catalog["acme"], "memory")
    assert catalog.by_resource("acme.example/zpu") == (catalog["acme"], "whole")
    assert catalog.by_resource("tiny.example/tpu") == (catalog["tiny"], "whole")


def test_resources_that_pods_do_not_request_are_ignored(catalog: Catalog) -> None:
    """The count of cards is a node's fact; no pod requests it."""
    assert catalog.by_resource("acme.example/zpu-count") is None
    assert catalog.by_resource("cpu") is None


def test_a_catalog_is_a_value(catalog: Catalog) -> None:
    same = Catalog((profile(), parse(SMALLEST, file="other.toml")))
    assert catalog == same
    assert len({catalog, same}) == 1


def test_extra_directories_add_and_override(tmp_path: Path) -> None:
    shipped = load().profiles[0].name
    write(tmp_path / "one", "acme.toml", as_file(COMPLETE))
    write(tmp_path / "one", "site.toml", f'extends = "{shipped}"\ntitle = "Ours"\n')
    write(tmp_path / "two", "acme.toml", 'extends = "acme"\n[http]\nnode_port = 31000\n')
    found = load([tmp_path / "one", tmp_path / "two"])
    assert found["acme"].http.node_port == 31000
    assert found[shipped].title == "Ours"
    assert len(found) == len(load()) + 1


def test_files_that_are_no_profiles_are_left_alone(tmp_path: Path) -> None:
    """Editors and mounted ConfigMaps leave other things in a directory."""
    write(tmp_path, "README.md", "not TOML")
    write(tmp_path, ".acme.toml.swp", "not TOML")
    write(tmp_path, ".hidden.toml", "not TOML")
    write(tmp_path / "..data", "acme.toml", "not TOML")
    assert load([tmp_path]) == load()


def test_an_unreadable_file_is_reported_with_all_other_problems(tmp_path: Path) -> None:
    write(tmp_path, "a.toml", "name = \n")
    (tmp_path / "b.toml").write_bytes(b"name = '\xff'")
    (tmp_path / "c.toml").mkdir()
    write(tmp_path, "d.toml", 'name = "d"\n')
    with pytest.raises(ProfileError) as caught:
        load([tmp_path, tmp_path / "nowhere"])
    reported = str(caught.value)
    assert f"{tmp_path}/a.toml: is not TOML: " in reported
    assert f"{tmp_path}/b.toml: is not UTF-8 text: invalid start byte at byte 8" in reported
    assert f"{tmp_path}/c.toml: cannot be read: " in reported
    assert f"{tmp_path}/d.toml: title is missing" in reported
    assert f"{tmp_path}/nowhere: is no directory; it must be one with profile files (*.toml)" in reported


def test_a_clash_with_a_shipped_profile_names_both_files(tmp_path: Path) -> None:
    taken = next(found for found in load() if found.http.prefix)
    write(tmp_path, "acme.toml", as_file(saying("http.prefix", taken.http.prefix)))
    with pytest.raises(ProfileError) as caught:
        load([tmp_path])
    assert f"{tmp_path}/acme.toml: http.prefix" in str(caught.value)
    assert f"of profile {taken.name} ({taken.name}.toml) already" in str(caught.value)


def test_a_broken_profile_disables_only_itself(tmp_path: Path) -> None:
    """Nor does the shipped one of its name serve in its place."""
    write(tmp_path, "nvidia.toml", 'extends = "nvidia"\nnoun = 7\n')
    write(tmp_path, "kunlun.toml", "this is no TOML")
    write(tmp_path, "acme.toml", as_file(COMPLETE))
    usable, broken = load_usable([tmp_path])
    assert [profile.name for profile in usable] == ["acme", "amd", "ascend", "enflame", "intel", "mthreads", "stream"]
    assert sorted(broken) == ["kunlun", "nvidia"]
    assert "noun is 7" in broken["nvidia"]
    assert "is not TOML" in broken["kunlun"]


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="is no directory"):
        load_usable([tmp_path / "missing"])
