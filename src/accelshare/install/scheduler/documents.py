"""YAML and JSON files that keep their comments, order, quotes and indentation when a part is edited.

Belongs here: reading and writing text, and the shape of what is read. Never: what the content means.
"""

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

from accelshare.install.errors import NotUnderstood

MOST_LEVELS: Final = 100  # of brackets
# Kubernetes reads these words as booleans (YAML 1.1) unless they are quoted; ruamel (1.2) would write them without quotes.
_BOOLEANS: Final = re.compile(r"y|n|yes|no|on|off", re.IGNORECASE)


@dataclass(slots=True)
class Document:
    """One file: change `data` in place, then take `content()`."""

    data: Any
    _name: str
    _original: str
    _original_data: Any
    _aliased: list[tuple[Any, Any]]  # parts that are used in several places, and what they were
    _form: "_Form"

    def content(self) -> bytes:
        """The edited file. A file whose data did not change keeps its bytes, whatever its formatting."""
        if self._original_data == plain(self.data):
            return self._original.encode()
        if any(plain(part) != before for part, before in self._aliased):
            raise NotUnderstood(
                f"{self._name} uses the part to be edited in several places, with an anchor (&) and aliases (*), so another "
                "place would change too; write the part out in each place"
            )
        text = self._form.write(self.data)
        if plain(self._form.read(text)) != plain(self.data):
            raise NotUnderstood(f"{self._name} cannot be edited without changing its meaning; edit it by hand")
        return (text.replace("\n", "\r\n") if "\r\n" in self._original else text).encode()


def read(content: bytes, name: str) -> Document:
    """The mapping in this file. Raises NotUnderstood if there is none."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotUnderstood(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    if _levels(text) > MOST_LEVELS:  # ruamel takes seconds for a thousand
        raise NotUnderstood(f"{name} cannot be read: its brackets are nested deeper than {MOST_LEVELS} levels")
    try:
        form: _Form = _Json(text) if text.lstrip().startswith("{") and _is_json(text) else _Yaml(text)
        data = form.read(text)
    except (YAMLError, ValueError) as error:
        raise NotUnderstood(f"{name} cannot be read: {_one_line(error)}") from error
    except RecursionError:
        raise NotUnderstood(f"{name} cannot be read: it is nested too deep") from None
    if not isinstance(data, dict):
        raise NotUnderstood(f"{name} is not a mapping; it must be one Kubernetes object")
    return Document(data, name, text, plain(data), [(part, plain(part)) for part in _aliased(data)], form)


def mapping(parent: Mapping[str, Any], key: str, name: str) -> Any:
    """The mapping at this key, empty if there is none. Raises NotUnderstood if something else is there."""
    value = parent.get(key)
    if value is not None and not isinstance(value, dict):
        raise NotUnderstood(f"{name}: {key} is {plain(value)!r}; it must be a mapping")
    return {} if value is None else value


def mappings(parent: Mapping[str, Any], key: str, name: str) -> Any:
    """The list of mappings at this key, empty if there is none. Raises NotUnderstood if something else is there."""
    value = parent.get(key)
    if value is not None and not (isinstance(value, list) and all(isinstance(item, dict) for item in value)):
        raise NotUnderstood(f"{name}: {key} is {plain(value)!r}; it must be a list of mappings")
    return [] if value is None else value


def yaml_text(content: Mapping[str, Any], *, comment: str = "") -> str:
    """A new YAML document."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return head + _Yaml("").write(rich(dict(content)))


def yaml_texts(contents: Sequence[Mapping[str, Any]], *, comment: str = "") -> str:
    """Several YAML documents in one file."""
    return "---\n".join(yaml_text(content, comment="" if index else comment) for index, content in enumerate(contents))


