"""Files keep what is not changed."""

import pytest
import yaml

from accelshare.install.errors import NotUnderstood
from accelshare.install.scheduler import documents

YAMLS = {
    "dashes under the key": "a:\n- b: 1 # why\n- c: 'x'\n",
    "dashes indented": 'a:\n  - b: 1\n    c:\n      - d\n  # end\ne: "f"\n',
    "four spaces": "a:\n    b:\n        c: 1\nd: null\n",
    "tilde": "a: ~\nb:\n  - 1\n",
    "flow": "a: [1, 2]\nb: {c: d}\nk: v\n",
    "long": "a: " + "x " * 200 + "x\nb: 1\n",
    "block text": "a: |\n  one\n  two\nb: >-\n  folded\n  text\n",
    "anchors": "a: &x\n  b: 1\nc: *x\n",
    "windows": "a:\r\n- b\r\n",
    "numbers": "a: 0x10\nb: 1e3\nc: 1.50\nd: 0644\ne: 1_000\n",
}


@pytest.mark.parametrize("name", YAMLS)
def test_a_new_key_leaves_every_other_line_as_it_was(name: str) -> None:
    before = YAMLS[name].encode()
    document = documents.read(before, name)
    document.data["new"] = 1
    after = document.content()
    assert after.replace(b"new: 1\r\n", b"").replace(b"new: 1\n", b"") == before


def test_unchanged_data_is_unchanged_bytes_whatever_the_formatting() -> None:
    odd = b"a:   {b : 1 ,  c: 2}   # odd\n"
    assert documents.read(odd, "odd").content() == odd


def test_json_keeps_its_indentation_and_end() -> None:
    for text in ('{\n\t"a": 1\n}', '{\n    "a": 1\n}\n', '{"a": 1}'):
        document = documents.read(text.encode(), "x")
        document.data["b"] = 2
        after = document.content().decode()
        assert after.endswith("\n") == text.endswith("\n")
        assert ("\n" in after.strip()) == ("\n" in text.strip())
        assert after.splitlines()[-1 if after.count("\n") == 0 else 1].startswith(text.splitlines()[1 if "\n" in text else 0][:2])


@pytest.mark.parametrize(
    "content", [b'{"a": 1, "a": 2}', b"a: 1\na: 2\n", b"", b"[1]", b"a: 1\n---\nb: 1\n", b"a: \x01\n", b"\xff", b"a: b: c\n"]
)
def test_what_is_not_one_mapping_is_refused(content: bytes) -> None:
    with pytest.raises(NotUnderstood, match="the file"):
        documents.read(content, "the file")


@pytest.mark.parametrize("content", [b"a: " + b"[" * 1500, b"{" * 1500, b"- " * 1500, b'{"a":' * 1500])
def test_a_file_nested_a_thousand_deep_is_refused(content: bytes) -> None:
    with pytest.raises(NotUnderstood, match=r"config\.yaml cannot be read: .*nested"):
        documents.read(content, "config.yaml")


def test_new_documents_read_back() -> None:
    content = {"b": [{"c": 1}], "a": None, "text": "one\ntwo\n"}
    text = documents.yaml_text(content, comment="first\nsecond")
    assert text.startswith("# first\n# second\nb:\n- c: 1\na: null\ntext: |\n  one\n")
    assert documents.plain(documents.read(text.encode(), "x").data) == content


def test_a_part_that_aliases_use_too_is_not_edited() -> None:
    """Another container of the pod would get the mount, too."""
    document = documents.read(b"one:\n  mounts: &m\n  - a\ntwo:\n  mounts: *m\n", "kube-scheduler.yaml")
    document.data["one"]["mounts"].append("b")
    with pytest.raises(NotUnderstood, match=r"kube-scheduler\.yaml.*alias"):
        document.content()


def test_an_edit_beside_aliases_keeps_them() -> None:
    document = documents.read(b"one: &m\n- a\ntwo: *m\nthree: {}\n", "x")
    document.data["three"]["b"] = 1
    assert document.content() == b"one: &m\n- a\ntwo: *m\nthree:\n  b: 1\n"


@pytest.mark.parametrize("word", ["y", "No", "on", "OFF", "yes", "true", "1", "null"])
def test_a_new_text_stays_a_text_for_kubernetes(word: str) -> None:
    """Kubernetes reads YAML 1.1, in which a namespace `on` without quotes is a boolean."""
    text = documents.yaml_text({"namespace": word, "names": [word]})
    assert yaml.safe_load(text) == {"namespace": word, "names": [word]}
    assert f"namespace: {word}\n" not in text
