"""The kinds of values a profile may hold: each a yes-or-no question and the words for what would be right.

Belongs here: rules about one value, Kubernetes' own spelling rules among them. Never: which key has which kind, or
rules between keys.
"""

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Final

# Constant texts become events and counters, so they stay one short line.
LONGEST_TEXT: Final = 120

# apimachinery's IsQualifiedName: an optional DNS subdomain, a slash, and a name.
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LONGEST_SUBDOMAIN = 253
_LONGEST_NAME = 63
# Quota spells a resource "requests.<name>", and that must be a qualified name as well.
_QUOTA_PREFIX = "requests."
# What the lines of a command may tell about a card.
CARD_GROUPS: Final = ("index", "id", "memory_mib", "memory_gib", "minor", "model", "healthy")
_LONGEST_PATTERN = 400
# The annotations that carry our own record; a vendor's key would overwrite them.
_OURS = "accelshare.io/"


@dataclass(frozen=True, slots=True)
class Kind:
    """A question about one value, and the end of the sentence `it must …` for when the answer is no."""

    must: str
    holds: Callable[[object], bool]


def matching(pattern: str, must: str, longest: int = LONGEST_TEXT) -> Kind:
    """A text that the whole pattern describes."""
    compiled = re.compile(pattern)
    return Kind(must, lambda value: isinstance(value, str) and len(value) <= longest and bool(compiled.fullmatch(value)))


def whole_number(low: int, high: int) -> Kind:
    """A whole number between two bounds. TOML's true is no number, though Python's is."""
    return Kind(
        f"be a whole number from {low} to {high}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high,
    )


def one_of(*words: str) -> Kind:
    """One word of a closed list."""
    return Kind(f"be one of {', '.join(words)}", lambda value: isinstance(value, str) and value in words)


def one_or_more_of(*words: str) -> Kind:
    """One word of a closed list, or a list of them without repeats."""

    def holds(value: object) -> bool:
        chosen = value if isinstance(value, list | tuple) else [value]
        return (
            bool(chosen) and all(isinstance(word, str) and word in words for word in chosen) and len(set(chosen)) == len(chosen)
        )

    return Kind(f"be one of {', '.join(words)}, or a list of them", holds)


def template(*fields: str, must: str, path: bool = False, needs_field: bool = False) -> Kind:
    """A text with these {fields} and no others; for a path, one that stays under /dev."""

    def holds(value: object) -> bool:
        if not _one_line(value):
            return False
        used = _fields(value)
        if used is None or not used <= set(fields) or (needs_field and not used):
            return False
        return not path or (re.fullmatch(r"/dev(/[A-Za-z0-9_.{}-]+)+", str(value)) is not None and "/." not in str(value))

    return Kind(must, holds)


