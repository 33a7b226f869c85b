"""The content of kube-scheduler's configuration file: a new one, or the operator's own with the extender added.

Belongs here: what the file says. Never: where the file is, and how kube-scheduler is made to read it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from accelshare.install.errors import Clash, NotUnderstood
from accelshare.install.scheduler import documents
from accelshare.install.scheduler.desired_config import (
    PROPOSED_BURST,
    PROPOSED_PERCENTAGE,
    PROPOSED_QPS,
    DesiredConfig,
    is_loopback,
)
from accelshare.install.scheduler.release import PLAIN_PORT, PLAIN_PORT_ENDS, Dialect, Release

_HEAD: Final = "Written by `accelshare scheduler-config`. The next apply refuses to overwrite changes made by hand."
_KINDS: Final = {"policy": "Policy", "configuration": "KubeSchedulerConfiguration"}
# The usual order of keys.
_ORDER: Final = ("apiVersion", "kind", "clientConnection", "leaderElection", "percentageOfNodesToScore", "profiles", "extenders")


def fresh(dialect: Dialect, desired: DesiredConfig, moved: Mapping[str, Any]) -> bytes:
    """A new file. `moved`: settings of flags that kube-scheduler ignores beside --config."""
    content: dict[str, Any] = {"apiVersion": dialect.api_version, "kind": _KINDS[dialect.kind]}
    if dialect.kind == "policy":
        _refuse_settings_of_a_policy(desired)
        content = {"kind": content["kind"], "apiVersion": content["apiVersion"], "extenders": [entry(desired, dialect)]}
        return documents.json_text(content).encode()
    content |= documents.plain(moved)
    _put_settings(content, desired, "the new configuration")
    content["extenders"] = [entry(desired, dialect)]
    ordered = {key: content[key] for key in sorted(content, key=lambda key: _ORDER.index(key) if key in _ORDER else 4.5)}
    return documents.yaml_text(ordered, comment=_HEAD).encode()


def merged(
    existing: bytes, *, name: str, accepted: Sequence[Dialect], desired: DesiredConfig, replace: Collection[str] = ()
) -> bytes:
    """The operator's file with the extender added; everything else stays. Raises Clash for entries that would be refused."""
    document = documents.read(existing, name)
    data = document.data
    dialect = _dialect_of(data, name, accepted)
    if dialect.kind == "policy":
        _refuse_settings_of_a_policy(desired)
    else:
        _put_settings(data, desired, name)
    ours = entry(desired, dialect)
    others = documents.mappings(data, "extenders", name)
    for index, other in enumerate(others):
        documents.mappings(other, "managedResources", f"{name}: extenders[{index}]")
    unknown = [url for url in replace if url.rstrip("/") not in {_url(other) for other in others} | {desired.url.rstrip("/")}]
    if unknown and not any(_url(other) == desired.url.rstrip("/") for other in others):
        raise Clash(f"{name}: --replace {', '.join(unknown)}: there is no such extender; the extenders are {_listed(others)}")
    gone = {url.rstrip("/") for url in replace} - {desired.url.rstrip("/")}
    places = [index for index, other in enumerate(others) if _url(other) in gone]
    for index in reversed(places):
        del others[index]
    same = [index for index, other in enumerate(others) if _url(other) == desired.url.rstrip("/")]
    _refuse_clashes([other for other in others if _url(other) != desired.url.rstrip("/")], desired, name)
    if len(same) > 1:
        raise Clash(f"{name}: the extender {desired.url} is listed {len(same)} times")
    if same and documents.plain(others[same[0]]) == ours:
        return document.content()
    if same:
        others[same[0]] = documents.rich(ours)
    elif data.get("extenders"):
        others.insert(places[0] if places else len(others), documents.rich(ours))
    else:
        data["extenders"] = documents.rich([ours])
    return document.content()


def proposals(content: bytes, name: str) -> tuple[str, ...]:
    """Proposed settings that suit shared cards better than the present ones; the operator decides."""
    data = documents.plain(documents.read(content, name).data)
    if data.get("kind") == "Policy":
        return (
            "a Policy cannot set percentageOfNodesToScore: from 100 nodes on kube-scheduler considers only some of them, "
            "and a pod may wait although another node has free capacity",
        )
    notices = []
    percentage = data.get("percentageOfNodesToScore")
    if percentage != PROPOSED_PERCENTAGE:
        notices.append(
            f"proposed: percentageOfNodesToScore {PROPOSED_PERCENTAGE} (now {percentage or 'the default'}), "
            "otherwise from 100 nodes on kube-scheduler considers only some of them: --percentage-of-nodes-to-score"
        )
    client = documents.mapping(data, "clientConnection", name)
    if not (_number(client.get("qps")) or 0) >= PROPOSED_QPS:
        notices.append(
            f"proposed: clientConnection.qps {PROPOSED_QPS} and burst {PROPOSED_BURST} (now {client.get('qps') or 50} and "
            f"{client.get('burst') or 100}), for clusters that start many pods at once: --client-qps, --client-burst"
        )
    return tuple(notices)


