"""Renders the chart with the real helm and finds objects in the result.

Belongs here: calling and finding. Never: expectations.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from deploy.render import CHART, PRESETS, documents, template

Object = dict[str, Any]


def preset(*names: str) -> list[str]:
    return [f"--values={CHART / 'presets' / f'{name}.yaml'}" for name in names]


def setting(**values: object) -> list[str]:
    """`setting(tls__enabled=False)`: two underscores are a dot."""
    return [f"--set-json={name.replace('__', '.')}={json.dumps(value)}" for name, value in values.items()]


class Strict(yaml.SafeLoader):
    """PyYAML takes the last of two equal keys without a word; kubectl takes neither."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key occurs twice in {sorted(map(str, keys))}{node.start_mark}"
        return super().construct_mapping(node, deep)


def objects(*arguments: str | Path, **more: str) -> list[Object]:
    """Everything that the chart makes with these arguments, read strictly."""
    return [yaml.load(document.text, Strict) for document in documents(template(*arguments, **more))]  # noqa: S506 – a SafeLoader


def hook(thing: Object) -> str:
    return str((thing["metadata"].get("annotations") or {}).get("helm.sh/hook", ""))


def named(things: list[Object], kind: str) -> list[str]:
    return [thing["metadata"]["name"] for thing in things if thing["kind"] == kind]


def one(things: list[Object], kind: str, name: str = "") -> Object:
    found = [thing for thing in things if thing["kind"] == kind and name in ("", thing["metadata"]["name"])]
    assert len(found) == 1, f"{kind} {name}: {named(things, kind)}"
    return found[0]


def pods(things: list[Object]) -> Iterator[tuple[str, Object]]:
    """Every pod that the objects make, as (kind/name, its spec)."""
    for thing in things:
        title = f"{thing['kind']}/{thing['metadata']['name']}"
        match thing["kind"]:
            case "Pod":
                yield title, thing["spec"]
            case "Deployment" | "DaemonSet" | "Job":
                yield title, thing["spec"]["template"]["spec"]
            case "CronJob":
                yield title, thing["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def containers(pod: Object) -> list[Object]:
    return [*pod.get("initContainers", []), *pod["containers"]]


# Values that a person might choose, alone and together.
ALL = tuple(PRESETS.values())
SECOND = setting(scheduler__mode="second")
EVERYTHING = [*preset(*ALL), *setting(nodes__names=["n1"])]
MIXTURES = [
    *(preset(name) for name in ALL),
    preset(*ALL),
    preset("fake"),
    [*preset("gpushare"), *SECOND],
    [*preset("gcushare"), *setting(scheduler__mode="none", tls__enabled=False, logs__directory="/var/log/accelshare")],
    [*preset("xpushare"), *setting(nodes__names=["n1", "n2"], profiles={"mine.toml": 'name = "mine"'}, metrics__podMonitor=True)],
    [*preset("stc"), *setting(openshift__enabled=True, networkPolicy__enabled=False, admissionPolicy__enabled=False)],
    [*preset("gpushare"), *setting(agent__usage={"enabled": True, "everySeconds": 30, "evictOverUseAfterSeconds": 600})],
    [*preset("xpushare"), *setting(metrics__prometheusRule=True, metrics__grafanaDashboard=True, metrics__interval="30s")],
    [*preset("gpushare"), *SECOND, *setting(hooks__enabled=False, agent__extraEnv=[{"name": "A", "value": "b"}])],
    [*preset("stc"), *setting(rbac__create=False, nodes__selector={"pool": "npu"}, image__digest="sha256:" + "0" * 64)],
]
