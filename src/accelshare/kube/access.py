"""Asks the API server whether we have a permission (SelfSubjectAccessReview).

Belongs here: one request, which the API server does not store. Never: what the permission is for.
"""

from dataclasses import dataclass

import msgspec

from accelshare.kube.client import Client
from accelshare.kube.errors import BadAnswer
from accelshare.wire.decoding import Decoder

_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Right:
    """A verb on a resource; in one namespace, or without one in the whole cluster."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        where = f"in namespace {self.namespace}" if self.namespace else "in the whole cluster"
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''} {where}"


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status


_reviews = Decoder(_Review)


async def may(client: Client, right: Right) -> bool:
    """Whether the API server allows this to our identity."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": right.namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    answer = await client.request("POST", _PATH, body=msgspec.json.encode(review))
    try:
        return _reviews.decode(answer).status.allowed
    except ValueError as error:
        raise BadAnswer(f"POST {_PATH}: not a review: {error}") from error
