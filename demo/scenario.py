"""What the demo runs: the nodes, manifests and steps of examples/demo/scenario.yaml.

Belongs here: reading the scenario and the manifests that it names, and the pods that a workload's controller would create.
Never: running them.
"""

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml


class DemoError(Exception):
    """The demo cannot go on, or saw something that accelshare promises never happens. Its text is for the user."""


EXAMPLES: Final = Path(__file__).parents[1] / "examples"
SCENARIO: Final = EXAMPLES / "demo" / "scenario.yaml"

Object = dict[str, Any]


class DemoStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A title, and manifests to apply or one pod (`namespace/name`) to delete."""

    title: str
    apply: tuple[str, ...] = ()
    delete: str = ""


class ScenarioNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file with one Node, and the profile of its cards."""

    file: str
    vendor: str


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nodes: tuple[ScenarioNode, ...]
    steps: tuple[DemoStep, ...]
    profiles: str = ""  # directory of profiles that declare the nodes' cards

    @property
    def profiles_directory(self) -> Path:
        return EXAMPLES / self.profiles


def load_scenario(path: Path = SCENARIO) -> Scenario:
    try:
        return msgspec.convert(_documents(path)[0], Scenario)
    except msgspec.ValidationError as error:
        raise DemoError(f"{path}: {error}") from error


def manifests(name: str) -> list[Object]:
    """All objects of one file of examples/, YAML or JSON."""
    return _documents(EXAMPLES / name)


def _documents(path: Path) -> list[Object]:
    try:
        documents = [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]
    except OSError as error:
        raise DemoError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise DemoError(f"{path} is not YAML: {error}") from error
    if not documents or not all(isinstance(document, dict) for document in documents):
        raise DemoError(f"{path} contains no objects")
    return documents


CONTROLLED: Final = ("Deployment", "StatefulSet")


def pods_of(manifest: Object) -> list[Object]:
    """The pods that a manifest's controller would create, each replica under a number. The workload itself is not created."""
    kind = manifest.get("kind")
    if kind == "Pod":
        return [manifest]
    if kind not in CONTROLLED:
        raise DemoError(f"the demo runs Pods, {' and '.join(f'{kind}s' for kind in CONTROLLED)}, not a {kind}")
    spec, own = manifest["spec"], manifest["metadata"]
    return [_replica(spec["template"], own, number) for number in range(spec.get("replicas", 1))]


def _replica(template: Object, owner: Object, number: int) -> Object:
    metadata = {**template.get("metadata", {}), "name": f"{owner['name']}-{number}"}
    if "namespace" in owner:
        metadata["namespace"] = owner["namespace"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
