"""The fake API server's store: all objects, and the verbs on them. Synchronous, without I/O.

Belongs here: create, get, list, watch, update, patch, delete, bind; one counter of revisions for everything.
Never: HTTP, waiting; the rules of one kind, which stand in its row of the table of resources.
"""

import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from accelshare.testing.api_server import bodies, deletion, pods, values
from accelshare.testing.api_server.bodies import decode, decode_patched
from accelshare.testing.api_server.errors import (
    MODIFIED,
    FieldError,
    Object,
    RequestError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid_object,
    not_found,
    precondition_failed,
)
from accelshare.testing.api_server.history import Collection, ObjectVersion, StorePage, Watch, page
from accelshare.testing.api_server.resources import RESOURCES, ApiResource
from accelshare.testing.api_server.selectors import Selector, selector

STRATEGIC: Final = "application/strategic-merge-patch+json"
NAMESPACES_AT_START: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # no vowels: a generated name should not spell anything
_WIPED: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields")


@dataclass(frozen=True, slots=True)
class Written:
    """The version that a write stored, and whether it created the object."""

    version: ObjectVersion
    created: bool = False


class Store:
    """Objects by resource, namespace and name. Callers must not change the objects that it returns: they are shared."""

    def __init__(
        self,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        seed: int | None = None,
        keep_changes: int = 20_000,
    ) -> None:
        self._now = now
        self._random = random.Random(seed)  # noqa: S311 – names and uids of a test server
        self._revision = 0
        self._collections = {plural: Collection(keep=keep_changes) for plural in RESOURCES}
        for name in NAMESPACES_AT_START:
            self.create("namespaces", {"metadata": {"name": name}})

    @property
    def revision(self) -> int:
        """The resourceVersion of the last write."""
        return self._revision

    def create(self, plural: str, body: Any, *, namespace: str = "") -> ObjectVersion:
        """Store a new object. 409 if it exists, 422 if it is invalid, 404 if its namespace does not exist."""
        resource = RESOURCES[plural]
        item = decode(resource, body)
        meta = item["metadata"]
        _put_in_namespace(resource, meta, namespace)
        for field in _WIPED:
            meta.pop(field, None)
        self._require_namespace(resource, meta)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._generated_name(resource, meta)
            resource.default(item)
        resource.on_create(item)
        self._validate(resource, item, resource.problems(item))
        key = resource.key(meta.get("namespace", ""), meta["name"])
        if key in self._collections[plural].now:
            raise already_exists(plural, meta["name"], group=resource.group)
        if meta.get("resourceVersion"):
            raise RequestError("", "resourceVersion should not be set on objects to be created")
        meta["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        meta["creationTimestamp"] = self._timestamp()
        return self._commit(resource, key, item)

    def get(self, plural: str, name: str, *, namespace: str = "default") -> ObjectVersion:
        """The current version of an object; 404 if it does not exist."""
        resource = RESOURCES[plural]
        version = self._collections[plural].now.get(resource.key(namespace, name))
        if version is None:
            raise not_found(plural, name, group=resource.group)
        return version

    def list(
        self, plural: str, *, namespace: str = "", labels: str = "", fields: str = "", limit: int = 0, token: str = ""
    ) -> StorePage:
        """The objects of one namespace or of all namespaces, in pages if there is a limit."""
        resource = RESOURCES[plural]
        chosen = self._selector(resource, labels, fields)
        return page(
            resource,
            self._collections[plural],
            namespace=namespace if resource.namespaced else "",
            selector=chosen,
            limit=limit,
            token=token,
            current=self._revision,
        )

    def watch(
        self, plural: str, *, namespace: str = "", labels: str = "", fields: str = "", revision: int | None = None
    ) -> Watch:
        """A watch of all changes after a revision; without a revision, of all existing objects and then all changes."""
        resource, collection = RESOURCES[plural], self._collections[plural]
        initial = () if revision else self.list(plural, namespace=namespace, labels=labels, fields=fields).versions
        return Watch(
            resource,
            collection,
            namespace=namespace if resource.namespaced else "",
            selector=self._selector(resource, labels, fields),
            revision=revision or self._revision,
            initial=initial,
        )

    def update(self, plural: str, name: str, body: Any, *, namespace: str = "default", subresource: str = "") -> Written:
        """Replace an object. 409 if the body has another resourceVersion or uid than the stored object."""
        resource = RESOURCES[plural]
        item = decode(resource, body)
        meta = item["metadata"]
        _put_in_namespace(resource, meta, namespace)
        if meta.get("name") != name:
            message = f"the name of the object ({meta.get('name', '')}) does not match the name on the URL ({name})"
            unnamed = f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
            raise bad_request(message if meta.get("name") else unnamed)
        key = resource.key(namespace, name)
        if key not in self._collections[plural].now and resource.put_creates:
            _require_uid(resource, None, meta, key)
            meta.pop("resourceVersion", None)
            return Written(self.create(plural, item, namespace=namespace), created=True)
        old = self.get(plural, name, namespace=namespace)
        _require_uid(resource, old, meta, key)
        if resource.put_needs_version and not meta.get("resourceVersion"):
            problem = FieldError("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
            raise invalid_object(plural, name, [problem], group=resource.group)
        return Written(self._replace(resource, old, item, subresource))

    def patch(
        self,
        plural: str,
        name: str,
        patch: Any,
        *,
        namespace: str = "default",
        content_type: str = STRATEGIC,
        subresource: str = "",
    ) -> ObjectVersion:
        """Change a part of an object. 409 if the patch has another resourceVersion than the stored object."""
        resource = RESOURCES[plural]
        old = self.get(plural, name, namespace=namespace)
        item = decode_patched(resource, bodies.apply_patch(content_type, old.object, patch))
        _put_in_namespace(resource, item["metadata"], namespace)
        if item["metadata"].get("name") != name:
            message = f"the name of the object ({item['metadata'].get('name', '')}) does not match the name on the URL ({name})"
            raise bad_request(message)
        return self._replace(resource, old, item, subresource)

    def bind(self, name: str, binding: Any, *, namespace: str = "default") -> ObjectVersion:
        """Bind a pod to a node and add the binding's annotations, in one write."""
        if not isinstance(binding, dict) or binding.get("kind", "Binding") != "Binding":
            raise bad_request("the object provided is unrecognized (must be of type Binding)")
        binding = {"metadata": {}, "target": {}} | binding
        _put_in_namespace(RESOURCES["pods"], dict(binding["metadata"]), namespace)
        if binding["metadata"].get("name") != name:
            raise bad_request("name in URL does not match name in Binding object")
        if binding["target"].get("kind", "") not in ("", "Node"):
            raise RequestError(
                "", f'target.kind: Unsupported value: "{binding["target"]["kind"]}": supported values: "Node", "<empty>"'
            )
        if not binding["target"].get("name"):
            raise RequestError("", "target.name: Required value")
        old, key = self.get("pods", name, namespace=namespace), f"{namespace}/{name}"
        _require_uid(RESOURCES["pods"], old, binding["metadata"], key)
        wanted, stored = binding["metadata"].get("resourceVersion", ""), str(old.revision)
        if wanted and wanted != stored:
            raise precondition_failed("pods", name, f"/registry/pods/{key}", "ResourceVersion", wanted, stored)
        if refusal := pods.refusal_to_bind(old.object):
            raise conflict("pods/binding", name, refusal)
        return self._commit(RESOURCES["pods"], key, pods.bound(old.object, binding, self._timestamp()))

    def delete(
        self, plural: str, name: str, *, namespace: str = "default", options: Mapping[str, Any] | None = None
    ) -> deletion.Deleted:
        """Delete an object, or mark it: a pod on a node stays until its kubelet deletes it with grace period 0."""
        resource = RESOURCES[plural]
        old = self.get(plural, name, namespace=namespace)
        wanted = deletion.read_options(options or {})
        deletion.check_preconditions(resource, old.object, wanted)
        if plural == "namespaces":
            return self._delete_namespace(old)
        key = resource.key(namespace, name)
        step = deletion.plan(resource, old.object, wanted, self._now())
        version = old if step.marked is None else self._commit(resource, key, step.marked)
        if not step.remove:
            return deletion.Deleted(version, gone=False)
        self._remove(resource, key)
        return deletion.Deleted(version, gone=True)

    def compact(self) -> None:
        """Forget all earlier revisions: watches and lists that start before now get 410."""
        for collection in self._collections.values():
            collection.compact(self._revision)

    def _replace(self, resource: ApiResource, old: ObjectVersion, item: Object, subresource: str) -> ObjectVersion:
        meta, name = item["metadata"], old.object["metadata"]["name"]
        if meta.get("resourceVersion", "") not in ("", "0", str(old.revision)):
            raise conflict(resource.plural, name, MODIFIED, group=resource.group)
        values.keep_server_fields(meta, old.object["metadata"])
        if subresource == "status":
            assert resource.on_status_update is not None, "verbs.py serves no status subresource that a kind does not have"
            resource.on_status_update(item, old.object)
        else:
            resource.on_update(item, old.object)
        changed = [*values.identity_problems(meta, old.object["metadata"]), *resource.update_problems(item, old.object)]
        self._validate(resource, item, [*changed, *resource.problems(item)])
        key = resource.key(meta.get("namespace", ""), name)
        if deletion.ends_with_update(item, old.object):
            self._remove(resource, key)
            return ObjectVersion(item, self._revision)
        return self._commit(resource, key, item)

    def _commit(self, resource: ApiResource, key: str, item: Object) -> ObjectVersion:
        """Write an object under the next revision; a write without a change keeps the old version."""
        collection = self._collections[resource.plural]
        old = collection.now.get(key)
        if old is not None and _content(item) == _content(old.object):
            return old
        self._revision += 1
        item["metadata"] = item["metadata"] | {"resourceVersion": str(self._revision)}
        version = ObjectVersion(item, self._revision)
        collection.put(key, version, self._revision)
        return version

    def _remove(self, resource: ApiResource, key: str) -> None:
        self._revision += 1
        self._collections[resource.plural].put(key, None, self._revision)

    def _delete_namespace(self, old: ObjectVersion) -> deletion.Deleted:
        """Delete the namespace's contents, then the namespace: the namespace controller's work, at once."""
        name = old.object["metadata"]["name"]
        if name in NAMESPACES_AT_START[:3]:
            raise forbidden("namespaces", name, "this namespace may not be deleted")
        marked = old.object["metadata"] | {"deletionTimestamp": self._timestamp()}
        ending = old.object | {"metadata": marked, "status": {"phase": "Terminating"}}
        version = self._commit(RESOURCES["namespaces"], name, ending)
        for resource in RESOURCES.values():
            if resource.namespaced:
                for item in self.list(resource.plural, namespace=name).versions:
                    self._remove(resource, resource.key(name, item.object["metadata"]["name"]))
        self._remove(RESOURCES["namespaces"], name)
        return deletion.Deleted(version, gone=False)

    def _validate(self, resource: ApiResource, item: Object, more: Any) -> None:
        meta = item["metadata"]
        problems = [*values.metadata_problems(meta, name_is_label=resource.name_is_label), *more]
        if problems:
            raise invalid_object(resource.kind, meta.get("name", ""), problems, group=resource.group)

    def _require_namespace(self, resource: ApiResource, meta: Object) -> None:
        if resource.namespaced and meta["namespace"] not in self._collections["namespaces"].now:
            raise not_found("namespaces", meta["namespace"])

    def _selector(self, resource: ApiResource, labels: str, fields: str) -> Selector:
        return selector(labels, fields, resource.field_names, unknown_field=resource.unknown_field)

    def _generated_name(self, resource: ApiResource, meta: Object) -> str:
        taken = self._collections[resource.plural].now
        while True:
            name: str = meta["generateName"][:58] + "".join(self._random.choices(_SUFFIX_LETTERS, k=5))
            if resource.key(meta.get("namespace", ""), name) not in taken:
                return name

    def _timestamp(self) -> str:
        return deletion.timestamp(self._now())


def _put_in_namespace(resource: ApiResource, meta: Object, namespace: str) -> None:
    """Set the object's namespace: the URL's, else its own, else "default"."""
    if not resource.namespaced:
        meta.pop("namespace", None)
    elif namespace and meta.get("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    else:
        meta["namespace"] = namespace or meta.get("namespace", "default")


def _require_uid(resource: ApiResource, old: ObjectVersion | None, meta: Object, key: str) -> None:
    """A uid in a request must be that of the stored object."""
    wanted, stored = meta.get("uid", ""), "" if old is None else old.object["metadata"]["uid"]
    if wanted and wanted != stored:
        where = f"/registry/{resource.plural}/{key}"
        raise precondition_failed(resource.plural, meta["name"], where, "UID", wanted, stored, group=resource.group)


def _content(item: Object) -> Object:
    meta = {key: value for key, value in item["metadata"].items() if key not in ("resourceVersion", "managedFields")}
    return item | {"metadata": meta}
