"""Kubernetes quantities as whole numbers.

Belongs here: Kubernetes' grammar of quantities: `4`, `"4"`, `4k`, `4Ki`, `4e3`, `1500m`.
"""

from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Final

_FACTORS: Final = {
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(["", "k", "M", "G", "T", "P", "E"])},
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"], start=1)},
    "m": Decimal("0.001"),
    "u": Decimal("0.000001"),
    "n": Decimal("0.000000001"),
}
LARGEST: Final = 2**63 - 1


def whole_number(value: object) -> int | None:
    """The quantity if it is a whole number that fits 63 bits, else None."""
    exact = _exact(value)
    if exact is None or not 0 <= exact <= LARGEST or exact != exact.to_integral_value():
        return None
    return int(exact)


def thousandths(value: object) -> int:
    """The quantity in thousandths, rounded up, 0 if it cannot be read: for comparing CPU and memory, never for the ledger."""
    exact = _exact(value)
    if exact is None or not 0 <= exact <= LARGEST:
        return 0
    return int((exact * 1000).to_integral_value(ROUND_CEILING))


def _exact(value: object) -> Decimal | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if not isinstance(value, str | float) or len(str(value)) > 64:
        return None
    text = str(value).strip()
    suffix = text.lstrip("+-.0123456789")
    number = text[: len(text) - len(suffix)]
    if suffix[:1] in ("e", "E") and suffix[1:].lstrip("+-").isdigit():
        number, suffix = text, ""
        if len(text.lower().partition("e")[2]) > 4:
            return None
    try:
        exact = Decimal(number)
        return exact * _FACTORS[suffix] if exact.is_finite() else None
    except (InvalidOperation, KeyError):
        return None
