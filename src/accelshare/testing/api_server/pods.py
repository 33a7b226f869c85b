"""What the API server does to pods beyond storing them: defaults, validation, binding, graceful deletion.

Belongs here: the rules that scheduling relies on and the mistakes that users make. Never: fields that accelshare does not read.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from accelshare.testing.api_server.errors import FieldError, Object, duplicate, forbidden_field, invalid, quoted, required
from accelshare.testing.api_server.values import ExactQuantity, label_problem, parse_quantity, qualified_name_problem

SPEC_DEFAULTS: Final[Mapping[str, Any]] = {
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}
CONTAINER_DEFAULTS: Final[Mapping[str, Any]] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
CONTAINER_LISTS: Final = ("containers", "initContainers")
# The mutable fields of a pod's spec.
UPDATABLE: Final = ("activeDeadlineSeconds", "schedulingGates", "tolerations")
NOT_UPDATABLE_TEXT: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
ENDED: Final = frozenset({"Succeeded", "Failed"})
NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage", "storage"})


def default(pod: Object) -> None:
    """Set the defaults. ValueError for a malformed quantity."""
    spec = pod.setdefault("spec", {})
    for key, value in SPEC_DEFAULTS.items():
        spec.setdefault(key, value)
    spec.setdefault("securityContext", {})
    for container in _containers(spec):
        for key, value in CONTAINER_DEFAULTS.items():
            container.setdefault(key, value)
        container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
        resources = container.setdefault("resources", {})
        for side in ("limits", "requests"):
            if side in resources:
                resources[side] = {name: parse_quantity(amount).text for name, amount in resources[side].items()}
        if limits := resources.get("limits"):
            resources["requests"] = limits | resources.get("requests", {})


def on_create(pod: Object) -> None:
    """A new pod is Pending, whatever its manifest says."""
    pod["metadata"]["generation"] = 1
    pod["status"] = {"phase": "Pending"}
    if pod["spec"].get("schedulingGates"):
        message = "Scheduling is blocked due to non-empty scheduling gates"
        pod["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}
        ]


def on_update(new: Object, old: Object) -> None:
    """An update of the pod keeps its status; a new spec is a new generation."""
    _keep(new, old, "status")
    if new["spec"] != old["spec"]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def on_status_update(new: Object, old: Object) -> None:
    """An update of the status keeps the spec and the owner references."""
    _keep(new, old, "spec")
    _keep(new["metadata"], old["metadata"], "ownerReferences")


def problems(pod: Object) -> Iterator[FieldError]:
    """All problems of a pod's spec."""
    spec = pod["spec"]
    if not spec.get("containers"):
        yield required("spec.containers")
    seen: set[str] = set()
    for field in CONTAINER_LISTS:
        for index, container in enumerate(spec.get(field, [])):
            yield from _container_problems(container, f"spec.{field}[{index}]", seen)


