"""The table of resources: one row for each kind that the server knows, with the rules that its kind has.

Belongs here: the rows, and the rules that are too short for a file of their own. Never: a verb.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from accelshare.testing.api_server import pods
from accelshare.testing.api_server.errors import FieldError, Object, invalid
from accelshare.testing.api_server.selectors import Fields
from accelshare.testing.api_server.values import parse_quantity

NAMES: Final = ("metadata.name", "metadata.namespace")
NOT_SUPPORTED: Final = "field label not supported: {field}"
NOT_KNOWN: Final = '"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _nothing(_: Object) -> None:
    """The default for a kind without this rule."""


def _no_problems(_: Object) -> Iterable[FieldError]:
    return ()


def _no_update_problems(_new: Object, _old: Object) -> Iterable[FieldError]:
    return ()


def _keep_nothing(_new: Object, _old: Object) -> None:
    """The default for a kind whose updates may change everything."""


def _names(item: Mapping[str, Any]) -> Mapping[str, str]:
    metadata = item["metadata"]
    return {"metadata.name": metadata["name"], "metadata.namespace": metadata.get("namespace", "")}


@dataclass(frozen=True, slots=True)
class ApiResource:
    """One resource, and how it differs from the defaults below."""

    plural: str
    kind: str
    group: str = ""
    namespaced: bool = True
    name_is_label: bool = False  # names are DNS labels; otherwise DNS subdomains
    put_creates: bool = False  # PUT of an object that is not there creates it
    put_needs_version: bool = False  # PUT without a resourceVersion is refused
    answers_deleted: bool = False  # DELETE responds with the object; otherwise with a Status
    # The fields of a field selector, how to read them, and the error for any other field.
    field_names: tuple[str, ...] = NAMES
    fields: Fields = _names
    unknown_field: str = NOT_KNOWN
    # Fill in what a client left out: at every write. ValueError: a value that is none.
    default: Callable[[Object], None] = _nothing
    # What the server alone decides for a new object.
    on_create: Callable[[Object], None] = _nothing
    # What an update of the object, or of its status, cannot touch; no `on_status_update`, no status subresource.
    on_update: Callable[[Object, Object], None] = _keep_nothing
    on_status_update: Callable[[Object, Object], None] | None = None
    problems: Callable[[Object], Iterable[FieldError]] = _no_problems
    update_problems: Callable[[Object, Object], Iterable[FieldError]] = _no_update_problems
    # How many seconds a deletion takes; None: deletion is immediate.
    grace_s: Callable[[Object, int | None], int] | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/v1" if self.group else "v1"

    def key(self, namespace: str, name: str) -> str:
        return f"{namespace}/{name}" if self.namespaced else name


_CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_CONFIG_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    f"'key-name', regex used for validation is '{_CONFIG_KEY.pattern}')"
)


def _default_config_map(config_map: Object) -> None:
    if not all(isinstance(value, str) for value in config_map.get("data", {}).values()):
        raise ValueError("json: cannot unmarshal a value into Go struct field ConfigMap.data of type string")


def _config_map_problems(config_map: Object) -> Iterable[FieldError]:
    for key in config_map.get("data", {}):
        if not _CONFIG_KEY.fullmatch(key):
            yield invalid(f"data[{key}]", key, _CONFIG_KEY_TEXT)


def _default_node(node: Object) -> None:
    node.setdefault("spec", {})
    status = node.setdefault("status", {})
    for field in ("capacity", "allocatable"):
        if field in status:
            status[field] = {name: parse_quantity(amount).text for name, amount in status[field].items()}
    if "capacity" in status:
        status.setdefault("allocatable", dict(status["capacity"]))


def _keep_status(new: Object, old: Object) -> None:
    new["status"] = old["status"]


def _keep_spec(new: Object, old: Object) -> None:
    new["spec"] = old["spec"]


def _node_problems(node: Object) -> Iterable[FieldError]:
    for field in ("capacity", "allocatable"):
        for resource, amount in node["status"].get(field, {}).items():
            yield from pods.amount_problems(resource, parse_quantity(amount), f"status.{field}.{resource}")


def _node_fields(node: Mapping[str, Any]) -> Mapping[str, str]:
    unschedulable = "true" if node["spec"].get("unschedulable") else "false"
    return {"metadata.name": node["metadata"]["name"], "spec.unschedulable": unschedulable}


def _default_namespace(namespace: Object) -> None:
    metadata = namespace["metadata"]
    if metadata.get("name"):
        metadata["labels"] = metadata.get("labels", {}) | {"kubernetes.io/metadata.name": metadata["name"]}


def _new_namespace(namespace: Object) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _namespace_fields(namespace: Mapping[str, Any]) -> Mapping[str, str]:
    return {"metadata.name": namespace["metadata"]["name"], "status.phase": namespace["status"]["phase"]}


def _keep_namespace(new: Object, old: Object) -> None:
    _keep_spec(new, old)
    _keep_status(new, old)


_INVOLVED: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _event_fields(event: Mapping[str, Any]) -> Mapping[str, str]:
    involved = event.get("involvedObject", {})
    reporter = event.get("reportingComponent", "")
    return dict(_names(event)) | {
        "reason": event.get("reason", ""),
        "reportingComponent": reporter,
        "source": event.get("source", {}).get("component", "") or reporter,
        "type": event.get("type", ""),
        **{f"involvedObject.{field}": involved.get(field, "") for field in _INVOLVED},
    }


def _event_problems(event: Object) -> Iterable[FieldError]:
    # Events about nodes, which have no namespace, go to "default".
    involved = event.get("involvedObject", {}).get("namespace", "")
    if event["metadata"]["namespace"] != (involved or "default"):
        yield invalid("involvedObject.namespace", involved, "does not match event.namespace")


RESOURCES: Final[Mapping[str, ApiResource]] = {
    resource.plural: resource
    for resource in (
        ApiResource(
            plural="pods",
            kind="Pod",
            answers_deleted=True,
            field_names=(
                *NAMES,
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.phase",
                "status.podIP",
                "status.nominatedNodeName",
            ),
            fields=pods.selectable,
            unknown_field=NOT_SUPPORTED,
            default=pods.default,
            on_create=pods.on_create,
            on_update=pods.on_update,
            on_status_update=pods.on_status_update,
            problems=pods.problems,
            update_problems=pods.update_problems,
            grace_s=pods.grace_s,
        ),
        ApiResource(
            plural="nodes",
            kind="Node",
            namespaced=False,
            field_names=("metadata.name", "spec.unschedulable"),
            fields=_node_fields,
            unknown_field=NOT_SUPPORTED,
            default=_default_node,
            on_update=_keep_status,
            on_status_update=_keep_spec,
            problems=_node_problems,
        ),
        ApiResource(
            plural="events",
            kind="Event",
            put_creates=True,
            field_names=(*NAMES, "reason", "reportingComponent", "source", "type", *(f"involvedObject.{f}" for f in _INVOLVED)),
            fields=_event_fields,
            unknown_field=NOT_SUPPORTED,
            problems=_event_problems,
        ),
        ApiResource(plural="configmaps", kind="ConfigMap", default=_default_config_map, problems=_config_map_problems),
        ApiResource(
            plural="namespaces",
            kind="Namespace",
            namespaced=False,
            name_is_label=True,
            answers_deleted=True,
            field_names=("metadata.name", "status.phase"),
            fields=_namespace_fields,
            unknown_field=NOT_SUPPORTED,
            default=_default_namespace,
            on_create=_new_namespace,
            on_update=_keep_namespace,
        ),
        ApiResource(plural="leases", kind="Lease", group="coordination.k8s.io", put_creates=True, put_needs_version=True),
        # Stored as written: there are no controllers that give a Service its address, a quota its status or a DaemonSet its pods.
        ApiResource(plural="services", kind="Service"),
        ApiResource(plural="endpointslices", kind="EndpointSlice", group="discovery.k8s.io"),
        ApiResource(plural="resourcequotas", kind="ResourceQuota"),
        ApiResource(plural="deployments", kind="Deployment", group="apps"),
        ApiResource(plural="daemonsets", kind="DaemonSet", group="apps"),
    )
}
