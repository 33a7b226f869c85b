"""The nodes and pods of the benchmarks, as Kubernetes objects.

Belongs here: manifests, and kube-scheduler's requests with them. Never: sending them.
"""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

Object = dict[str, Any]

MEMORY: Final = "aliyun.com/gpu-mem"
COUNT: Final = "aliyun.com/gpu-count"
CARDS: Final = 8
CARD_UNITS: Final = 16
SHARE: Final = 4  # units that each pod of the queue requests
FULL_SHARE: Final = 13  # of each card of a full node: no card has enough left, though all together have
ASSIGNMENT: Final = "accelshare.io/assignment"
CARD_COUNT: Final = "accelshare.io/card-count"
GPUSHARE_RECORD: Final = "ALIYUN_COM_GPU_MEM_IDX"
PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
PRIORITIES: Final = {"bench-low": -10, "bench-middle": 10, "bench-high": 1000}
# Units, cards and CPU of the pods of a mixed queue.
_SHARES: Final = ((1, 1), (2, 1), (3, 1), (4, 1), (6, 1), (8, 1), (12, 1), (16, 1), (8, 2), (24, 2))
SHAPES: Final = tuple((units, cards, cpu) for cpu in ("500m", "2") for units, cards in _SHARES)


def node_name(number: int) -> str:
    """As long as the names of cloud providers, because calls contain thousands of them."""
    return f"accelerated-pool-a-{number:05d}.internal.example"


def node(number: int) -> Object:
    name = node_name(number)
    cards = [
        {"index": index, "id": f"GPU-{number:08x}-{index:04x}-4000", "minor": index, "size": CARD_UNITS} for index in range(CARDS)
    ]
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "250", MEMORY: str(CARDS * CARD_UNITS), COUNT: str(CARDS)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"},
            "annotations": {"accelshare.io/inventory": json.dumps({"nvidia": {"unit": "GiB", "cards": cards}})},
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod(name: str, *, units: int = SHARE) -> Object:
    """An ordinary pod: a container with a few variables and mounts."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"app": "inference", "team": "vision", "pod-template-hash": "6d5f9c7b8d"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
        },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/vision/inference:2026.10.1",
                    "args": ["--model=/models/resnet", "--batch-size=32", "--port=8080"],
                    "env": [{"name": f"SETTING_{number}", "value": f"value-{number}"} for number in range(8)],
                    "ports": [{"name": "http", "containerPort": 8080}],
                    "resources": {"limits": {MEMORY: str(units), "cpu": "500m", "memory": "1Gi"}},
                    "volumeMounts": [
                        {"name": "models", "mountPath": "/models", "readOnly": True},
                        {"name": "scratch", "mountPath": "/scratch"},
                    ],
                    "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
                }
            ],
            "volumes": [{"name": "models", "hostPath": {"path": "/srv/models"}}, {"name": "scratch", "emptyDir": {}}],
        },
    }


def mixed_pods(shapes: int) -> Callable[[str], Object]:
    """Makes pods whose shapes and priorities take turns, in a fixed order that mixes them."""
    turns = itertools.count()

    def one(name: str) -> Object:
        turn = next(turns)
        units, cards, cpu = SHAPES[:shapes][turn * 7 % shapes]
        made = pod(name, units=units)
        made["metadata"]["annotations"] |= {CARD_COUNT: str(cards)} if cards > 1 else {}
        made["spec"]["containers"][0]["resources"]["limits"]["cpu"] = cpu
        made["spec"]["priorityClassName"] = list(PRIORITIES)[turn * 5 % 17 % len(PRIORITIES)]
        return made

    return one


def priority_classes() -> list[Object]:
    """They preempt nobody: there is room for all."""
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "preemptionPolicy": "Never"}
    return [{**kind, "metadata": {"name": name}, "value": value} for name, value in PRIORITIES.items()]


def bound_pod(name: str, *, node: int, cards: Sequence[int], share: int) -> Object:
    """A bound pod with accelshare's record."""
    made = pod(name, units=share * len(cards))
    entries = [{"index": card, "id": f"GPU-{node:08x}-{card:04x}-4000", "units": share} for card in cards]
    made["metadata"]["annotations"] |= {
        ASSIGNMENT: json.dumps({"nvidia": entries}),
        CARD_COUNT: str(len(cards)),
        "ALIYUN_COM_GPU_MEM_IDX": ",".join(str(card) for card in cards),
        "ALIYUN_COM_GPU_MEM_DEV": str(CARD_UNITS),
        "ALIYUN_COM_GPU_MEM_POD": str(share * len(cards)),
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1760000000000000000",
    }
    made["spec"]["nodeName"] = node_name(node)
    return made


def filler(number: int) -> Object:
    """A pod that leaves a little of each card of its node: the next pod fits the node's sum, but no card."""
    return bound_pod(f"filler-{number:05d}", node=number, cards=range(CARDS), share=FULL_SHARE)


def crowd_pod(number: int, nodes: int) -> Object:
    """One of many pods spread over all nodes, and over the cards of each."""
    return bound_pod(f"crowd-{number:05d}", node=number % nodes, cards=[number // nodes % CARDS], share=SHARE // 2)


def preferring(pod: Object) -> Object:
    """The same pod with a preferred node affinity, for which filter returns every node that fits."""
    term = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod | {"spec": pod["spec"] | {"affinity": affinity}}


def names_json(nodes: int) -> bytes:
    return orjson.dumps([node_name(number) for number in range(nodes)])


def call_with_names(pod: bytes, names: bytes) -> bytes:
    """A filter or prioritize call of a scheduler whose extender is nodeCacheCapable."""
    return b'{"Pod":' + pod + b',"Nodes":null,"NodeNames":' + names + b"}"


def call_with_nodes(pod: bytes, nodes: Sequence[Object]) -> bytes:
    """The same call if the extender is not: complete nodes without managedFields, which schedulers drop."""
    items = [
        node | {"metadata": {key: value for key, value in node["metadata"].items() if key != "managedFields"}} for node in nodes
    ]
    return b'{"Pod":' + pod + b',"Nodes":' + orjson.dumps({"metadata": {}, "items": items}) + b',"NodeNames":null}'


def bind_call(name: str, uid: str, node: str) -> bytes:
    return orjson.dumps({"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": node})


def gpushare_entry(url: str) -> Object:
    """gpushare's extender in the configuration of kube-scheduler, as its guide writes it."""
    return {
        "urlPrefix": f"{url}/gpushare-scheduler",
        "filterVerb": "filter",
        "bindVerb": "bind",
        "enableHTTPS": False,
        "nodeCacheCapable": True,
        "httpTimeout": "30s",
        "managedResources": [{"name": MEMORY, "ignoredByScheduler": False}],
    }


def entry(url: str, tls: Mapping[str, str] | None = None) -> Object:
    """Our extender in the configuration of kube-scheduler."""
    made: Object = {
        "urlPrefix": f"{url}/accelshare",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": 1000,
        "nodeCacheCapable": True,
        "httpTimeout": "30s",
        "managedResources": [{"name": MEMORY, "ignoredByScheduler": False}],
    }
    return made | {"enableHTTPS": True, "tlsConfig": dict(tls)} if tls is not None else made


def scheduler_configuration(extender: Object | None = None) -> Object:
    """Scores every node and lifts the client limits, with the entry of an extender and without."""
    config: Object = {"percentageOfNodesToScore": 100, "clientConnection": {"qps": 100_000, "burst": 100_000}}
    return config | {"extenders": [extender]} if extender is not None else config
