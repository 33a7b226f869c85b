"""The types of single values in a profile: each with its constraints and the words for what a correct value is.

Belongs here: rules about one value, Kubernetes' own naming rules among them. msgspec checks the constraints; `description`
ends the sentence "it must …", and `extra["check"]` is a function for what no constraint can express. Never: which key has
which type (`profile.py`), rules between keys (`agreement.py`).
"""

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

# Refusal texts become events and counters, so every text stays one short line.
LONGEST_TEXT: Final = 120
_LONGEST_NAME: Final = 63
_LONGEST_PATTERN: Final = 400

# apimachinery's IsQualifiedName: an optional DNS subdomain of at most 253 characters, a slash, and a name.
_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*"
# The same with {node} in it, once.
_NODE_SIGN = r"(?:[a-z0-9]|\{node\})"
_NODE_LABEL = rf"{_NODE_SIGN}(?:(?:{_NODE_SIGN}|-)*{_NODE_SIGN})?"
_NODE_SUBDOMAIN = rf"(?=[^{{]*\{{node\}}[^{{]*\Z){_NODE_LABEL}(?:\.{_NODE_LABEL})*"
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_QUALIFIED_NAME = rf"(?:(?=[^/]{{1,253}}/){_SUBDOMAIN}/)?{_NAME}"
_LONGEST_QUALIFIED_NAME = 253 + 1 + _LONGEST_NAME

# The named groups that a pattern for the output of a command may have.
CARD_GROUPS: Final = ("index", "id", "memory_mib", "memory_gib", "minor", "model", "pci", "healthy")
PROCESS_GROUPS: Final = ("pid", "index", "id", "pci", "memory_mib", "memory_bytes")
# The placeholders of templates. The nodes are names in /dev/dri: card1 and renderD129.
DEVICE_FIELDS: Final = ("index", "minor", "pci", "card_node", "render_node")
CARD_FIELDS: Final = (*DEVICE_FIELDS, "id")
_AMOUNT_FIELDS = tuple(f"{whose}{amount}" for whose in ("", "share_", "pod_", "card_") for amount in ("units", "mib", "bytes"))
# Paths that the extender serves itself, whatever profiles there are.
OWN_PATHS: Final = ("/accelshare", "/healthz", "/leaderz", "/livez", "/metrics", "/readyz", "/version")


def _text(pattern: str, must: str, *, longest: int = LONGEST_TEXT, check: Callable[[Any], bool] | None = None) -> Meta:
    """A text that the whole pattern describes."""
    extra = {"check": check} if check else None
    return Meta(pattern=_anchored(pattern), max_length=longest, description=must, extra=extra)


def _anchored(pattern: str) -> str:
    flags = re.match(r"\(\?[a-z]+\)", pattern)
    head = flags[0] if flags else ""
    return rf"{head}^(?:{pattern[len(head) :]})\Z"


def _line(pattern: str, must: str) -> Meta:
    """One printable line that the whole pattern describes."""
    return _text(pattern, must, check=_is_one_line)


def _is_one_line(value: str) -> bool:
    return value.isprintable() and value == value.strip()


def _field(*names: str) -> str:
    return rf"\{{(?:{'|'.join(names)})\}}"


def _template(*names: str) -> str:
    """Any text in which these placeholders, and no others, stand in braces."""
    return rf"(?:[^{{}}]|\{{\{{|\}}\}}{f'|{_field(*names)}' if names else ''})+"


def _device_path(*names: str) -> str:
    """A path under /dev; with at least one of these placeholders, if there are any."""
    field = _field(*names) if names else ""
    sign = rf"(?:[A-Za-z0-9_.-]|{field})" if names else "[A-Za-z0-9_.-]"
    return rf"{f'(?=.*{field})' if names else ''}(?!.*/\.)/dev(?:/{sign}+)+"


def _listed(names: Sequence[str]) -> str:
    """`{a}, {b} or {c}`."""
    *first, last = (f"{{{name}}}" for name in names)
    return f"{', '.join(first)} or {last}"


