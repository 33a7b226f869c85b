"""Turns request bodies into objects: typed, without nulls, with defaults, and by the three kinds of patch.

Belongs here: what the real server's typed decoding refuses or drops, and how a patch changes an object; neither the stored object
nor the patch is changed. Never: what validation refuses.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, Final

from accelshare.testing.api_server.errors import FieldError, Object, RequestError, bad_request, invalid_object
from accelshare.testing.api_server.resources import ApiResource

_JSON_NAMES: Final = {bool: "bool", int: "number", float: "number", list: "array", dict: "object", str: "string"}
# Left out by the real server when there is nothing in them.
_OMITTED_EMPTY: Final = ("labels", "annotations")


def decode(resource: ApiResource, body: Any) -> Object:
    """A copy of the body as an object of this resource, with defaults; 400 if it is not one."""
    if not isinstance(body, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind})")
    kind, version = body.get("kind") or resource.kind, body.get("apiVersion") or resource.api_version
    if (kind, version) != (resource.kind, resource.api_version):
        raise _mistyped(resource, f"{kind} in version {version} was sent", kind=kind)
    item: Object = {"kind": kind, "apiVersion": version, "metadata": {}} | _without_empty(body)
    metadata = item["metadata"]
    _check_type(resource, "metadata", metadata, dict)
    for field in ("labels", "annotations"):
        for value in _check_type(resource, f"metadata.{field}", metadata.get(field, {}), dict).values():
            _check_type(resource, f"ObjectMeta.metadata.{field}", value, str)
    for field in ("name", "namespace", "uid", "resourceVersion", "generateName"):
        _check_type(resource, f"ObjectMeta.metadata.{field}", metadata.get(field, ""), str)
    for field in _OMITTED_EMPTY:
        if not metadata.get(field, True):
            del metadata[field]
    try:
        resource.default(item)
    except ValueError as error:
        raise _mistyped(resource, str(error)) from error
    except (AttributeError, TypeError, KeyError) as error:
        raise _mistyped(resource, f"a field has another type than the kind has there ({error})") from error
    return item


def decode_patched(resource: ApiResource, body: Any) -> Object:
    """Decode the result of a patch; errors name the patch."""
    try:
        return decode(resource, body)
    except RequestError as error:
        raise invalid_object("", "", [FieldError("patch", f"Invalid value: {error}")]) from error


def _check_type(resource: ApiResource, field: str, value: Any, wanted: type) -> Any:
    if not isinstance(value, wanted):
        message = f"json: cannot unmarshal {_JSON_NAMES[type(value)]} into Go struct field {field} of type {_JSON_NAMES[wanted]}"
        raise _mistyped(resource, message)
    return value


def _mistyped(resource: ApiResource, why: str, *, kind: str = "") -> RequestError:
    return bad_request(f'{kind or resource.kind} in version "v1" cannot be handled as a {resource.kind}: {why}')


def _without_empty(value: Any) -> Any:
    """A deep copy without nulls and empty lists, which Kubernetes treats as absent."""
    if type(value) is dict:
        return {key: _without_empty(inner) for key, inner in value.items() if inner is not None and inner != []}
    if type(value) is list:
        return [_without_empty(inner) for inner in value]
    return value


# Lists that a strategic merge patch merges item by item, with the key that identifies an item; None: a list of plain values.
# All other lists are replaced. From the patchMergeKey tags of Kubernetes' types, for the kinds that this server has.
MERGE_KEYS: Final[Mapping[str, str | None]] = {
    "metadata.ownerReferences": "uid",
    "metadata.finalizers": None,
    "spec.containers": "name",
    "spec.initContainers": "name",
    "spec.ephemeralContainers": "name",
    "spec.volumes": "name",
    "spec.imagePullSecrets": "name",
    "spec.hostAliases": "ip",
    "spec.topologySpreadConstraints": "topologyKey",
    "spec.schedulingGates": "name",
    "spec.resourceClaims": "name",
    "spec.podCIDRs": None,
    "status.conditions": "type",
    "status.addresses": "type",
    "status.podIPs": "ip",
    "status.hostIPs": "ip",
    "status.resourceClaimStatuses": "name",
} | {
    f"spec.{containers}.{field}": key
    for containers in ("containers", "initContainers", "ephemeralContainers")
    for field, key in {
        "env": "name",
        "ports": "containerPort",
        "volumeMounts": "mountPath",
        "volumeDevices": "devicePath",
    }.items()
}

_UNPROCESSABLE: Final = "the server rejected our request due to an error in our request"


def apply_patch(content_type: str, target: Object, patch: Any) -> Object:
    """The object with the patch applied; 415 for an unknown kind of patch."""
    kind = content_type.partition(";")[0].strip()
    if kind not in KINDS:
        known = ", ".join(KINDS)
        text = f"the body of the request was in an unknown format - accepted media types include: {known}"
        raise RequestError("UnsupportedMediaType", text)
    return KINDS[kind](target, patch)


def json_patch(target: Object, patch: Any) -> Object:
    """RFC 6902: operations in order, all or none."""
    if not isinstance(patch, list) or not all(isinstance(step, dict) for step in patch):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    document: Any = {"root": deepcopy(target)}
    for step in patch:
        try:
            _operation(document, step)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise RequestError("Invalid", _UNPROCESSABLE) from error
    result: Object = document["root"]
    return result


def merge_patch(target: Object, patch: Any) -> Object:
    """RFC 7386: maps are merged, null deletes, anything else replaces."""
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: a merge patch is an object")
    merged: Object = _merge(target, patch)
    return merged


def strategic_patch(target: Object, patch: Any) -> Object:
    """Like a merge patch, but known lists are merged by their key, and `$patch` can delete or replace."""
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: a strategic merge patch is an object")
    return _strategic(target, patch, "")


KINDS: Final[Mapping[str, Callable[[Object, Any], Object]]] = {
    "application/json-patch+json": json_patch,
    "application/merge-patch+json": merge_patch,
    "application/strategic-merge-patch+json": strategic_patch,
}


def _operation(document: Any, step: Object) -> None:
    """One operation. If a key of a map is missing, replace adds it and copy reads null, as kube-apiserver's library does."""
    match step["op"]:
        case "add":
            _add(document, step["path"], deepcopy(step["value"]))
        case "remove":
            _take(document, step["path"])
        case "replace":
            _set(document, step["path"], deepcopy(step["value"]))
        case "move":
            _add(document, step["path"], _take(document, step["from"]))
        case "copy":
            _add(document, step["path"], deepcopy(_find(document, step["from"])))
        case "test":
            if _find(document, step["path"]) != step.get("value"):
                raise ValueError(f"testing value {step['path']} failed")
        case unknown:
            raise ValueError(f"unknown operation {unknown!r}")


