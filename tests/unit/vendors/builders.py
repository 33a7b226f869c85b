"""Profiles for tests: an invented vendor, complete in every key, and variants of it."""

from copy import deepcopy
from pathlib import Path
from typing import Any

from accelshare.vendors.command import as_toml
from accelshare.vendors.problems import ProfileError
from accelshare.vendors.profile import Profile
from accelshare.vendors.validation import parse

COMPLETE: dict[str, Any] = {
    "name": "acme",
    "title": "Acme ZPU (zpushare)",
    "noun": "ZPU",
    "node_label": "acme.example/share=true",
    "unverified": ["resources.count", "unit.mib.GiB", "texts.no-cards", "container.env.ACME_VISIBLE"],
    "resources": {"memory": "acme.example/zpu-mem", "count": "acme.example/zpu-count", "whole": "acme.example/zpu"},
    "request": {"cards_label": "acme.example/cards", "max_cards": 16, "max_whole_cards": 4},
    "unit": {"default": "GiB", "mib": {"GiB": 1024, "0.1": 102.4}, "labels": {"0.1": "0.1 GB"}},
    "annotations": {
        "index": "ACME_IDX",
        "card_size": "ACME_DEV",
        "pod_units": "ACME_POD",
        "assigned": "ACME_ASSIGNED",
        "assign_time": "ACME_TIME",
    },
    "http": {"prefix": "/zpushare-scheduler", "node_port": 32000},
    "inspect": {
        "command": "zpushare",
        "total": "totalZPU",
        "used": "usedZPU",
        "available": "availableZPU",
        "cards": "devs",
        "pod_uid": True,
        "pod_created": True,
    },
    "texts": {"no-cards": "nothing here"},
    "unhealthy": {"namespace": "ops", "name": "unhealthy-zpu-{node}", "key": "zpus"},
    "hardware": {"device_nodes": ["/dev/zpu{minor}"], "shared_device_nodes": ["/dev/zpuctl"]},
    "driver": {
        "name": "static",
        "libraries": ["libzpu.so.1"],
        "tools": ["zpu-smi"],
        "timeout_s": 3,
        "every_s": 0.5,
        "static": {
            "cards": [
                {"memory_mib": 16384, "id": "Z-A", "model": "Z1", "minor": 7, "numa": 1, "pci": "0000:3b:00.0"},
                {"count": 2, "memory_mib": 8192, "index": 4},
            ],
        },
        "processes": {"command": ["zpu-smi", "-p"], "pattern": r"(?P<index>\d+) (?P<pid>\d+) (?P<memory_mib>\d+)"},
    },
    "container": {
        "strategy": ["envvar", "volume-mounts", "device-nodes", "cdi"],
        "env": {"ACME_VISIBLE": "{index}", "ACME_BYTES": "{bytes}"},
        "annotations": {"acme.example/cards": "{id}"},
        "node_label_env": {"acme.example/fast=true": "ACME_FAST=1"},
        "envvar": {"ACME_CARDS": "{id}"},
        "volume_mounts": {"host_path": "/dev/zero", "container_path": "/run/zpu/{id}", "env": {"ACME_CARDS": "/run/zpu"}},
        "device_nodes": {"permissions": "rwm", "env": {"ACME_CARDS": "void"}},
        "cdi": {"name": "acme.example/zpu={id}", "write_spec": False, "env": {"ACME_CDI": "yes"}},
    },
    "enforcement": {
        "order": ["runtime", "nobody"],
        "ways": {
            "runtime": {
                "env": {"ACME_LIMIT": "{share_bytes}"},
                "requires": [
                    {"file": "/sys/module/zpu/version", "at_least": "2.1"},
                    {"command": ["zpu-runtime", "--version"], "pattern": "v([0-9.]+)", "at_least": "1.0"},
                ],
            },
            "late": {"env": {"ACME_LATE": "{mib}"}},
        },
    },
}

SMALLEST: dict[str, Any] = {"name": "tiny", "title": "Tiny", "noun": "TPU", "resources": {"whole": "tiny.example/tpu"}}

NOTHING: Any = object()  # as a value: the key is not there


def saying(key: str, value: object, base: dict[str, Any] = COMPLETE) -> dict[str, Any]:
    """The base with one dotted key set to this value, or taken away."""
    data = deepcopy(base)
    *path, last = key.split(".")
    table = data
    for name in path:
        table = table.setdefault(name, {})
    if value is NOTHING:
        del table[last]
    else:
        table[last] = value
    return data


def another(name: str) -> dict[str, Any]:
    """A profile that shares nothing with the others."""
    return {"name": name, "title": name, "noun": "GPU", "resources": {"whole": f"{name}.example/card"}}


def problems_of(data: dict[str, Any]) -> list[str]:
    """What is wrong with this data, line by line; nothing if it makes a profile."""
    try:
        parse(data, file="acme.toml")
    except ProfileError as error:
        return [str(problem) for problem in error.problems]
    return []


def profile(**over: object) -> Profile:
    """The complete profile with other values for some top-level keys."""
    return parse({**COMPLETE, **over}, file="acme.toml")


def write(directory: Path, name: str, text: str) -> Path:
    """A profile file, its directory made if need be."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return file


def as_file(data: dict[str, Any]) -> str:
    """The text of a file with this content."""
    return as_toml(parse(data, file="builder"))
