"""Cases about PUT: replacing objects, with and without a resourceVersion."""

from typing import Any

from tests.contract.api_cases.client import Api, Body, config_map, lease, leases, name_of, pod

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def an_update_is_a_new_version(api: Api) -> None:
    ns = api.namespace()
    made = api.make(f"{ns}/configmaps", config_map("a", x="1"))
    reply = api.put(f"{ns}/configmaps/a", made | {"data": {"x": "2"}})
    assert reply.code == 200
    assert reply.body["data"] == {"x": "2"}
    assert int(reply.version) > int(made["metadata"]["resourceVersion"])
    assert reply.body["metadata"]["uid"] == made["metadata"]["uid"]
    assert reply.body["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


def an_update_of_an_old_version_is_refused(api: Api) -> None:
    ns = api.namespace()
    made = api.make(f"{ns}/pods", pod("a"))
    api.patch(f"{ns}/pods/a", {"metadata": {"labels": {"x": "y"}}})
    reply = api.put(f"{ns}/pods/a", made)
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert reply.message == f'Operation cannot be fulfilled on pods "a": {MODIFIED}'


def an_update_without_a_version_is_unconditional(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/configmaps", config_map("a", x="1"))
    api.put(f"{ns}/configmaps/a", config_map("a", x="2"))
    reply = api.put(f"{ns}/configmaps/a", config_map("a", x="3"))
    assert (reply.code, reply.body["data"]) == (200, {"x": "3"})


def a_lease_is_only_updated_with_its_version(api: Api) -> None:
    path = leases(api.namespace())
    made = api.make(path, lease("a", "first"))
    reply = api.put(f"{path}/a", lease("a", "second"))
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert "metadata.resourceVersion: Invalid value: 0" in reply.message
    assert "must be specified for an update" in reply.message
    taken = api.put(f"{path}/a", made | {"spec": made["spec"] | {"holderIdentity": "second"}})
    assert (taken.code, taken.body["spec"]["holderIdentity"]) == (200, "second")
    late = api.put(f"{path}/a", made | {"spec": made["spec"] | {"holderIdentity": "third"}})
    assert (late.code, late.reason) == (409, "Conflict")
    assert late.message == f'Operation cannot be fulfilled on leases.coordination.k8s.io "a": {MODIFIED}'


def an_update_that_changes_nothing_is_no_new_version(api: Api) -> None:
    ns = api.namespace()
    made = api.make(f"{ns}/configmaps", config_map("a", x="1"))
    version = made["metadata"]["resourceVersion"]
    assert api.put(f"{ns}/configmaps/a", without_managed_fields(made)).version == version
    assert api.patch(f"{ns}/configmaps/a", {"data": {"x": "1"}}).version == version


def updating_what_is_not_there(api: Api) -> None:
    ns = api.namespace()
    reply = api.put(f"{ns}/pods/ghost", pod("ghost"))
    assert (reply.code, reply.reason) == (404, "NotFound")
    assert api.put(f"{ns}/configmaps/ghost", config_map("ghost")).code == 404
    assert api.put(f"{leases(ns)}/new", lease("new")).code == 201
    event = {"metadata": {"name": "new"}, "involvedObject": {"kind": "Pod", "name": "a", "namespace": name_of(ns)}}
    assert api.put(f"{ns}/events/new", event).code == 201


def a_lease_that_was_deleted_is_not_renewed(api: Api) -> None:
    path = leases(api.namespace())
    made = api.make(path, lease("a"))
    api.delete(f"{path}/a")
    reply = api.put(f"{path}/a", made)
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: " in reply.message
    del made["metadata"]["uid"]
    assert api.put(f"{path}/a", made).code == 201  # without its uid it is a new one, whatever its version


def the_name_of_the_body_is_the_urls(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/configmaps", config_map("a"))
    reply = api.put(f"{ns}/configmaps/a", config_map("b"))
    assert (reply.code, reply.reason) == (400, "BadRequest")
    assert reply.message == "the name of the object (b) does not match the name on the URL (a)"
    reply = api.put(f"{ns}/configmaps/a", {"data": {}})
    assert reply.message == "the name of the object (a based on URL) was undeterminable: name must be provided"


def an_update_of_another_uid_is_refused(api: Api) -> None:
    ns = api.namespace()
    made = api.make(f"{ns}/pods", pod("a"))
    made["metadata"]["uid"] = "another"
    reply = api.put(f"{ns}/pods/a", made)
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: another, UID in object meta: " in reply.message


def an_update_of_a_pod_leaves_its_status_alone(api: Api) -> None:
    ns = api.namespace()
    made = api.make(f"{ns}/pods", pod("a"))
    reply = api.put(f"{ns}/pods/a", made | {"status": {"phase": "Failed"}})
    assert (reply.code, reply.body["status"]["phase"]) == (200, "Pending")


def an_update_of_a_node_leaves_its_status_alone(api: Api) -> None:
    path = api.node(capacity={"cpu": "4"})
    found = api.get(path).body
    found["spec"]["unschedulable"] = True
    found["status"] = {"capacity": {"cpu": "64"}}
    reply = api.put(path, found)
    assert (reply.code, reply.body["spec"]["unschedulable"]) == (200, True)
    assert reply.body["status"]["capacity"] == {"cpu": "4"}


def a_pods_spec_is_fixed(api: Api) -> None:
    ns = api.namespace()
    made = api.make(f"{ns}/pods", pod("a", limits={"example.com/card": 1}))
    for change in ({"nodeName": "n1"}, {"restartPolicy": "Never"}, {"nodeSelector": {"a": "b"}}):
        reply = api.put(f"{ns}/pods/a", made | {"spec": made["spec"] | change})
        assert (reply.code, reply.reason) == (422, "Invalid")
        assert "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`" in reply.message
    more = [*made["spec"]["containers"], {"name": "more", "image": "i:1"}]
    reply = api.put(f"{ns}/pods/a", made | {"spec": made["spec"] | {"containers": more}})
    assert "spec.containers: Forbidden: pod updates may not add or remove containers" in reply.message


def a_pods_image_and_tolerations_can_change(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    change: Any = {"spec": {"containers": [{"name": "main", "image": "other:2"}]}}
    reply = api.patch(f"{ns}/pods/a", change)
    assert (reply.code, reply.body["spec"]["containers"][0]["image"]) == (200, "other:2")
    assert reply.body["metadata"]["generation"] == 2
    toleration = {"key": "k", "operator": "Exists", "effect": "NoSchedule"}
    before = reply.body["spec"].get("tolerations", [])
    reply = api.patch(f"{ns}/pods/a", {"spec": {"tolerations": [*before, toleration]}})
    assert (reply.code, toleration in reply.body["spec"]["tolerations"]) == (200, True)


def a_gate_can_be_removed_but_not_added(api: Api) -> None:
    ns = api.namespace()
    made = api.make(f"{ns}/pods", pod("a", schedulingGates=[{"name": "example.com/wait"}]))
    more = [*made["spec"]["schedulingGates"], {"name": "example.com/more"}]
    reply = api.put(f"{ns}/pods/a", made | {"spec": made["spec"] | {"schedulingGates": more}})
    assert (reply.code, reply.reason) == (422, "Invalid")
    reply = api.put(f"{ns}/pods/a", made | {"spec": made["spec"] | {"schedulingGates": []}})
    assert (reply.code, "schedulingGates" in reply.body["spec"]) == (200, False)


def without_managed_fields(item: Body) -> Body:
    return item | {"metadata": {key: value for key, value in item["metadata"].items() if key != "managedFields"}}
