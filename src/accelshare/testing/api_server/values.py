"""The rules for single values of any object: names, labels, annotations, quantities, and the fields that only the server writes.

Belongs here: rules for all kinds alike. Never: a rule of one kind.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final

from accelshare.testing.api_server.errors import FieldError, Object, invalid, quoted, required

ANNOTATIONS_LIMIT: Final = 256 * 1024

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_KEY})?"

_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    f"alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with "
    f"an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_KEY_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_KEY}')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
    f"an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE}')"
)

_LABEL_SHAPE: Final = re.compile(_LABEL)
_SUBDOMAIN_SHAPE: Final = re.compile(_SUBDOMAIN)
_KEY_SHAPE: Final = re.compile(_KEY)
_VALUE_SHAPE: Final = re.compile(_VALUE)

# An update keeps these as they are, whatever the client sends.
_KEPT: Final = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_IMMUTABLE: Final = ("name", "namespace", "uid")


def subdomain_problem(name: str) -> str:
    """Why a name, such as a pod's or a node's, is not a DNS subdomain; empty if it is one."""
    if len(name) > 253:
        return "must be no more than 253 characters"
    return "" if _SUBDOMAIN_SHAPE.fullmatch(name) else _SUBDOMAIN_TEXT


def label_problem(name: str) -> str:
    """Why a name, such as a namespace's or a container's, is not a DNS label; empty if it is one."""
    if len(name) > 63:
        return "must be no more than 63 characters"
    if _LABEL_SHAPE.fullmatch(name):
        return ""
    return "must not contain dots" if _SUBDOMAIN_SHAPE.fullmatch(name) else _LABEL_TEXT


def metadata_problems(metadata: Object, *, name_is_label: bool) -> Iterator[FieldError]:
    """All problems of an object's name, labels and annotations."""
    name = metadata.get("name", "")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif problem := label_problem(name) if name_is_label else subdomain_problem(name):
        yield invalid("metadata.name", name, problem)
    for key, value in metadata.get("labels", {}).items():
        if problem := qualified_name_problem(key):
            yield invalid("metadata.labels", key, problem)
        if len(value) > 63:
            yield invalid("metadata.labels", value, "must be no more than 63 characters")
        if not _VALUE_SHAPE.fullmatch(value):
            yield invalid("metadata.labels", value, _VALUE_TEXT)
    annotations: dict[str, str] = metadata.get("annotations", {})
    for key in annotations:
        if problem := qualified_name_problem(key.lower()):
            yield invalid("metadata.annotations", key, problem)
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > ANNOTATIONS_LIMIT:
        text = f"Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"
        yield FieldError("metadata.annotations", text, "FieldValueTooLong")


def identity_problems(new: Object, old: Object) -> Iterator[FieldError]:
    """All changes of the fields that identify an object."""
    for field in _IMMUTABLE:
        if new.get(field) != old.get(field):
            yield FieldError(f"metadata.{field}", f"Invalid value: {quoted(str(new.get(field, '')))}: field is immutable")


def keep_server_fields(new: Object, old: Object) -> None:
    """Restore the fields that a client cannot change; a missing uid is the stored one."""
    new.setdefault("uid", old["uid"])
    for field in _KEPT:
        if field in old:
            new[field] = old[field]
        else:
            new.pop(field, None)


def qualified_name_problem(key: str) -> str:
    """Why a label's or annotation's key, or a resource's name, is invalid; empty if it is valid."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        shape = _KEY_TEXT.removeprefix("name part ")
        return f"a valid label key {shape} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
    if slash and not prefix:
        return "prefix part must be non-empty"
    if slash and (problem := subdomain_problem(prefix)):
        return f"prefix part {problem}"
    if not name:
        return "name part must be non-empty"
    if len(name) > 63:
        return "name part must be no more than 63 characters"
    return "" if _KEY_SHAPE.fullmatch(name) else _KEY_TEXT


_QUANTITY: Final = re.compile(r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(|[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_BINARY_SUFFIX: Final = {power: suffix for suffix, power in _BINARY.items()} | {0: ""}

MALFORMED: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@dataclass(frozen=True, slots=True)
class ExactQuantity:
    """An exact amount and its canonical text."""

    amount: Fraction
    text: str

    @property
    def is_integer(self) -> bool:
        return self.amount.denominator == 1


def parse_quantity(value: object) -> ExactQuantity:
    """The quantity of a manifest's string or number; ValueError if it is malformed."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(MALFORMED)  # noqa: TRY004 – to the caller it is the same error: not a quantity
    return _parse_quantity(str(value))


@lru_cache(maxsize=4096)
def _parse_quantity(text: str) -> ExactQuantity:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(MALFORMED)
    sign, digits, suffix = match.groups()
    number = Fraction(digits if not digits.endswith(".") else digits[:-1]) * (-1 if sign == "-" else 1)
    if suffix in _BINARY:
        return _canonical(number * 1024 ** _BINARY[suffix], style="binary")
    if suffix in _DECIMAL:
        return _canonical(number * Fraction(10) ** _DECIMAL[suffix], style="decimal")
    return _canonical(number * Fraction(10) ** int(suffix[1:]), style="exponent")


def _canonical(amount: Fraction, *, style: str) -> ExactQuantity:
    amount = Fraction(ceil(amount * 1000), 1000)  # Kubernetes rounds resource lists up to a thousandth
    if amount == 0:
        return ExactQuantity(amount, "0")
    if style == "binary" and abs(amount) >= 1024 and amount.denominator == 1:
        number, power = int(amount), 0
        while number % 1024 == 0 and power < max(_BINARY_SUFFIX):
            number, power = number // 1024, power + 1
        return ExactQuantity(amount, f"{number}{_BINARY_SUFFIX[power]}")
    exponent = -9
    while exponent < 18 and (amount / Fraction(10) ** (exponent + 3)).denominator == 1:
        exponent += 3
    number = int(amount / Fraction(10) ** exponent)
    if style == "exponent":
        return ExactQuantity(amount, f"{number}e{exponent}" if exponent else str(number))
    return ExactQuantity(amount, f"{number}{_DECIMAL_SUFFIX[exponent]}")