def _no_repeats(values: Sequence[object]) -> bool:
    return len(set(values)) == len(values)


def _compiled(value: str) -> re.Pattern[str] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a later Python would read such a pattern differently
            return re.compile(value)
    except (re.error, OverflowError, RecursionError, Warning):
        return None


def _is_card_pattern(value: str) -> bool:
    pattern = _compiled(value)
    groups = set(pattern.groupindex) if pattern is not None else set()
    return bool({"index", "id", "pci"} & groups) and groups <= set(CARD_GROUPS)


def _is_process_pattern(value: str) -> bool:
    pattern = _compiled(value)
    groups = set(pattern.groupindex) if pattern is not None else set()
    return "pid" in groups and bool({"index", "id", "pci"} & groups) and groups <= set(PROCESS_GROUPS)


def _is_version_pattern(value: str) -> bool:
    pattern = _compiled(value)
    return pattern is not None and pattern.groups == 1


# Text
Line = Annotated[str, _line(r".+", f"be one line of text, 1 to {LONGEST_TEXT} characters long")]
Noun = Annotated[str, _text(r"[A-Za-z][A-Za-z0-9]*", "be one word of letters and digits, at most 16 long", longest=16)]
RefusalText = Annotated[
    str,
    _line(
        r"[^{}%]*[^{}%.]",
        f"be a constant text, 1 to {LONGEST_TEXT} characters on one line, without {{, }} or % and without a final full stop",
    ),
]

# Numbers
Mib = Annotated[int, Meta(ge=1, le=2**24)]
MinMib = Annotated[int, Meta(ge=0, le=2**24)]
CardCount = Annotated[int, Meta(ge=1, le=1024)]
Index = Annotated[int, Meta(ge=0, le=65535)]
Numa = Annotated[int, Meta(ge=0, le=1023)]
Port = Annotated[int, Meta(ge=1, le=65535)]
_UNIT_SIZE: Final = Meta(gt=0, le=2**20, description="be a positive number of MiB, at most 1048576")
UnitSize = Annotated[int, _UNIT_SIZE] | Annotated[float, _UNIT_SIZE]
_SECONDS: Final = Meta(gt=0, le=3600, description="be a number of seconds, more than 0 and at most 3600")
Seconds = Annotated[int, _SECONDS] | Annotated[float, _SECONDS]

# Names in Kubernetes
ProfileName = Annotated[
    str,
    _text(r"[a-z][a-z0-9-]*", "be lower-case letters, digits and dashes, starting with a letter", longest=_LONGEST_NAME),
]
Namespace = Annotated[str, _text(_DNS_LABEL, "be the name of a namespace", longest=_LONGEST_NAME)]
# Quota names a resource "requests.<name>", which must be a qualified name too.
Resource = Annotated[
    str,
    _text(
        rf"(?!requests\.)(?!.*kubernetes\.io/)(?=[^/]{{1,{253 - len('requests.')}}}/){_SUBDOMAIN}/{_NAME}",
        "be an extended resource name such as example.com/card-memory, and not one of kubernetes.io",
        longest=_LONGEST_QUALIFIED_NAME,
    ),
]
ResourcePrefix = Annotated[
    str,
    _text(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/", "be the domain of resources with a slash, such as example.com/", longest=254),
]
LabelKey = Annotated[str, _text(_QUALIFIED_NAME, "be a label key such as example.com/cards", longest=_LONGEST_QUALIFIED_NAME)]
NodeLabel = Annotated[
    str,
    _text(
        rf"{_QUALIFIED_NAME}=(?:{_NAME})?",
        "be a label with its value, such as example.com/share=true",
        longest=_LONGEST_QUALIFIED_NAME + 1 + _LONGEST_NAME,
    ),
]
# The API server lower-cases annotation keys before it checks them. Keys of accelshare.io carry accelshare's own record.
AnnotationKey = Annotated[
    str,
    _text(
        rf"(?ai)(?!accelshare\.io/){_QUALIFIED_NAME}",
        "be an annotation key such as example.com/card-index, and not one of accelshare.io",
        longest=_LONGEST_QUALIFIED_NAME,
    ),
]
AnnotationPrefix = Annotated[
    str,
    _text(
        r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-A-Za-z0-9_.]*",
        "be the beginning of annotation keys, such as example.com/",
        longest=254,
    ),
]
NodeConfigMap = Annotated[
    str,
    _text(
        _NODE_SUBDOMAIN,
        "be a ConfigMap name with {node} in it, such as unhealthy-{node}",
    ),
]
DataKey = Annotated[str, _text(r"[-._A-Za-z0-9]+", "be a ConfigMap key of letters, digits, dots, dashes and underscores")]
EnvName = Annotated[str, _text(r"[A-Za-z_][A-Za-z0-9_]*", "be the name of an environment variable")]
EnvSetting = Annotated[str, _text(r"[A-Za-z_][A-Za-z0-9_]*=[ -~]*", "be NAME=value")]

