"""The content of kube-scheduler's configuration file: a new one, or the operator's own with the extender in it.

Belongs here: what the file says. Never: where it lies, and how kube-scheduler is told of it.
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
from accelshare.install.scheduler.entry import entry
from accelshare.install.scheduler.release import PLAIN_PORT, PLAIN_PORT_ENDS, Dialect, Release

_HEAD: Final = "Made by `accelshare scheduler-config`. A change made here by hand is noticed, and refused by the next apply."
_KINDS: Final = {"policy": "Policy", "configuration": "KubeSchedulerConfiguration"}
# The order in which people read it.
_ORDER: Final = ("apiVersion", "kind", "clientConnection", "leaderElection", "percentageOfNodesToScore", "profiles", "extenders")


def fresh(dialect: Dialect, desired: DesiredConfig, moved: Mapping[str, Any]) -> bytes:
    """A file for an operator who has none. `moved`: what was said by flags that --config makes kube-scheduler ignore."""
    content: dict[str, Any] = {"apiVersion": dialect.api_version, "kind": _KINDS[dialect.kind]}
    if dialect.kind == "policy":
        _refuse_settings_of_a_policy(desired)
        content = {"kind": content["kind"], "apiVersion": content["apiVersion"], "extenders": [entry(desired, dialect)]}
        return documents.json_text(content).encode()
    content |= documents.plain(moved)
    _put_settings(content, desired)
    content["extenders"] = [entry(desired, dialect)]
    ordered = {key: content[key] for key in sorted(content, key=lambda key: _ORDER.index(key) if key in _ORDER else 4.5)}
    return documents.yaml_text(ordered, comment=_HEAD).encode()


def merged(
    existing: bytes, *, name: str, accepted: Sequence[Dialect], desired: DesiredConfig, replace: Collection[str] = ()
) -> bytes:
    """The operator's file with our entry: everything else stays, and two entries that kube-scheduler would refuse are a Clash."""
    document = documents.read(existing, name)
    data = document.data
    dialect = _dialect_of(data, name, accepted)
    if dialect.kind == "policy":
        _refuse_settings_of_a_policy(desired)
    else:
        _put_settings(data, desired)
    ours = entry(desired, dialect)
    others = data.get("extenders") or []
    if not isinstance(others, list) or not all(isinstance(other, dict) for other in others):
        raise NotUnderstood(f"{name}: extenders is no list of entries")
    unknown = [url for url in replace if url.rstrip("/") not in {_url(other) for other in others} | {desired.url.rstrip("/")}]
    if unknown and not any(_url(other) == desired.url.rstrip("/") for other in others):
        raise Clash(f"{name}: there is no extender {', '.join(unknown)} to be replaced; there are {_listed(others)}")
    gone = {url.rstrip("/") for url in replace} - {desired.url.rstrip("/")}
    places = [index for index, other in enumerate(others) if _url(other) in gone]
    for index in reversed(places):
        del others[index]
    same = [index for index, other in enumerate(others) if _url(other) == desired.url.rstrip("/")]
    _refuse_clashes([other for other in others if _url(other) != desired.url.rstrip("/")], desired, name)
    if len(same) > 1:
        raise Clash(f"{name}: the extender {desired.url} is there {len(same)} times")
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
    """Settings that would serve shared cards better than those in force, in words; the operator decides."""
    data = documents.plain(documents.read(content, name).data)
    if data.get("kind") == "Policy":
        return (
            "a Policy cannot set percentageOfNodesToScore: from 100 nodes on kube-scheduler asks about some of them only, "
            "and a pod may wait although another node has room",
        )
    said = []
    percentage = data.get("percentageOfNodesToScore")
    if percentage != PROPOSED_PERCENTAGE:
        said.append(
            f"proposed: percentageOfNodesToScore {PROPOSED_PERCENTAGE} (now {percentage or 'the default'}), "
            "else from 100 nodes on kube-scheduler asks about some of them only: --percentage-of-nodes-to-score"
        )
    client = data.get("clientConnection") or {}
    if not (client.get("qps") or 0) >= PROPOSED_QPS:
        said.append(
            f"proposed: clientConnection.qps {PROPOSED_QPS} and burst {PROPOSED_BURST} (now {client.get('qps') or 50} and "
            f"{client.get('burst') or 100}), for clusters that start many pods at once: --client-qps, --client-burst"
        )
    return tuple(said)


