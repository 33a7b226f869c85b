"""Adding an import to the operator's file changes no other byte."""

import tomllib

import pytest

from accelshare.install.errors import NotUnderstood
from accelshare.install.runtime.toml_text import table, with_import


def added(before: str) -> str:
    return with_import("config.toml", before.encode(), "/x").decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'imports = ["/x"]\n'),
        ("version = 3", 'imports = ["/x"]\nversion = 3'),
        ("version = 3\n[a]\n", 'version = 3\nimports = ["/x"]\n[a]\n'),
        ("# c\n version=2 # two\nroot = 'r'\n", "# c\n version=2 # two\nimports = [\"/x\"]\nroot = 'r'\n"),
        ("root = 'r'\r\n[a]\r\nb = 1\r\n", "imports = [\"/x\"]\r\nroot = 'r'\r\n[a]\r\nb = 1\r\n"),
        ("[a]\nversion = 3\n", 'imports = ["/x"]\n[a]\nversion = 3\n'),
        ('a = """\nversion = 3\n"""\n', 'imports = ["/x"]\na = """\nversion = 3\n"""\n'),
    ],
)
def test_a_file_without_imports(before: str, after: str) -> None:
    """After the version if that stands above all tables, else on top."""
    assert added(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("imports = []\n", 'imports = ["/x"]\n'),
        ('imports=["/a"]\n', 'imports=["/a", "/x"]\n'),
        ("imports = ['/a', ] # c\n[b]\n", "imports = ['/a', \"/x\" ] # c\n[b]\n"),
        ('imports = [\n    "/a", # one\n    "/b"  # two\n]\n', 'imports = [\n    "/a", # one\n    "/b",  # two\n    "/x",\n]\n'),
        ('imports = [\n\t"/a",\n]\nz = 1\n', 'imports = [\n\t"/a",\n\t"/x",\n]\nz = 1\n'),
        ('imports = [\r\n "/a"\r\n]\r\n', 'imports = [\r\n "/a",\r\n "/x",\r\n]\r\n'),
        ("imports = [\n]\n", 'imports = [\n  "/x",\n]\n'),
        ('imports = [ "/]", # ]\n  "/b" ]\n', 'imports = [ "/]", # ]\n  "/b", "/x" ]\n'),
        ("imports = [ # none yet\n]\n", 'imports = [ # none yet\n  "/x",\n]\n'),
    ],
)
def test_a_list_of_imports_grows_by_one(before: str, after: str) -> None:
    assert added(before) == after


@pytest.mark.parametrize(
    "before",
    [
        '"imports" = ["/a"]\n',
        'a = """\nimports = [\n]"""\n"imports" = []\n',
        'imports = ["/a" , ["/b"]]\n',
    ],
)
def test_a_layout_that_is_not_understood_is_left_alone(before: str) -> None:
    with pytest.raises(NotUnderstood, match=r'add "/x" to its list of imports'):
        added(before)


def test_tables_are_read_back_as_they_were() -> None:
    content = {"a": True, "b": [1, 2.5], "c": 'q"\\\u007f\té', "d": {"e": {"f.g": "h"}}, "i": {}}
    text = "\n".join(table(("plugins", "x.y"), content))
    assert tomllib.loads(text) == {"plugins": {"x.y": content}}


def test_a_value_that_cannot_be_carried_over_is_named() -> None:
    value = tomllib.loads("a = 2020-01-01")
    with pytest.raises(NotUnderstood, match="datetime"):
        table(("x",), value)
