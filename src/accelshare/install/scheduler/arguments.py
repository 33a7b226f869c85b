"""kube-scheduler's command line as a list of words: looked up and changed flag by flag.

Belongs here: how flags are spelled, and which of them a configuration file makes kube-scheduler ignore. Never: where the words
come from.
"""

import re
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from typing import Any, Final

from accelshare.install.errors import NotUnderstood
from accelshare.install.scheduler.release import FLAGS_OVERRIDE_LEADER_ELECTION, OLDEST_READ, PLAIN_PORT, PLAIN_PORT_ENDS, Release

_BOOLEANS: Final = frozenset(
    {"leader-elect", "profiling", "contention-profiling", "use-legacy-policy-config", "logtostderr", "alsologtostderr"}
)


def flags(words: Sequence[str]) -> dict[str, str]:
    """Every flag with its value, in the order in which they count; the last one wins, as kube-scheduler reads them."""
    found: dict[str, str] = {}
    for name, value, _, _ in _occurrences(words):
        found.pop(name, None)
        found[name] = value
    return found


def asked_at(given: Mapping[str, str]) -> str:
    """HOST:PORT where a kube-scheduler with these flags can be asked on its own host."""
    host = given.get("bind-address", "127.0.0.1")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (where it listens is not where we ask)
    return f"{f'[{host}]' if ':' in host else host}:{given.get('secure-port', '10259')}"


def put(words: MutableSequence[str], name: str, value: str) -> None:
    """Give the flag this value, where it stands or at the end."""
    found = [(first, last) for known, _, first, last in _occurrences(words) if known == name]
    if len(found) > 1:
        raise NotUnderstood(f"--{name} is given {len(found)} times; it must be there once at most")
    if not found:
        words.append(f"--{name}={value}")
        return
    ((first, last),) = found
    if first == last:
        words[first] = f"--{name}={value}"
    else:
        words[last] = value


def _occurrences(words: Sequence[str]) -> Iterator[tuple[str, str, int, int]]:
    """Name, value, index of the flag's word and of its value's word."""
    index = 0
    while index < len(words):
        word = str(words[index])
        if short := re.match(r"-v(=|$|\d)", word):  # klog's, the only flag with a short name
            word = f"--v{'=' if short[1].isdigit() else ''}{word[2:]}"
        if not word.startswith("--"):
            index += 1
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("_", "-")  # kube-scheduler takes both
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
    # What Go's strconv.ParseBool takes.
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError(text)


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number


# Flag → where its value goes in a KubeSchedulerConfiguration, because kube-scheduler ignores the flag beside --config.
_MOVED: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "kubeconfig": ("clientConnection.kubeconfig", str),
    "kube-api-content-type": ("clientConnection.contentType", str),
    "kube-api-qps": ("clientConnection.qps", _number),
    "kube-api-burst": ("clientConnection.burst", int),
    "profiling": ("enableProfiling", _boolean),
    "contention-profiling": ("enableContentionProfiling", _boolean),
    # Old names, gone in 1.25; --leader-elect-resource-* still count beside a file from 1.22 on, these never do.
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
# Flags of old that choose an algorithm: harmless at their default, and not to be translated by guessing otherwise.
_ONLY_AT_DEFAULT: Final[Mapping[str, str]] = {"algorithm-provider": "DefaultProvider", "hard-pod-affinity-symmetric-weight": "1"}


def refuse_untranslatable(given: Mapping[str, str]) -> None:
    for name, default in _ONLY_AT_DEFAULT.items():
        if given.get(name, default) != default:
            raise NotUnderstood(
                f"--{name}={given[name]} would lose its effect; write what it does into a configuration file of your own first"
            )


def moved_into_file(given: Mapping[str, str], release: Release) -> dict[str, Any]:
    """What a new configuration file must say because kube-scheduler will not look at these flags any more."""
    refuse_untranslatable(given)
    content: dict[str, Any] = {}
    rows = dict(_MOVED) | (dict(_MOVED_BEFORE_122) if release.minor < FLAGS_OVERRIDE_LEADER_ELECTION else {})
    order = list(given)
    for name, (path, read) in rows.items():
        others = [other for other, (theirs, _) in rows.items() if theirs == path and other in given]
        if name not in given or name != max(others, key=order.index):
            continue
        section, _, key = path.rpartition(".")
        try:
            value = read(given[name])
        except ValueError as error:
            raise NotUnderstood(f"--{name}={given[name]}: the value cannot be moved into a configuration file") from error
        (content.setdefault(section, {}) if section else content)[key] = value
    if "scheduler-name" in given:
        content["profiles"] = [{"schedulerName": given["scheduler-name"]}]
    return content | plain_port(given, release)


def plain_port(given: Mapping[str, str], release: Release) -> dict[str, str]:
    """Where a new file lets kube-scheduler serve without authentication: at the given address, else on this host only.

    Before 1.23 the port cannot be switched off beside --config: without a word of ours it is 0.0.0.0:10251.
    """
    if not OLDEST_READ <= release.minor < PLAIN_PORT_ENDS:
        return {}
    port, host = given.get("port", ""), given.get("address", "127.0.0.1")
    if port and not (port.isascii() and port.isdigit() and int(port) <= _LAST_PORT):
        raise NotUnderstood(f"--port={port} is no port; it must be a number from 0 to {_LAST_PORT}")
    if port and int(port) == 0:  # switched off so far: nobody but this host shall reach it
        port, host = "", "127.0.0.1"
    address = f"{f'[{host}]' if ':' in host else host}:{port or PLAIN_PORT}"
    return {"healthzBindAddress": address, "metricsBindAddress": address}