def plain_port(content: bytes, name: str, release: Release) -> tuple[str, ...]:
    """What there is to say about the port that kube-scheduler of before 1.23 opens for metrics and pprof, to anybody."""
    data = documents.plain(documents.read(content, name).data)
    if data.get("kind") == "Policy" or release.minor >= PLAIN_PORT_ENDS:
        return ()  # without a configuration file --port and --address count
    addresses = {key: str(data.get(key) or f"0.0.0.0:{PLAIN_PORT}") for key in ("healthzBindAddress", "metricsBindAddress")}
    if all(is_loopback(address.rpartition(":")[0].strip("[]") or address) for address in addresses.values()):
        shown = " and ".join(dict.fromkeys(addresses.values()))
        return (f"kube-scheduler {release} cannot switch its plain port off beside a configuration file; it is at {shown} now",)
    shown = ", ".join(f"{key} {address}" for key, address in addresses.items())
    return (
        f"kube-scheduler {release} serves metrics and pprof without authentication to everybody who reaches it ({shown}); "
        f"127.0.0.1:{PLAIN_PORT} for both keeps it on this host",
    )


def _dialect_of(data: Mapping[str, Any], name: str, accepted: Sequence[Dialect]) -> Dialect:
    kind, version = data.get("kind"), data.get("apiVersion")
    for dialect in accepted:
        if (kind, version) == (_KINDS[dialect.kind], dialect.api_version):
            return dialect
    wanted = " or ".join(f"{_KINDS[dialect.kind]} {dialect.api_version}" for dialect in accepted)
    raise NotUnderstood(f"{name} is {kind} {version}; this kube-scheduler takes extenders from {wanted}")


def _put_settings(data: Any, desired: DesiredConfig) -> None:
    settings = desired.settings
    if settings.percentage is not None and data.get("percentageOfNodesToScore") != settings.percentage:
        data["percentageOfNodesToScore"] = settings.percentage
    for key, value in (("qps", settings.qps), ("burst", settings.burst)):
        if value is None or (data.get("clientConnection") or {}).get(key) == value:
            continue
        if not data.get("clientConnection"):
            data["clientConnection"] = documents.rich({})
        data["clientConnection"][key] = value


def refuse_client_limits(desired: DesiredConfig) -> None:
    """Raises where client limits would be dropped without a word: a Policy has no place for them, and no flag counts."""
    if desired.settings.qps is not None or desired.settings.burst is not None:
        raise Clash(
            "a Policy has no client limits, and what is written here has no flags that count: leave --client-qps and "
            "--client-burst out and give kube-scheduler --kube-api-qps and --kube-api-burst, or use a configuration"
        )


def _refuse_settings_of_a_policy(desired: DesiredConfig) -> None:
    if desired.settings.percentage is not None:
        raise Clash("a Policy has no percentageOfNodesToScore; leave it out, or use --kind configuration (from 1.18 on)")


def _refuse_clashes(others: Sequence[Mapping[str, Any]], desired: DesiredConfig, name: str) -> None:
    """kube-scheduler takes a resource in one extender only, and one extender that binds."""
    for other in others:
        common = sorted({str(resource.get("name")) for resource in other.get("managedResources") or []} & set(desired.resources))
        what = f"manages {', '.join(common)} too" if common else "binds pods too" if other.get("bindVerb") else None
        if what is not None:
            raise Clash(
                f"{name}: the extender {other.get('urlPrefix')} {what}, and kube-scheduler refuses two of them; "
                f"if accelshare takes its place, say --replace {other.get('urlPrefix')}"
            )


def _url(other: Mapping[str, Any]) -> str:
    return str(other.get("urlPrefix", "")).rstrip("/")


def _listed(others: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(map(_url, others)) or "none"
