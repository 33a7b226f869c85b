"""From a request's JSON to an object that the rules can work on: typed where types matter, without nulls, defaults filled in.

Belongs here: what the real server's typed decoding refuses or drops. Never: what its validation refuses.
"""

from typing import Any, Final

from accelshare.testing.api_server.errors import ApiError, FieldError, Object, bad_request, invalid_object
from accelshare.testing.api_server.resources import Resource

_JSON_NAMES: Final = {bool: "bool", int: "number", float: "number", list: "array", dict: "object", str: "string"}
# Left out by the real server when there is nothing in them.
_OMITTED_EMPTY: Final = ("labels", "annotations")


def decode(resource: Resource, body: Any) -> Object:
    """A private copy of the body as an object of this resource, with its defaults; 400 when it is not one."""
    if not isinstance(body, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind})")
    kind, version = body.get("kind") or resource.kind, body.get("apiVersion") or resource.api_version
    if (kind, version) != (resource.kind, resource.api_version):
        raise _mistyped(resource, f"{kind} in version {version} was sent", kind=kind)
    item: Object = {"kind": kind, "apiVersion": version, "metadata": {}} | _without_nothing(body)
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


def decode_patched(resource: Resource, body: Any) -> Object:
    """The same for what a patch made of a stored object: to the client it is the patch that is invalid."""
    try:
        return decode(resource, body)
    except ApiError as error:
        raise invalid_object("", "", [FieldError("patch", f"Invalid value: {error}")]) from error


def _check_type(resource: Resource, field: str, value: Any, wanted: type) -> Any:
    if not isinstance(value, wanted):
        told = f"json: cannot unmarshal {_JSON_NAMES[type(value)]} into Go struct field {field} of type {_JSON_NAMES[wanted]}"
        raise _mistyped(resource, told)
    return value


def _mistyped(resource: Resource, why: str, *, kind: str = "") -> ApiError:
    return bad_request(f'{kind or resource.kind} in version "v1" cannot be handled as a {resource.kind}: {why}')


def _without_nothing(value: Any) -> Any:
    """A deep copy: to Kubernetes a null and an empty list are the same as nothing."""
    if type(value) is dict:
        return {key: _without_nothing(inner) for key, inner in value.items() if inner is not None and inner != []}
    if type(value) is list:
        return [_without_nothing(inner) for inner in value]
    return value
