"""TOML as text: add one import to a file of the operator's, and write small tables.

Belongs here: bytes before and after. Every edit is parsed again and refused if anything but the import changed.
Never: which settings to write.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from accelshare.install.errors import NotUnderstood

_IMPORTS: Final = re.compile(r"^[ \t]*imports[ \t]*=[ \t]*\[", re.MULTILINE)
_VERSION: Final = re.compile(r"^[ \t]*version[ \t]*=[ \t]*\d+[ \t]*(#[^\n]*)?$", re.MULTILINE)
# Tokens of a list of strings; a comment ends with its line.
_IN_A_LIST: Final = re.compile(
    r"(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')|(?P<comment>#[^\n]*)|(?P<sign>[,\]])|(?P<blank>\s+)"
)


def with_import(name: str, raw: bytes, pattern: str) -> bytes:
    """The file with one more import, after those it has; every other byte is unchanged."""
    before = raw.decode()
    content = tomllib.loads(before)
    wanted = {**content, "imports": [*content.get("imports", []), pattern]}
    end = "\r\n" if "\r\n" in before else "\n"
    text = _longer_list(before, pattern, end) if "imports" in content else _new_line(before, pattern, end)
    if text is None or not _means(text, wanted):
        raise NotUnderstood(
            f"{name} has a layout that cannot be edited safely; add {_quoted(pattern)} to its list of imports, and apply again"
        )
    return text.encode()


def table(name: tuple[str, ...], content: Mapping[str, Any]) -> list[str]:
    """The lines of a table and of its sub-tables."""
    inner = {key: value for key, value in content.items() if isinstance(value, Mapping)}
    plain = [f"{_key(key)} = {_value(value)}" for key, value in content.items() if key not in inner]
    lines = [f"[{'.'.join(map(_key, name))}]", *plain] if plain or not inner else []
    for key, value in inner.items():
        lines += table((*name, key), value)
    return lines


def _new_line(text: str, pattern: str, end: str) -> str:
    """After the version, which usually comes first; else on top, before any table."""
    line = f"imports = [{_quoted(pattern)}]{end}"
    match = _VERSION.search(text)
    if match is None or not text[match.end() :].startswith(("\n", "\r\n")):
        return line + text
    at = text.index("\n", match.end()) + 1
    after_version = text[:at] + line + text[at:]
    return after_version if _means(after_version, {**tomllib.loads(text), "imports": [pattern]}) else line + text


def _longer_list(text: str, pattern: str, end: str) -> str | None:
    match = _IMPORTS.search(text)
    if match is None:
        return None
    at, last, comma = match.end(), match.end(), True  # an empty list needs no comma
    while token := _IN_A_LIST.match(text, at):
        if token["sign"] == "]":
            return _with_element(text, pattern, end, close=token.start(), last=last, comma=comma)
        if token["string"] or token["sign"]:
            last, comma = token.end(), token["sign"] is not None
        at = token.end()
    return None


def _with_element(text: str, pattern: str, end: str, *, close: int, last: int, comma: bool) -> str:
    """`last`: the end of the last element or of the comma after it; `close`: where the bracket is."""
    line_start = text.rfind("\n", 0, close) + 1
    kept = text[:last] + ("" if comma else ",")
    if text[line_start:close].strip() or line_start <= last:
        space = " " if text[last - 1] != "[" else ""
        return f"{kept}{space}{_quoted(pattern)}{text[last:]}"
    # The bracket has its own line, and so has the new element.
    before = re.search(r"[ \t]*(?=[\"'])", text[text.rfind("\n", 0, last) + 1 : last])
    indent = before[0] if before else "  "
    return f"{kept}{text[last:line_start]}{indent}{_quoted(pattern)},{end}{text[line_start:]}"


def _means(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _quoted(key)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case str():
            return _quoted(value)
        case list():
            return f"[{', '.join(map(_value, value))}]"
    raise NotUnderstood(f"{value!r} cannot be copied into the drop-in")
