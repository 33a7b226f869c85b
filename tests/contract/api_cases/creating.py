"""Cases about POST: created objects and their defaults."""

from tests.contract.api_cases.client import Api, config_map, lease, leases, name_of, node, pod, unique


def a_new_object_gets_its_identity(api: Api) -> None:
    ns = api.namespace()
    made = api.post(f"{ns}/configmaps", config_map("a", key="value"))
    assert made.code == 201
    assert made.body["kind"] == "ConfigMap"
    assert made.body["apiVersion"] == "v1"
    meta = made.body["metadata"]
    assert meta["namespace"] == name_of(ns)
    assert len(meta["uid"]) == 36
    assert meta["creationTimestamp"].endswith("Z")
    assert int(meta["resourceVersion"]) > 0
    assert made.body["data"] == {"key": "value"}
    assert api.get(f"{ns}/configmaps/a").body == made.body


def versions_grow_across_kinds(api: Api) -> None:
    ns = api.namespace()
    made = [api.post(f"{ns}/configmaps", config_map("a")), api.post(f"{ns}/pods", pod("a")), api.post(leases(ns), lease("a"))]
    versions = [int(reply.version) for reply in made]
    assert versions == sorted(set(versions))


def identity_sent_by_the_client_is_ignored(api: Api) -> None:
    ns = api.namespace()
    body = config_map("a")
    body["metadata"] |= {"uid": "mine", "creationTimestamp": "2000-01-01T00:00:00Z", "deletionTimestamp": "2000-01-01T00:00:00Z"}
    meta = api.make(f"{ns}/configmaps", body)["metadata"]
    assert meta["uid"] != "mine"
    assert meta["creationTimestamp"] > "2001"
    assert "deletionTimestamp" not in meta


def a_name_can_be_generated(api: Api) -> None:
    ns = api.namespace()
    body = config_map("")
    body["metadata"] = {"generateName": "event-"}
    first, second = (api.make(f"{ns}/configmaps", body)["metadata"] for _ in range(2))
    assert first["name"].startswith("event-")
    assert len(first["name"]) == len("event-") + 5
    assert first["name"] != second["name"]
    assert first["generateName"] == "event-"


def the_same_name_twice_is_refused(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    again = api.post(f"{ns}/pods", pod("a"))
    assert (again.code, again.reason) == (409, "AlreadyExists")
    assert again.message == 'pods "a" already exists'
    assert again.body["status"] == "Failure"
    assert again.body["details"]["kind"] == "pods"
    lease_path = leases(ns)
    api.make(lease_path, lease("a"))
    assert api.post(lease_path, lease("a")).message == 'leases.coordination.k8s.io "a" already exists'


def a_missing_namespace_is_not_found(api: Api) -> None:
    gone = unique("nowhere")
    reply = api.post(f"/api/v1/namespaces/{gone}/pods", pod("a"))
    assert (reply.code, reply.reason, reply.message) == (404, "NotFound", f'namespaces "{gone}" not found')


def the_first_namespaces_are_there(api: Api) -> None:
    for name in ("default", "kube-system"):
        reply = api.get(f"/api/v1/namespaces/{name}")
        assert reply.code == 200
        assert reply.body["status"]["phase"] == "Active"
        assert reply.body["metadata"]["labels"]["kubernetes.io/metadata.name"] == name


def another_namespace_in_the_body_is_refused(api: Api) -> None:
    ns = api.namespace()
    body = config_map("a")
    body["metadata"]["namespace"] = "other"
    reply = api.post(f"{ns}/configmaps", body)
    assert (reply.code, reply.reason) == (400, "BadRequest")
    assert reply.message == "the namespace of the provided object does not match the namespace sent on the request"


def another_kind_in_the_body_is_refused(api: Api) -> None:
    ns = api.namespace()
    reply = api.post(f"{ns}/pods", node("a"))
    assert (reply.code, reply.reason) == (400, "BadRequest")


def a_body_without_kind_takes_the_urls(api: Api) -> None:
    ns = api.namespace()
    made = api.make(f"{ns}/configmaps", {"metadata": {"name": "a"}})
    assert (made["kind"], made["apiVersion"]) == ("ConfigMap", "v1")


def a_body_that_is_no_json_is_refused(api: Api) -> None:
    ns = api.namespace()
    for body in (b"{", b"", b"[]", b'"text"'):
        reply = api.post(f"{ns}/configmaps", body)
        assert (reply.code, reply.reason) == (400, "BadRequest"), body


def a_version_on_a_new_object_is_refused(api: Api) -> None:
    ns = api.namespace()
    body = config_map("a")
    body["metadata"]["resourceVersion"] = "5"
    reply = api.post(f"{ns}/configmaps", body)
    assert (reply.code, reply.message) == (500, "resourceVersion should not be set on objects to be created")


def nulls_and_empty_maps_are_nothing(api: Api) -> None:
    ns = api.namespace()
    body = config_map("a")
    body["metadata"] |= {"annotations": None, "labels": {}, "finalizers": []}
    meta = api.make(f"{ns}/configmaps", body)["metadata"]
    assert not {"annotations", "labels", "finalizers"} & set(meta)


def a_nodes_status_is_kept(api: Api) -> None:
    made = api.get(api.node(capacity={"cpu": 4, "memory": "2048Mi", "example.com/card": 3, "pods": "110"})).body
    assert made["status"]["capacity"] == {"cpu": "4", "memory": "2Gi", "example.com/card": "3", "pods": "110"}
    assert made["status"]["allocatable"] == made["status"]["capacity"]


def an_event_is_stored(api: Api) -> None:
    ns = api.namespace()
    involved = {"kind": "Pod", "namespace": name_of(ns), "name": "a", "uid": "u", "apiVersion": "v1"}
    body = {"metadata": {"generateName": "a."}, "involvedObject": involved, "reason": "Bound", "message": "m", "type": "Normal"}
    made = api.make(f"{ns}/events", body)
    assert made["involvedObject"] == involved
    assert made["reason"] == "Bound"


def an_event_in_another_namespace_than_its_object_is_refused(api: Api) -> None:
    ns = api.namespace()
    for involved in ({"kind": "Node", "name": "n"}, {"kind": "Pod", "name": "a", "namespace": "other"}):
        reply = api.post(f"{ns}/events", {"metadata": {"name": "e"}, "involvedObject": involved})
        assert (reply.code, reply.reason) == (422, "Invalid")
        assert "involvedObject.namespace: Invalid value: " in reply.message
        assert "does not match event.namespace" in reply.message


def an_event_about_a_node_goes_to_default(api: Api) -> None:
    name = unique("event")
    path = "/api/v1/namespaces/default/events"
    api.make(path, {"metadata": {"name": name}, "involvedObject": {"kind": "Node", "name": "n"}})
    assert api.delete(f"{path}/{name}").code == 200


def times_of_a_lease_keep_their_microseconds(api: Api) -> None:
    ns = api.namespace()
    assert api.make(leases(ns), lease("a"))["spec"]["renewTime"] == "2026-01-02T03:04:05.000006Z"
