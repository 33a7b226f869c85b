"""kube-scheduler's command line as a list of words: read and set flags.

Belongs here: the syntax of flags, and which flags kube-scheduler ignores beside a configuration file. Never: where the command
line comes from.
"""

import re
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from typing import Any, Final

from accelshare.install.errors import NotUnderstood
from accelshare.install.scheduler.release import FLAGS_OVERRIDE_LEADER_ELECTION, OLDEST, PLAIN_PORT, PLAIN_PORT_ENDS, Release

_BOOLEANS: Final = frozenset(
    {"leader-elect", "profiling", "contention-profiling", "use-legacy-policy-config", "logtostderr", "alsologtostderr"}
)


def flags(words: Sequence[str]) -> dict[str, str]:
    """Every flag with its value, in order; the last occurrence wins, as in kube-scheduler."""
    values: dict[str, str] = {}
    for name, value, _, _ in _occurrences(words):
        values.pop(name, None)
        values[name] = value
    return values


def health_address(flag_values: Mapping[str, str]) -> str:
    """HOST:PORT of the health endpoint of a kube-scheduler with these flags, on its own host."""
    host = flag_values.get("bind-address", "127.0.0.1")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (the address to connect to is another one)
    return f"{f'[{host}]' if ':' in host else host}:{flag_values.get('secure-port', '10259')}"


def put(words: MutableSequence[str], name: str, value: str) -> None:
    """Set the flag, in place or at the end."""
    places = [(first, last) for known, _, first, last in _occurrences(words) if known == name]
    if len(places) > 1:
        raise NotUnderstood(f"--{name} is set {len(places)} times; it may be set once")
    if not places:
        words.append(f"--{name}={value}")
        return
    ((first, last),) = places
    if first == last:
        words[first] = f"--{name}={value}"
    else:
        words[last] = value


def _occurrences(words: Sequence[str]) -> Iterator[tuple[str, str, int, int]]:
    """Name, value, index of the flag's word and of its value's word."""
    index = 0
    while index < len(words):
        word = str(words[index])
        if short := re.match(r"-v(=|$|\d)", word):  # klog's, the only flag with a short form
            word = f"--v{'=' if short[1].isdigit() else ''}{word[2:]}"
        if not word.startswith("--"):
            index += 1
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("_", "-")  # kube-scheduler accepts both
        following = str(words[index + 1]) if index + 1 < len(words) else "--"
        if equals:
            yield name, value, index, index
        elif name in _BOOLEANS or following.startswith("--"):
            yield name, "true", index, index
        else:
            yield name, following, index, index + 1
            index += 1
        index += 1


def _boolean(text: str) -> bool:
    # As Go's strconv.ParseBool.
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError(text)


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number


# Flag → its key in a KubeSchedulerConfiguration, because kube-scheduler ignores the flag beside --config.
_MOVED: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "kubeconfig": ("clientConnection.kubeconfig", str),
    "kube-api-content-type": ("clientConnection.contentType", str),
    "kube-api-qps": ("clientConnection.qps", _number),
    "kube-api-burst": ("clientConnection.burst", int),
    "profiling": ("enableProfiling", _boolean),
    "contention-profiling": ("enableContentionProfiling", _boolean),
    # Old names, removed in 1.25. From 1.22 on --leader-elect-resource-* are still read beside a file; these never are.
    "lock-object-namespace": ("leaderElection.resourceNamespace", str),
    "lock-object-name": ("leaderElection.resourceName", str),
}
_MOVED_BEFORE_122: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "leader-elect": ("leaderElection.leaderElect", _boolean),
    "leader-elect-lease-duration": ("leaderElection.leaseDuration", str),
    "leader-elect-renew-deadline": ("leaderElection.renewDeadline", str),
    "leader-elect-retry-period": ("leaderElection.retryPeriod", str),
    "leader-elect-resource-lock": ("leaderElection.resourceLock", str),
    "leader-elect-resource-namespace": ("leaderElection.resourceNamespace", str),
    "leader-elect-resource-name": ("leaderElection.resourceName", str),
}
_LAST_PORT: Final = 65535
# Old flags that choose an algorithm: ignored at their default; other values cannot be translated without guessing.
_ONLY_AT_DEFAULT: Final[Mapping[str, str]] = {"algorithm-provider": "DefaultProvider", "hard-pod-affinity-symmetric-weight": "1"}


def refuse_untranslatable(flag_values: Mapping[str, str]) -> None:
    """Raise for flags that would lose their effect."""
    for name, default in _ONLY_AT_DEFAULT.items():
        if flag_values.get(name, default) != default:
            raise NotUnderstood(f"--{name}={flag_values[name]} would lose its effect; move it into your configuration first")


def moved_into_file(flag_values: Mapping[str, str], release: Release) -> dict[str, Any]:
    """The settings that a new configuration file needs because kube-scheduler ignores these flags beside it."""
    refuse_untranslatable(flag_values)
    content: dict[str, Any] = {}
    rows = dict(_MOVED) | (dict(_MOVED_BEFORE_122) if release.minor < FLAGS_OVERRIDE_LEADER_ELECTION else {})
    order = list(flag_values)
    for name, (path, read) in rows.items():
        others = [other for other, (other_path, _) in rows.items() if other_path == path and other in flag_values]
        if name not in flag_values or name != max(others, key=order.index):
            continue
        section, _, key = path.rpartition(".")
        try:
            value = read(flag_values[name])
        except ValueError as error:
            raise NotUnderstood(f"--{name}={flag_values[name]}: the value cannot be moved into a configuration file") from error
        (content.setdefault(section, {}) if section else content)[key] = value
    if "scheduler-name" in flag_values:
        content["profiles"] = [{"schedulerName": flag_values["scheduler-name"]}]
    return content | plain_port(flag_values, release)


def plain_port(flag_values: Mapping[str, str], release: Release) -> dict[str, str]:
    """The address of the plain HTTP port in a new file: as the flags say, else on this host only.

    Before 1.23 the port cannot be disabled beside --config; its default is 0.0.0.0:10251.
    """
    if not OLDEST <= release.minor < PLAIN_PORT_ENDS:
        return {}
    port, host = flag_values.get("port", ""), flag_values.get("address", "127.0.0.1")
    if port and not (port.isascii() and port.isdigit() and int(port) <= _LAST_PORT):
        raise NotUnderstood(f"--port={port} is not a port; it must be a number from 0 to {_LAST_PORT}")
    if port and int(port) == 0:  # disabled so far: keep it local
        port, host = "", "127.0.0.1"
    address = f"{f'[{host}]' if ':' in host else host}:{port or PLAIN_PORT}"
    return {"healthzBindAddress": address, "metricsBindAddress": address}