def _one_line(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT and value.isprintable() and value == value.strip()


def _fields(value: object) -> set[str] | None:
    """The names in braces, or None where braces do not pair up, or ask for an index or a format."""
    try:
        parts = list(Formatter().parse(str(value)))
    except ValueError:
        return None
    if any(spec or conversion for _, _, spec, conversion in parts):
        return None
    return {name for _, name, _, _ in parts if name is not None}


def _is_absolute(value: object) -> bool:
    return _one_line(value) and str(value).startswith("/") and ".." not in str(value).split("/")


def _compiled(value: object) -> re.Pattern[str] | None:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_PATTERN:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what a later Python will read differently is not clear enough
            return re.compile(value)
    except (re.error, OverflowError, RecursionError, Warning):
        return None


def _groups(value: object) -> set[str]:
    pattern = _compiled(value)
    return set(pattern.groupindex) if pattern is not None else set()


def _is_qualified_name(value: str) -> bool:
    prefix, slash, name = value.rpartition("/")
    if slash and not (len(prefix) <= _LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def _is_label_key(value: object) -> bool:
    return isinstance(value, str) and _is_qualified_name(value)


def _is_annotation_key(value: object) -> bool:
    # The API server lower-cases annotation keys before it checks them.
    return isinstance(value, str) and _is_qualified_name(value.lower()) and not value.lower().startswith(_OURS)


def _is_extended_resource(value: object) -> bool:
    if not isinstance(value, str) or "/" not in value or "kubernetes.io/" in value or value.startswith(_QUOTA_PREFIX):
        return False
    return _is_qualified_name(_QUOTA_PREFIX + value)


def _is_label(value: object) -> bool:
    if not isinstance(value, str) or "=" not in value:
        return False
    key, _, setting = value.partition("=")
    return _is_qualified_name(key) and (not setting or _is_label_name(setting))


def _is_label_name(value: str) -> bool:
    return len(value) <= _LONGEST_NAME and _NAME.fullmatch(value) is not None


def _is_refusal_text(value: object) -> bool:
    return _one_line(value) and not any(sign in str(value) for sign in "{}%") and not str(value).endswith(".")


FLAG: Final = Kind("be true or false", lambda value: isinstance(value, bool))
TABLE: Final = Kind("be a table", lambda value: isinstance(value, Mapping))
LIST: Final = Kind("be a list", lambda value: isinstance(value, list | tuple))
LINE: Final = Kind(f"be one line of text, 1 to {LONGEST_TEXT} characters long", _one_line)
POSITIVE_MIB: Final = Kind(
    "be a positive number of MiB, at most 1048576",
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 2**20,
)

PROFILE_NAME: Final = matching(r"[a-z][a-z0-9-]*", "be lower-case letters, digits and dashes, starting with a letter", 63)
NOUN: Final = matching(r"[A-Za-z][A-Za-z0-9]*", "be one word of letters and digits, at most 16 long", 16)
UNIT_NAME: Final = matching(r"[A-Za-z0-9.]+", "be letters, digits and dots, at most 16 long", 16)
JSON_NAME: Final = matching(r"[A-Za-z][A-Za-z0-9_]*", "be a JSON name of letters, digits and underscores")
PLUGIN_NAME: Final = matching(r"[a-z][a-z0-9]*", "be one word of lower-case letters and digits, as in kubectl inspect WORD", 63)
# Paths that the extender answers itself, whatever profiles there are.
OWN_PATHS: Final = ("/accelshare", "/healthz", "/livez", "/metrics", "/readyz", "/version")
URL_PREFIX: Final = matching(
    rf"(?!(?:{'|'.join(OWN_PATHS)})$)/[a-z0-9-]+",
    f"be a slash followed by lower-case letters, digits and dashes, and none of {', '.join(OWN_PATHS)}",
)
PCI_VENDOR: Final = matching(r"[0-9a-f]{4}", "be four lower-case hexadecimal digits")
ENV_NAME: Final = matching(r"[A-Za-z_][A-Za-z0-9_]*", "be the name of an environment variable")
DATA_KEY: Final = matching(r"[-._A-Za-z0-9]+", "be a ConfigMap key of letters, digits, dots, dashes and underscores")
NAMESPACE: Final = matching(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", "be the name of a namespace", _LONGEST_NAME)

SECONDS: Final = Kind(
    "be a number of seconds, more than 0 and at most 3600",
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 3600,
)
WAY_NAME: Final = matching(r"[a-z][a-z0-9-]*", "be lower-case letters, digits and dashes, starting with a letter", 63)
VERSION: Final = matching(r"[0-9]+(\.[0-9]+)*", 'be a version in quotes, such as "1.20.1"')
PERMISSIONS: Final = matching(r"r?w?m?(?<=[rwm])", "be some of r, w and m, in this order")
PCI_ADDRESS: Final = matching(
    r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", "be a PCI address such as 0000:3b:00.0, in lower case"
)
DEV_GLOB: Final = matching(
    r"(?!.*([^/]\*\*|\*\*[^/]))/dev(/[^/\s.][^/\s]*)+",
    "be a path under /dev with wildcards, such as /dev/card[0-9]*, in which ** is a folder of its own",
)
ABSOLUTE_PATH: Final = Kind("be an absolute path", lambda value: _is_absolute(value))
ENV_SETTING: Final = matching(r"[A-Za-z_][A-Za-z0-9_]*=[ -~]*", "be NAME=value")
CARD_PATTERN: Final = Kind(
    f"be a regular expression with some of the named groups {', '.join(CARD_GROUPS)}, among them index or id",
    lambda value: bool({"index", "id"} & _groups(value)) and _groups(value) <= set(CARD_GROUPS),
)
VERSION_PATTERN: Final = Kind(
    "be a regular expression whose one group is the version",
    lambda value: (pattern := _compiled(value)) is not None and pattern.groups == 1,
)

RESOURCE_PREFIX: Final = matching(
    r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/", "be the domain of resources with a slash, such as example.com/", 254
)
ANNOTATION_PREFIX: Final = matching(
    r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-A-Za-z0-9_.]*", "be the beginning of annotation keys, such as example.com/", 254
)
CDI_KIND: Final = matching(
    r"[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_-]*", "be vendor/class of CDI names, such as example.com/card"
)
RESOURCE: Final = Kind(
    "be an extended resource name such as example.com/card-memory, and not one of kubernetes.io", _is_extended_resource
)
LABEL_KEY: Final = Kind("be a label key such as example.com/cards", _is_label_key)
ANNOTATION_KEY: Final = Kind(
    "be an annotation key such as example.com/card-index, and not one of accelshare.io", _is_annotation_key
)
NODE_LABEL: Final = Kind("be a label with its value, such as example.com/share=true", _is_label)
REFUSAL_TEXT: Final = Kind(
    f"be a constant text, 1 to {LONGEST_TEXT} characters on one line, without {{, }} or % and without a final full stop",
    _is_refusal_text,
)

CARD_DEVICE: Final = template(
    "index",
    "minor",
    path=True,
    needs_field=True,
    must="be a path under /dev with {index} or {minor}, such as /dev/card{index}",
)
SHARED_DEVICE: Final = template(path=True, must="be a path under /dev without placeholders, such as /dev/cardctl")
CARD_FIELDS: Final = ("index", "minor", "id")
AMOUNT_FIELDS: Final = tuple(
    f"{whose}{amount}" for whose in ("", "share_", "pod_", "card_") for amount in ("units", "mib", "bytes")
)
CONTAINER_TEXT: Final = template(
    *CARD_FIELDS,
    "ordinal",
    *AMOUNT_FIELDS,
    must="be a text with no placeholders but {index} {minor} {id} {ordinal}, and {units} {mib} {bytes}, "
    "these three also with share_, pod_ or card_ before them",
)
CARD_PATH: Final = Kind(
    "be an absolute path with {index}, {minor} or {id}, such as /var/run/cards/{id}",
    lambda value: _is_absolute(value) and bool(_fields(value)) and (_fields(value) or set()) <= set(CARD_FIELDS),
)
CARD_ID: Final = template("index", must="be one line of text with no placeholder but {index}, such as CARD-{index}")
CDI_NAME: Final = Kind(
    "be vendor/class={…} with {index}, {minor} or {id}, such as example.com/card={id}",
    lambda value: (
        isinstance(value, str)
        and len(value) <= LONGEST_TEXT
        and re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_-]*=[A-Za-z0-9_.:{}-]+", value) is not None
        and bool(_fields(value))
        and (_fields(value) or set()) <= set(CARD_FIELDS)
    ),
)
NODE_CONFIGMAP: Final = Kind(
    "be a ConfigMap name with {node} in it, such as unhealthy-{node}",
    lambda value: (
        isinstance(value, str)
        and value.count("{node}") == 1
        and len(value) <= LONGEST_TEXT
        and _SUBDOMAIN.fullmatch(value.replace("{node}", "node")) is not None
    ),
)
