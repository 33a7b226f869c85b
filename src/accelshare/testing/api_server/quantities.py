"""Resource quantities: reading them and writing each amount in its one canonical form.

Belongs here: the arithmetic of `500m`, `1Gi`, `2e3`. Never: which resource may have which amount.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final

_SHAPE: Final = re.compile(r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(|[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_BINARY_SUFFIX: Final = {power: suffix for suffix, power in _BINARY.items()} | {0: ""}

MALFORMED: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact amount and its canonical text."""

    amount: Fraction
    text: str

    @property
    def is_integer(self) -> bool:
        return self.amount.denominator == 1


def parse(value: object) -> Quantity:
    """The quantity that a manifest's string or number stands for; ValueError when it stands for none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(MALFORMED)  # noqa: TRY004 – to the caller it is one and the same: not a quantity
    return _parse(str(value))


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise ValueError(MALFORMED)
    sign, digits, suffix = match.groups()
    number = Fraction(digits if not digits.endswith(".") else digits[:-1]) * (-1 if sign == "-" else 1)
    if suffix in _BINARY:
        return _canonical(number * 1024 ** _BINARY[suffix], style="binary")
    if suffix in _DECIMAL:
        return _canonical(number * Fraction(10) ** _DECIMAL[suffix], style="decimal")
    return _canonical(number * Fraction(10) ** int(suffix[1:]), style="exponent")


def _canonical(amount: Fraction, *, style: str) -> Quantity:
    amount = Fraction(ceil(amount * 1000), 1000)  # Kubernetes rounds resource lists up to a thousandth
    if amount == 0:
        return Quantity(amount, "0")
    if style == "binary" and abs(amount) >= 1024 and amount.denominator == 1:
        number, power = int(amount), 0
        while number % 1024 == 0 and power < max(_BINARY_SUFFIX):
            number, power = number // 1024, power + 1
        return Quantity(amount, f"{number}{_BINARY_SUFFIX[power]}")
    exponent = -9
    while exponent < 18 and (amount / Fraction(10) ** (exponent + 3)).denominator == 1:
        exponent += 3
    number = int(amount / Fraction(10) ** exponent)
    if style == "exponent":
        return Quantity(amount, f"{number}e{exponent}" if exponent else str(number))
    return Quantity(amount, f"{number}{_DECIMAL_SUFFIX[exponent]}")
