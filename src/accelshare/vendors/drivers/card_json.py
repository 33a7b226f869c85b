"""Reads cards from a tool's JSON by the paths of a profile.

Belongs here: from JSON text to cards. Pure. A value that is missing or cannot be read skips its card with the reason; nothing is
guessed. Never: running the tool (`static.py`).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from accelshare.vendors.drivers import pci
from accelshare.vendors.drivers.driver import MOST_MEMORY_MIB, HostCard, Listing, QueryFailed, SkippedDevice, excerpt, listing
from accelshare.vendors.profile import JsonRules

_MIB_PER: Final[Mapping[str, float]] = {"bytes": 2**-20, "KiB": 2**-10, "MiB": 1, "GiB": 2**10}
# Tools write MB and mean MiB: a card of 16 GiB has "16384 MB".
_UNITS: Final[Mapping[str, float]] = {"b": 2**-20, "bytes": 2**-20, "k": 2**-10, "m": 1, "g": 2**10, "t": 2**20}
_AMOUNT: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,6})?)\s*(?:(bytes|b)|([kmgt])(?:i?b)?)", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,6})?")
_LARGEST_NUMBER: Final = 1 << 31
_LONGEST_TEXT: Final = 256
MOST_CARDS: Final = 1024


def read_json(text: str, rules: JsonRules, *, memory_mib: int | None = None, model: str = "") -> Listing:
    """The cards in this JSON; `memory_mib` and `model` are of cards that do not give their own."""
    try:
        content = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise QueryFailed(f"printed no JSON ({excerpt(str(error))}); it begins with {excerpt(text)}") from error
    cards: list[HostCard] = []
    skipped: list[SkippedDevice] = []
    for place, (name, entry) in enumerate(_entries(_at(content, rules.cards), rules.cards)):
        if place == MOST_CARDS:
            raise QueryFailed(f"lists more than {MOST_CARDS} cards; no host has so many")
        try:
            cards.append(_card(entry, rules, name=name, place=place, memory_mib=memory_mib, model=model))
        except ValueError as error:
            skipped.append(SkippedDevice(None, f"the card {name[:64] or f'in place {place}'} of its JSON: {error}"))
    return listing(cards, skipped)


def _entries(found: object, path: str | None) -> Iterator[tuple[str, object]]:
    """Each card with its name in a table; in a list it has none."""
    if isinstance(found, list):
        yield from (("", entry) for entry in found)
    elif isinstance(found, dict):
        # Tables have other entries beside the cards, such as "system" beside "card0".
        yield from ((name, entry) for name, entry in found.items() if re.search("[0-9]", name) and isinstance(entry, dict))
    else:
        where = f"at {path}" if path else "in its JSON"
        raise QueryFailed(f"has no list of cards {where}, but {'nothing' if found is None else type(found).__name__}")


def _card(entry: object, rules: JsonRules, *, name: str, place: int, memory_mib: int | None, model: str) -> HostCard:
    number = re.search("[0-9]{1,9}", name)
    index = _number(entry, rules.index)
    if index is None:
        index = int(number[0]) if number else place
    address = pci.address(_text(entry, rules.pci))
    minor = _number(entry, rules.minor)
    healthy = rules.healthy is None or _text(entry, rules.healthy) == rules.healthy_value
    return HostCard(
        index=index,
        id=_text(entry, rules.id) or address or f"card-{index}",
        memory_mib=_memory(entry, rules, memory_mib),
        minor=index if minor is None else minor,
        model=_text(entry, rules.model) or model,
        pci=address,
        healthy=healthy,
        problem="" if healthy else f"{rules.healthy} is {excerpt(_text(entry, rules.healthy))}, not {rules.healthy_value!r}",
    )


def _memory(entry: object, rules: JsonRules, otherwise: int | None) -> int:
    value = _at(entry, rules.memory) if rules.memory else None
    if value is None and otherwise is not None:
        return otherwise
    if rules.memory_unit == "text":
        amount = _AMOUNT.fullmatch(value.strip()) if isinstance(value, str) else None
        if amount is None:
            raise ValueError(f'{rules.memory} is {_shown(value)}; it must be a number with its unit, as in "16384 MiB"')
        mib = float(amount[1]) * _UNITS[(amount[2] or amount[3]).lower()]
    else:
        mib = _amount(value, rules.memory) * _MIB_PER[rules.memory_unit]
    if mib > MOST_MEMORY_MIB:
        raise ValueError(f"{rules.memory} is {_shown(value)}; it must be at most {MOST_MEMORY_MIB} MiB")
    return int(mib)


def _number(entry: object, path: str | None) -> int | None:
    """A whole number; None if the profile does not name it, or the card does not have it."""
    value = _at(entry, path) if path else None
    if value is None:
        return None
    number = _amount(value, path)
    if number != int(number) or number > _LARGEST_NUMBER:
        raise ValueError(f"{path} is {_shown(value)}; it must be a whole number")
    return int(number)


def _amount(value: object, path: str | None) -> float:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63:
        raise ValueError(f"{path} is {_shown(value)}; it must be a number")
    return value


def _text(entry: object, path: str | None) -> str:
    value = _at(entry, path) if path else None
    if value is None or isinstance(value, list | dict):
        return ""
    return (value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)).strip()[
        :_LONGEST_TEXT
    ]


def _at(content: object, path: str | None) -> object:
    """What the path leads to; None if it leads nowhere."""
    for name in path.split(".") if path else ():
        if not isinstance(content, dict):
            return None
        content = content.get(name)
    return content


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)[:64]
