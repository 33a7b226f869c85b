"""The fake API server's errors: a Status object for every failure, in kube-apiserver's words.

Belongs here: the reasons, their HTTP codes, the wording that clients read. Never: deciding when to refuse.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Object = dict[str, Any]

CODES: Final[Mapping[str, int]] = {
    "BadRequest": 400,
    "Unauthorized": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "MethodNotAllowed": 405,
    "AlreadyExists": 409,
    "Conflict": 409,
    "Expired": 410,
    "UnsupportedMediaType": 415,
    "Invalid": 422,
    "TooManyRequests": 429,
    "InternalError": 500,
    "ServiceUnavailable": 503,
    "Timeout": 504,
    "": 500,  # an unexpected error of kube-apiserver has a code and no reason
}

MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


class RequestError(Exception):
    """A failed request; `status()` is the body of its response."""

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        details: Object | None = None,
        continue_token: str = "",
        code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.code = CODES[reason] if code is None else code
        self.details = details
        self.continue_token = continue_token

    def status(self) -> Object:
        """The Status object for the response or for an ERROR event of a watch."""
        metadata = {"continue": self.continue_token} if self.continue_token else {}
        body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure", "message": str(self)}
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        return body | {"code": self.code}


@dataclass(frozen=True, slots=True)
class FieldError:
    """A problem of one field."""

    field: str
    body: str
    type: str = "FieldValueInvalid"


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(field, _join("Required value", detail), "FieldValueRequired")


def invalid(field: str, value: str, detail: str) -> FieldError:
    return FieldError(field, f"Invalid value: {quoted(value)}: {detail}")


def duplicate(field: str, value: str) -> FieldError:
    return FieldError(field, f"Duplicate value: {quoted(value)}", "FieldValueDuplicate")


def forbidden_field(field: str, detail: str) -> FieldError:
    return FieldError(field, f"Forbidden: {detail}", "FieldValueForbidden")


def quoted(text: str) -> str:
    """Text in double quotes, the way Go prints it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def not_found(resource: str, name: str, *, group: str = "") -> RequestError:
    return RequestError(
        "NotFound", f"{_qualified(resource, group)} {quoted(name)} not found", details=_about(resource, name, group)
    )


def already_exists(resource: str, name: str, *, group: str = "") -> RequestError:
    text = f"{_qualified(resource, group)} {quoted(name)} already exists"
    return RequestError("AlreadyExists", text, details=_about(resource, name, group))


def conflict(resource: str, name: str, why: str, *, group: str = "") -> RequestError:
    text = f"Operation cannot be fulfilled on {_qualified(resource, group)} {quoted(name)}: {why}"
    return RequestError("Conflict", text, details=_about(resource, name, group))


def forbidden(resource: str, name: str, why: str) -> RequestError:
    return RequestError("Forbidden", f"{resource} {quoted(name)} is forbidden: {why}", details=_about(resource, name, ""))


def bad_request(message: str) -> RequestError:
    return RequestError("BadRequest", message)


def expired(message: str, *, continue_token: str = "") -> RequestError:
    return RequestError("Expired", message, continue_token=continue_token)


def invalid_object(kind: str, name: str, problems: Sequence[FieldError], *, group: str = "") -> RequestError:
    """All problems of one object in one error."""
    texts = list(dict.fromkeys(f"{problem.field}: {problem.body}" for problem in problems))
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [{"reason": problem.type, "message": problem.body, "field": problem.field} for problem in problems]
    details = _about(kind, name, group) | {"causes": causes}
    return RequestError("Invalid", f"{_qualified(kind, group)} {quoted(name)} is invalid: {joined}", details=details)


def precondition_failed(
    resource: str, name: str, key: str, what: str, wanted: str, stored: str, *, group: str = ""
) -> RequestError:
    """The conflict of a write with another uid or version than the stored object."""
    message = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {stored}"
    where = f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {message}"
    return conflict(resource, name, where, group=group)


def _about(kind: str, name: str, group: str) -> Object:
    about = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in about.items() if value}


def _qualified(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def _join(head: str, detail: str) -> str:
    return f"{head}: {detail}" if detail else head