# Names in accelshare's own interfaces
ShapeName = Annotated[
    str,
    _text(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", "be letters, digits, dots, dashes and underscores", longest=_LONGEST_NAME),
]
UnitName = Annotated[str, _text(r"[A-Za-z0-9.]+", "be letters, digits and dots, at most 16 long", longest=16)]
JsonName = Annotated[str, _text(r"[A-Za-z][A-Za-z0-9_]*", "be a JSON name of letters, digits and underscores")]
PluginName = Annotated[
    str,
    _text(r"[a-z][a-z0-9]*", "be one word of lower-case letters and digits, as in kubectl inspect WORD", longest=_LONGEST_NAME),
]
UrlPrefix = Annotated[
    str,
    _text(
        rf"(?!(?:{'|'.join(OWN_PATHS)})\Z)/[a-z0-9-]+",
        f"be a slash followed by lower-case letters, digits and dashes, and none of {', '.join(OWN_PATHS)}",
    ),
]
WayName = ProfileName
LimitSetter = Literal["variables", "nvml", "dmem"]

# Hardware, files and programs
DriverName = Literal["nvidia", "kunlun", "enflame", "stream", "static"]
PciAddress = Annotated[
    str,
    _text(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", "be a PCI address such as 0000:3b:00.0, in lower case"),
]
CardId = Annotated[str, _line(_template("index"), "be one line of text with no placeholder but {index}, such as CARD-{index}")]
NO_DEVICE = "/dev/null"  # in place of the device file of a declared card that is not there
CardDevice = Annotated[
    str,
    _text(
        rf"{NO_DEVICE}|{_device_path(*DEVICE_FIELDS)}",
        f"be a path under /dev with {_listed(DEVICE_FIELDS)}, such as /dev/card{{index}}",
    ),
]
ContainerDevice = Annotated[
    str,
    _text(
        _device_path("ordinal", *DEVICE_FIELDS),
        f"be a path under /dev with {_listed(('ordinal', *DEVICE_FIELDS))}, such as /dev/card{{ordinal}}",
    ),
]
SharedDevice = Annotated[str, _text(_device_path(), "be a path under /dev without placeholders, such as /dev/cardctl")]
DeviceGlob = Annotated[
    str,
    _text(
        r"(?!.*([^/]\*\*|\*\*[^/]))/dev(/[^/\s.][^/\s]*)+",
        "be a path under /dev with wildcards, such as /dev/card[0-9]*, in which ** is a folder of its own",
    ),
]
SysfsGlob = Annotated[
    str,
    _text(
        r"(?!.*\*\*)/sys(/[A-Za-z0-9_:?*\[\]-][A-Za-z0-9_:.?*\[\]-]*)+",
        "be a path under /sys with wildcards, such as /sys/bus/pci/drivers/amdgpu/*, without **",
    ),
]
SysfsFile = Annotated[
    str,
    _text(
        r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*",
        "be a file in the device's folder of sysfs, such as mem_info_vram_total",
    ),
]
_ABSOLUTE = r"(?!.*/\.\.(?:/|\Z))/"
AbsolutePath = Annotated[str, _line(rf"{_ABSOLUTE}.*", "be an absolute path")]
Version = Annotated[str, _text(r"[0-9]+(\.[0-9]+)*", 'be a version in quotes, such as "1.20.1"')]
CardPattern = Annotated[
    str,
    _text(
        r"(?s:.+)",
        f"be a regular expression with some of the named groups {', '.join(CARD_GROUPS)}, among them index, id or pci",
        longest=_LONGEST_PATTERN,
        check=_is_card_pattern,
    ),
]
ProcessPattern = Annotated[
    str,
    _text(
        r"(?s:.+)",
        f"be a regular expression with some of the named groups {', '.join(PROCESS_GROUPS)}, with pid, and with index, id or pci",
        longest=_LONGEST_PATTERN,
        check=_is_process_pattern,
    ),
]
Command = Annotated[tuple[Line, ...], Meta(min_length=1, description="be a program and its arguments, at least the program")]
JsonPath = Annotated[
    str,
    _line(
        r"[^.]+(\.[^.]+)*",
        f"be names in JSON joined by dots, such as gpu.memory.total, 1 to {LONGEST_TEXT} characters long",
    ),
]
# How an output gives the memory of a card; `text` has its unit with it, as in "16384 MiB".
MemoryUnit = Literal["bytes", "KiB", "MiB", "GiB", "text"]
VersionPattern = Annotated[
    str,
    _text(
        r"(?s:.+)",
        "be a regular expression whose one group is the version",
        longest=_LONGEST_PATTERN,
        check=_is_version_pattern,
    ),
]

Region = Annotated[
    str,
    _line(
        rf"(?=.*{_field(*CARD_FIELDS)})(?:[^{{}}\s]|{_field(*CARD_FIELDS)})+",
        "be the name of a region in dmem.capacity, with {index}, {minor} or {id}, such as acme/card{index}",
    ),
]

# What a container gets
Permissions = Annotated[str, _text(r"r?w?m?(?<=[rwm])", "be some of r, w and m, in this order")]
ContainerText = Annotated[
    str,
    _line(
        _template(*CARD_FIELDS, "ordinal", "shape", *_AMOUNT_FIELDS),
        f"be a text with no placeholders but {' '.join(f'{{{name}}}' for name in CARD_FIELDS)} {{ordinal}} {{shape}}, and "
        "{units} {mib} {bytes}, these three also with share_, pod_ or card_ before them",
    ),
]
CardPath = Annotated[
    str,
    _line(
        rf"(?=.*{_field(*CARD_FIELDS)}){_ABSOLUTE}(?:[^{{}}]|{_field(*CARD_FIELDS)})*",
        f"be an absolute path with {_listed(CARD_FIELDS)}, such as /var/run/cards/{{id}}",
    ),
]
_CDI_KIND = r"[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_-]*"
CdiKind = Annotated[str, _text(_CDI_KIND, "be vendor/class of CDI names, such as example.com/card")]
CdiName = Annotated[
    str,
    _text(
        rf"(?=.*{_field(*CARD_FIELDS)}){_CDI_KIND}=(?:[A-Za-z0-9_.:-]|{_field(*CARD_FIELDS)})+",
        f"be vendor/class={{…}} with {_listed(CARD_FIELDS)}, such as example.com/card={{id}}",
    ),
]
# What makes cards visible to a container: variables for the vendor's runtime, mounts for the same runtime, the device files
# themselves, or names of a CDI specification.
Strategy = Literal["envvar", "volume-mounts", "device-nodes", "cdi"]
Strategies = Annotated[
    tuple[Strategy, ...],
    Meta(
        min_length=1,
        description="be one of envvar, volume-mounts, device-nodes, cdi, or a list of them without repeats",
        extra={"check": _no_repeats},
    ),
]