def json_text(content: Mapping[str, Any]) -> str:
    """A new JSON document."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def rich(value: Any) -> Any:
    """The value for the round-trip writer: in its own order, in block style."""
    if isinstance(value, Mapping):
        commented = CommentedMap()
        for key, item in value.items():
            commented[key] = rich(item)
        return commented
    if isinstance(value, Sequence) and not isinstance(value, str):
        return CommentedSeq([rich(item) for item in value])
    if isinstance(value, str) and _BOOLEANS.fullmatch(value):
        return DoubleQuotedScalarString(value)
    return LiteralScalarString(value) if isinstance(value, str) and "\n" in value else value


def plain(value: Any) -> Any:
    """The value without comments and styles."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return str(value)
    return value


class _Yaml:
    """Reads and writes YAML in the style of one file."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._yaml = YAML(typ="rt", pure=True)
        self._yaml.preserve_quotes = True
        self._yaml.width = 1 << 30
        self._yaml.explicit_start = re.match(r"(?:\s*#.*\n|\s*\n)*---\s", self._text) is not None
        offset = _sequence_offset(self._text)
        self._yaml.indent(mapping=_mapping_indent(self._text), sequence=offset + 2, offset=offset)
        null = next(iter(re.findall(r":[ ]+(null|~)[ ]*$", self._text, re.MULTILINE)), "null" if not text else "")
        # A new class, because representers are registered by class.
        self._yaml.Representer = type("_Representer", (RoundTripRepresenter,), {})
        self._yaml.Representer.add_representer(
            type(None), lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", null)
        )

    def read(self, text: str) -> Any:
        documents = [document for document in self._yaml.load_all(text.replace("\r\n", "\n")) if document is not None]
        if len(documents) != 1:
            raise ValueError(f"the file has {len(documents)} documents; it must have one")
        return documents[0]

    def write(self, data: Any) -> str:
        out = io.StringIO()
        self._yaml.dump(data, out)
        text = out.getvalue()
        return text if not self._text or self._text.endswith("\n") else text.rstrip("\n")


class _Json:
    """Reads and writes JSON with the indentation of one file."""

    def __init__(self, text: str) -> None:
        match = re.search(r"\{\r?\n([ \t]+)", text)
        self._indent = match[1] if match else ("  " if "\n" in text.strip() else None)
        self._end = "\n" if text.endswith("\n") else ""

    def read(self, text: str) -> Any:
        return json.loads(text, object_pairs_hook=_without_duplicates)

    def write(self, data: Any) -> str:
        return json.dumps(data, indent=self._indent, ensure_ascii=False) + self._end


_Form = _Yaml | _Json


def _aliased(data: Any) -> list[Any]:
    """The mappings and lists that are in several places; ruamel makes one object of an anchor and its aliases."""
    seen: dict[int, int] = {}
    found: list[Any] = []
    waiting = [data]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict | list):
            continue
        seen[id(part)] = seen.get(id(part), 0) + 1
        if seen[id(part)] == 1:
            waiting += part.values() if isinstance(part, dict) else part
        elif seen[id(part)] == 2:
            found.append(part)
    return found


def _levels(text: str) -> int:
    """How deep brackets are nested. Brackets in strings count too: no file of ours comes near the limit."""
    steps = (1 if found.group() in "[{" else -1 for found in re.finditer(r"[\[\]{}]", text))
    return max(accumulate(steps), default=0)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False  # a YAML mapping may begin with a brace too
    return True


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} appears twice")
    return content


def _sequence_offset(text: str) -> int:
    """The indentation of a list's dash below its key; kubeadm writes 0."""
    match = re.search(r"^( *)(?:- )?[\w./\"'-]+:[ ]*(?:#.*)?\n(?:\s*#.*\n)*( *)- ", text, re.MULTILINE)
    return max(0, len(match[2]) - len(match[1])) if match and "- " not in match[0].split(":")[0] else 0


def _mapping_indent(text: str) -> int:
    match = re.search(r"^[\w./\"'-]+:[ ]*(?:#.*)?\n(?:\s*#.*\n)*( +)[^\s#-]", text, re.MULTILINE)
    return len(match[1]) if match else 2


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