def update_problems(new: Object, old: Object) -> Iterator[FieldError]:
    """All changes of immutable fields."""
    for field in CONTAINER_LISTS:
        if len(new["spec"].get(field, [])) != len(old["spec"].get(field, [])):
            yield forbidden_field(f"spec.{field}", "pod updates may not add or remove containers")
            return
    had = old["spec"].get("tolerations", [])
    if any(toleration not in new["spec"].get("tolerations", []) for toleration in had):
        yield forbidden_field("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
    gates = {gate["name"] for gate in old["spec"].get("schedulingGates", [])}
    for gate in new["spec"].get("schedulingGates", []):
        if gate["name"] not in gates:
            text = "only deletion is allowed, but found new scheduling gate"
            yield forbidden_field("spec.schedulingGates", f"{text} '{gate['name']}'")
    if _fixed(new["spec"]) != _fixed(old["spec"]):
        yield forbidden_field("spec", NOT_UPDATABLE_TEXT)


def refusal_to_bind(pod: Object) -> str:
    """Why this pod cannot be bound; empty if it can."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f"pod {name} is already assigned to node {quoted(spec['nodeName'])}"
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def bound(pod: Object, binding: Object, now: str) -> Object:
    """The pod bound to its node, with the binding's annotations and labels."""
    metadata = dict(pod["metadata"])
    for field in ("annotations", "labels"):
        if added := binding["metadata"].get(field):
            metadata[field] = metadata.get(field, {}) | added
    status = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    others = [condition for condition in status.get("conditions", []) if condition["type"] != "PodScheduled"]
    status["conditions"] = [*others, scheduled]
    return pod | {"metadata": metadata, "spec": pod["spec"] | {"nodeName": binding["target"]["name"]}, "status": status}


def grace_s(pod: Object, asked_s: int | None) -> int:
    """The grace period of a pod's deletion: 0 if it is on no node."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ENDED:
        return 0
    period = pod["spec"].get("terminationGracePeriodSeconds", 0) if asked_s is None else asked_s
    return 1 if period < 0 else int(period)


def selectable(pod: Mapping[str, Any]) -> Mapping[str, str]:
    """The pod's values for field selectors."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    addresses = status.get("podIPs", [])
    return {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.restartPolicy": spec.get("restartPolicy", ""),
        "spec.schedulerName": spec.get("schedulerName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
        "status.phase": status.get("phase", ""),
        "status.podIP": addresses[0]["ip"] if addresses else "",
        "status.nominatedNodeName": status.get("nominatedNodeName", ""),
    }


def _containers(spec: Object) -> Iterator[Object]:
    for field in CONTAINER_LISTS:
        yield from spec.get(field, [])


def _pull_policy(image: str) -> str:
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"


def _container_problems(container: Object, path: str, seen: set[str]) -> Iterator[FieldError]:
    name = container.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif problem := label_problem(name):
        yield invalid(f"{path}.name", name, problem)
    elif name in seen:
        yield duplicate(f"{path}.name", name)
    seen.add(name)
    if not container.get("image"):
        yield required(f"{path}.image")
    resources = container["resources"]
    limits = {name: parse_quantity(amount) for name, amount in resources.get("limits", {}).items()}
    requests = {name: parse_quantity(amount) for name, amount in resources.get("requests", {}).items()}
    for side, amounts in (("limits", limits), ("requests", requests)):
        for resource, amount in amounts.items():
            yield from amount_problems(resource, amount, f"{path}.resources.{side}[{resource}]")
    for resource, amount in requests.items():
        yield from _request_problems(resource, amount, limits.get(resource), f"{path}.resources")


def amount_problems(resource: str, amount: ExactQuantity, path: str) -> Iterator[FieldError]:
    """All problems of one resource's amount, in a pod or on a node."""
    if problem := qualified_name_problem(resource):
        yield invalid(path, resource, problem)
    elif "/" not in resource and resource not in NATIVE and resource != "pods" and not resource.startswith("hugepages-"):
        yield invalid(path, resource, "must be a standard resource type or fully qualified")
    if amount.amount < 0:
        yield invalid(path, amount.text, "must be greater than or equal to 0")
    if "/" in resource and not amount.is_integer:
        yield invalid(path, amount.text, "must be an integer")


def _request_problems(resource: str, request: ExactQuantity, limit: ExactQuantity | None, path: str) -> Iterator[FieldError]:
    countable = resource not in NATIVE
    if limit is None:
        if countable:
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    elif countable and request.amount != limit.amount:
        yield invalid(f"{path}.requests", request.text, f"must be equal to {resource} limit of {limit.text}")
    elif request.amount > limit.amount:
        yield invalid(f"{path}.requests", request.text, f"must be less than or equal to {resource} limit of {limit.text}")


def _fixed(spec: Object) -> Object:
    fixed = {key: value for key, value in spec.items() if key not in UPDATABLE}
    for field in CONTAINER_LISTS:
        fixed[field] = [{key: value for key, value in container.items() if key != "image"} for container in spec.get(field, [])]
    return fixed


def _keep(new: Object, old: Object, field: str) -> None:
    if field in old:
        new[field] = old[field]
    else:
        new.pop(field, None)
