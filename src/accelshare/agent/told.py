"""Cards that people have marked ill by hand, in a ConfigMap.

Belongs here: reading the list of indexes. An empty or bad value marks nothing, and says so.
"""

from collections.abc import Mapping

import msgspec


class _ConfigMap(msgspec.Struct):
    metadata: dict[str, object]
    data: dict[str, str] | None = None


def decode(raw: msgspec.Raw) -> dict[str, str]:
    return msgspec.json.decode(raw, type=_ConfigMap).data or {}


def indexes(data: Mapping[str, str], key: str) -> tuple[list[int], str]:
    """The cards named, and in words what could not be read."""
    text = data.get(key, "")
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        return [], ""
    if not all(word.isascii() and word.isdigit() and len(word) <= 4 for word in words):
        return [], f"{key} is {text[:64]!r}; it must be card indexes joined by commas, so no card is marked"
    return [int(word) for word in words], ""
