"""What every object's metadata must look like: names, labels, annotations, and the fields that only the server writes.

Belongs here: rules for all kinds alike. Never: a rule of one kind.
"""

import re
from collections.abc import Iterator
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
    """What is wrong with a name such as a pod's or a node's; empty when nothing is."""
    if len(name) > 253:
        return "must be no more than 253 characters"
    return "" if _SUBDOMAIN_SHAPE.fullmatch(name) else _SUBDOMAIN_TEXT


def label_problem(name: str) -> str:
    """What is wrong with a name such as a namespace's or a container's; empty when nothing is."""
    if len(name) > 63:
        return "must be no more than 63 characters"
    if _LABEL_SHAPE.fullmatch(name):
        return ""
    return "must not contain dots" if _SUBDOMAIN_SHAPE.fullmatch(name) else _LABEL_TEXT


def problems(metadata: Object, *, name_is_label: bool) -> Iterator[FieldError]:
    """Everything wrong with an object's name, labels and annotations."""
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


def update_problems(new: Object, old: Object) -> Iterator[FieldError]:
    """Every attempt to change what identifies an object."""
    for field in _IMMUTABLE:
        if new.get(field) != old.get(field):
            yield FieldError(f"metadata.{field}", f"Invalid value: {quoted(str(new.get(field, '')))}: field is immutable")


def keep(new: Object, old: Object) -> None:
    """Put back what a client cannot change; a uid that it left out is the stored one's."""
    new.setdefault("uid", old["uid"])
    for field in _KEPT:
        if field in old:
            new[field] = old[field]
        else:
            new.pop(field, None)


def qualified_name_problem(key: str) -> str:
    """What is wrong with a label's or an annotation's key, or a resource's name; empty when nothing is."""
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
