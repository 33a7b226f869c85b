"""From a manifest to the pods that its controller would create.

Belongs here: a stand-in for the Deployment and StatefulSet controllers that makes each replica once, under a number. The
workload itself is not created: nothing would look after it. Never: changing what the template asks for.
"""

from typing import Final

from demo.errors import DemoError
from demo.playlist import Object

CONTROLLED: Final = ("Deployment", "StatefulSet")


def pods_of(manifest: Object) -> list[Object]:
    kind = manifest.get("kind")
    if kind == "Pod":
        return [manifest]
    if kind not in CONTROLLED:
        raise DemoError(f"the demo plays Pods, {' and '.join(f'{kind}s' for kind in CONTROLLED)}, not a {kind}")
    spec, own = manifest["spec"], manifest["metadata"]
    return [_replica(spec["template"], own, number) for number in range(spec.get("replicas", 1))]


def _replica(template: Object, owner: Object, number: int) -> Object:
    metadata = {**template.get("metadata", {}), "name": f"{owner['name']}-{number}"}
    if "namespace" in owner:
        metadata["namespace"] = owner["namespace"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
