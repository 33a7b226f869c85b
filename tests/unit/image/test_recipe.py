"""The name of an image, and which files decide its content."""

from pathlib import Path

import pytest

from bench.node.fake_node import MALLOC
from cluster.errors import ClusterError
from cluster.image.recipe import _FILES, Recipe, recipe

ROOT = Path(__file__).parents[3]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small source tree with all that the Dockerfile copies."""
    for name in _FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    package = tmp_path / "src" / "accelshare"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "7.8.9"\n')
    return tmp_path


def made(source: Path, **environment: str) -> Recipe:
    return recipe(source, environment)


def test_the_tag_is_the_version_and_no_registry_is_named(source: Path) -> None:
    assert made(source).reference == "accelshare:7.8.9"


def test_the_same_source_has_the_same_digest_and_any_change_another(source: Path) -> None:
    first = made(source).digest()
    assert made(source).digest() == first
    (source / "src/accelshare/__pycache__").mkdir()
    (source / "src/accelshare/__pycache__/x.pyc").write_text("compiled")
    assert made(source).digest() == first
    assert made(source).digest("another base") != first
    assert made(source, SOURCE_DATE_EPOCH="1700000000").digest() != first
    for name in (*_FILES, "src/accelshare/new.py"):
        before = made(source).digest()
        (source / name).write_text("changed")
        assert made(source).digest() != before, name


def test_a_time_that_is_none_is_refused(source: Path) -> None:
    with pytest.raises(ClusterError, match="SOURCE_DATE_EPOCH is 'yesterday'; it must be a number"):
        made(source, SOURCE_DATE_EPOCH="yesterday")


def test_a_copy_is_the_same_recipe(source: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    copy = made(source).copied(tmp_path_factory.mktemp("copy"))
    assert (copy.root != source, copy.digest()) == (True, made(source).digest())


def test_the_digest_covers_all_that_the_dockerfile_copies() -> None:
    """A COPY of something else would change the image behind the cache's back, and .dockerignore would hide it."""
    lines = [line.split() for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("COPY ")]
    copied = {word for words in lines if not words[1].startswith("--from=") for word in words[1:-1]}
    assert copied | {"Dockerfile", ".dockerignore"} == {*_FILES, "src"}
    shown = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert shown == copied


def test_the_benchmark_sets_the_memory_options_of_the_image() -> None:
    recipe = (ROOT / "Dockerfile").read_text()
    assert all(f"{name}={value}" in recipe for name, value in MALLOC.items())