def _locate(document: Any, pointer: str) -> tuple[Any, str]:
    """The map or list that contains the target of a JSON pointer, and the last step of the pointer."""
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} is not a JSON pointer")
    *steps, last = ["root", *(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])]
    for step in steps:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document, last


def _find(document: Any, pointer: str) -> Any:
    container, step = _locate(document, pointer)
    return container[int(step)] if isinstance(container, list) else container.get(step)


def _set(document: Any, pointer: str, value: Any) -> None:
    container, step = _locate(document, pointer)
    container[int(step) if isinstance(container, list) else step] = value


def _add(document: Any, pointer: str, value: Any) -> None:
    container, step = _locate(document, pointer)
    if not isinstance(container, list):
        container[step] = value
        return
    index = len(container) if step == "-" else int(step)
    if index > len(container):
        raise IndexError(step)
    container.insert(index, value)


def _take(document: Any, pointer: str) -> Any:
    container, step = _locate(document, pointer)
    return container.pop(int(step) if isinstance(container, list) else step)


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


def _strategic(target: Any, patch: Object, path: str) -> Object:
    match patch.get("$patch"):
        case "delete":
            return {}
        case "replace":
            return {key: deepcopy(value) for key, value in patch.items() if key != "$patch"}
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            merged[name] = [item for item in merged.get(name, []) if item not in value]
        elif key.startswith("$"):
            continue  # orders of lists and retained keys: hints of kubectl that our clients do not send
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _strategic_value(merged.get(key), value, f"{path}.{key}" if path else key)
    return merged


def _strategic_value(target: Any, patch: Any, path: str) -> Any:
    if isinstance(patch, dict):
        return _strategic(target, patch, path)
    if not isinstance(patch, list) or path not in MERGE_KEYS:
        return deepcopy(patch)
    key = MERGE_KEYS[path]
    current = target if isinstance(target, list) else []
    if key is None:
        return _ordered(dict.fromkeys(patch), dict.fromkeys(current))
    return _merge_items(current, patch, key, path)


def _merge_items(current: list[Object], patch: list[Object], key: str, path: str) -> list[Object]:
    for item in patch:
        if item.get("$patch") != "replace" and key not in item:
            raise RequestError("", f"map: {item} does not contain declared merge key: {key}")
    if any(item.get("$patch") == "replace" for item in patch):
        return [deepcopy(item) for item in patch if item.get("$patch") != "replace"]
    deleted = {item[key] for item in patch if item.get("$patch") == "delete"}
    kept = {item.get(key): item for item in current if item.get(key) not in deleted}
    patched = {item[key]: _strategic(kept.get(item[key]), item, path) for item in patch if item[key] not in deleted}
    return [patched.get(name) or kept[name] for name in _ordered(patched, kept)]


def _ordered(patched: Iterable[Any], current: Iterable[Any]) -> list[Any]:
    """The order of a merged list: the patch's keys in its order, and before each the unpatched keys that preceded it."""
    place = {key: index for index, key in enumerate(current)}
    coming = [*patched]
    untouched = deque(key for key in place if key not in coming)
    order = []
    for key in coming:
        while untouched and key in place and place[untouched[0]] < place[key]:
            order.append(untouched.popleft())
        order.append(key)
    return [*order, *untouched]