def plain_port(content: bytes, name: str, release: Release) -> tuple[str, ...]:
    """Notices about the port for metrics and pprof that kube-scheduler before 1.23 opens without authentication."""
    data = documents.plain(documents.read(content, name).data)
    if data.get("kind") == "Policy" or release.minor >= PLAIN_PORT_ENDS:
        return ()  # without a configuration file --port and --address count
    addresses = {key: str(data.get(key) or f"0.0.0.0:{PLAIN_PORT}") for key in ("healthzBindAddress", "metricsBindAddress")}
    if all(is_loopback(address.rpartition(":")[0].strip("[]") or address) for address in addresses.values()):
        shown = " and ".join(dict.fromkeys(addresses.values()))
        return (f"kube-scheduler {release} cannot disable its plain HTTP port beside a configuration file; it is now at {shown}",)
    shown = ", ".join(f"{key} {address}" for key, address in addresses.items())
    return (
        f"kube-scheduler {release} serves metrics and pprof without authentication ({shown}); "
        f"127.0.0.1:{PLAIN_PORT} for both restricts it to this host",
    )


def _dialect_of(data: Mapping[str, Any], name: str, accepted: Sequence[Dialect]) -> Dialect:
    kind, version = data.get("kind"), data.get("apiVersion")
    for dialect in accepted:
        if (kind, version) == (_KINDS[dialect.kind], dialect.api_version):
            return dialect
    accepted_kinds = " or ".join(f"{_KINDS[dialect.kind]} {dialect.api_version}" for dialect in accepted)
    raise NotUnderstood(f"{name} is {kind} {version}; this kube-scheduler accepts extenders from {accepted_kinds}")


def _put_settings(data: Any, desired: DesiredConfig, name: str) -> None:
    settings, client = desired.settings, documents.mapping(data, "clientConnection", name)
    if settings.percentage is not None and data.get("percentageOfNodesToScore") != settings.percentage:
        data["percentageOfNodesToScore"] = settings.percentage
    for key, value in (("qps", settings.qps), ("burst", settings.burst)):
        if value is None or client.get(key) == value:
            continue
        if not data.get("clientConnection"):
            data["clientConnection"] = documents.rich({})
        data["clientConnection"][key] = value


def refuse_client_limits(desired: DesiredConfig) -> None:
    """Raise where client limits would be dropped silently: a Policy has no place for them, and flags are ignored."""
    if desired.settings.qps is not None or desired.settings.burst is not None:
        raise Clash(
            "a Policy has no client limits, and no flags are written here that could set them: leave out --client-qps and "
            "--client-burst and give kube-scheduler --kube-api-qps and --kube-api-burst, or use a configuration"
        )


def _refuse_settings_of_a_policy(desired: DesiredConfig) -> None:
    if desired.settings.percentage is not None:
        raise Clash("a Policy has no percentageOfNodesToScore; leave it out, or use --kind configuration (from 1.18 on)")


def _refuse_clashes(others: Sequence[Mapping[str, Any]], desired: DesiredConfig, name: str) -> None:
    """kube-scheduler accepts a resource in one extender only, and one extender that binds."""
    for other in others:
        common = sorted(
            {str(resource.get("name")) for resource in documents.mappings(other, "managedResources", name)}
            & set(desired.resources)
        )
        what = f"also manages {', '.join(common)}" if common else "also binds pods" if other.get("bindVerb") else None
        if what is not None:
            raise Clash(
                f"{name}: the extender {other.get('urlPrefix')} {what}, and kube-scheduler refuses two of them; "
                f"to let accelshare replace it, give --replace {other.get('urlPrefix')}"
            )


def entry(desired: DesiredConfig, dialect: Dialect) -> dict[str, Any]:
    """The extender's entry in this dialect, in the usual order of fields; kube-scheduler's defaults are left out."""
    content: dict[str, Any] = {
        "urlPrefix": desired.url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": desired.weight,
        dialect.https_key: desired.tls is not None,
        "httpTimeout": desired.timeout_ms * 1_000_000 if dialect.timeout_in_nanoseconds else _duration(desired.timeout_ms),
        "nodeCacheCapable": True,  # only names are sent; without it in-tree scores see empty nodes from 1.33 on
    }
    if desired.tls is not None:
        files = {
            "caFile": desired.tls.ca_file,
            "certFile": desired.tls.cert_file,
            "keyFile": desired.tls.key_file,
            "serverName": desired.tls.server_name,
        }
        content["tlsConfig"] = {key: value for key, value in files.items() if value is not None}
    # Not ignored by the scheduler: it also counts the node's total, and so finds victims to preempt.
    content["managedResources"] = [{"name": name, "ignoredByScheduler": False} for name in desired.resources]
    return content


def _duration(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{milliseconds}ms" if rest else f"{seconds}s"


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None


def _url(other: Mapping[str, Any]) -> str:
    return str(other.get("urlPrefix", "")).rstrip("/")


def _listed(others: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(map(_url, others)) or "none"
