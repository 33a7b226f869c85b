"""Label and field selectors: which objects a list or a watch is about.

Belongs here: reading both languages, and matching. Never: which fields a kind offers, which is in its row of the table of
resources.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from accelshare.testing.api_server.errors import bad_request, quoted

Fields = Callable[[Mapping[str, Any]], Mapping[str, str]]

_KEY: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_LABEL_TERM: Final = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<gone>{_KEY})"
    rf"|(?P<key>{_KEY})\s*(?:(?P<op>==|=|!=|>|<)\s*(?P<value>[-A-Za-z0-9_.]*)|\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?)\s*"
)
# A comma inside parentheses belongs to a set, not to the list of terms.
_COMMA: Final = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True, slots=True)
class Term:
    """One condition on the value of one key."""

    key: str
    holds: Callable[[str | None], bool]


@dataclass(frozen=True, slots=True)
class Selector:
    """The label and field selector of a request: all terms must hold."""

    labels: tuple[Term, ...] = ()
    fields: tuple[Term, ...] = ()

    def matches(self, item: Mapping[str, Any], fields: Fields) -> bool:
        if self.labels:
            labels = item["metadata"].get("labels", {})
            if not all(term.holds(labels.get(term.key)) for term in self.labels):
                return False
        if not self.fields:
            return True
        known = fields(item)
        return all(term.holds(known.get(term.key, "")) for term in self.fields)


def selector(labels: str, fields: str, offered: Collection[str], *, unknown_field: str) -> Selector:
    """The selector of two query parameters; 400 if one is malformed."""
    return Selector(_labels(labels), _fields(fields, offered, unknown_field))


def _labels(text: str) -> tuple[Term, ...]:
    return tuple(_label_term(part, text) for part in _COMMA.split(text)) if text.strip() else ()


def _label_term(part: str, text: str) -> Term:
    match = _LABEL_TERM.fullmatch(part)
    if match is None:
        raise bad_request(f"unable to parse requirement: {quoted(part.strip())} in the label selector {quoted(text)}")
    if match["absent"]:
        return Term(match["gone"], lambda value: value is None)
    values = (
        frozenset(value.strip() for value in match["values"].split(",")) if match["set"] else frozenset({match["value"] or ""})
    )
    match match["op"] or match["set"]:
        case None:
            return Term(match["key"], lambda value: value is not None)
        case "!=" | "notin":
            return Term(match["key"], lambda value: value not in values)
        case ">" | "<" as order:
            return Term(match["key"], _ordered(order, match["value"]))
        case _:
            return Term(match["key"], lambda value: value in values)


def _ordered(order: str, bound: str) -> Callable[[str | None], bool]:
    if not re.fullmatch(r"-?[0-9]+", bound):
        why = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise bad_request(f"unable to parse requirement: values[0][]: Invalid value: {quoted(bound)}: {why}")
    limit = int(bound)

    def holds(value: str | None) -> bool:
        if value is None or not re.fullmatch(r"-?[0-9]+", value):
            return False
        return int(value) > limit if order == ">" else int(value) < limit

    return holds


def _fields(text: str, offered: Collection[str], unknown_field: str) -> tuple[Term, ...]:
    terms = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"([^!=]+)(==|=|!=)(.*)", part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        key, operator, value = match.groups()
        if key not in offered:
            raise bad_request(unknown_field.format(field=key))
        terms.append(Term(key, _equality(operator, value)))
    return tuple(terms)


def _equality(operator: str, wanted: str) -> Callable[[str | None], bool]:
    if operator == "!=":
        return lambda value: value != wanted
    return lambda value: value == wanted
