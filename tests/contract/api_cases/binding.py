"""Cases about bindings: one POST binds a pod to a node and writes its annotations."""

from tests.contract.api_cases.client import STRATEGIC, Api, binding, name_of, pod


def a_binding_is_one_write(api: Api) -> None:
    ns = api.namespace()
    body = pod("a", labels={"mine": "1", "theirs": "1"})
    body["metadata"]["annotations"] = {"example.com/keep": "1", "example.com/change": "1"}
    made = api.make(f"{ns}/pods", body)
    given = {"example.com/change": "2", "example.com/new": "3"}
    uid = made["metadata"]["uid"]
    with api.watch(f"{ns}/pods", resourceVersion=made["metadata"]["resourceVersion"]) as stream:
        reply = api.post(f"{ns}/pods/a/binding", binding("a", uid=uid, annotations=given, labels={"theirs": "2"}))
        assert (reply.code, reply.body["kind"], reply.body["status"]) == (201, "Status", "Success")
        seen = stream.expect("MODIFIED", "a")
    found = api.get(f"{ns}/pods/a").body
    assert found["spec"]["nodeName"] == "n1"
    assert found["metadata"]["annotations"] == {"example.com/keep": "1", **given}
    assert found["metadata"]["labels"] == {"mine": "1", "theirs": "2"}
    assert seen == found
    (condition,) = found["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert condition["lastTransitionTime"].endswith("Z")
    assert found["status"]["phase"] == "Pending"
    assert found["metadata"]["generation"] == 1


def a_pod_is_bound_once(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    assert api.post(f"{ns}/pods/a/binding", binding("a")).code == 201
    for node in ("n1", "n2"):
        reply = api.post(f"{ns}/pods/a/binding", binding("a", node))
        assert (reply.code, reply.reason) == (409, "Conflict")
        assert reply.message == ('Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1"')


def a_binding_can_name_its_pod_exactly(api: Api) -> None:
    ns = api.namespace()
    meta = api.make(f"{ns}/pods", pod("a"))["metadata"]
    reply = api.post(f"{ns}/pods/a/binding", binding("a", uid="another"))
    assert (reply.code, reply.reason) == (409, "Conflict")
    found = f"Precondition failed: UID in precondition: another, UID in object meta: {meta['uid']}"
    key = f"/registry/pods/{name_of(ns)}/a"
    assert reply.message == (
        f'Operation cannot be fulfilled on pods "a": StorageError: invalid object, Code: 4, Key: {key}, '
        f"ResourceVersion: 0, AdditionalErrorMsg: {found}"
    )
    reply = api.post(f"{ns}/pods/a/binding", binding("a", resourceVersion="1"))
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert "Precondition failed: ResourceVersion in precondition: 1, " in reply.message
    exact = binding("a", uid=meta["uid"], resourceVersion=meta["resourceVersion"])
    assert api.post(f"{ns}/pods/a/binding", exact).code == 201


def a_condition_of_the_pod_refuses_older_bindings(api: Api) -> None:
    """Also on a pod whose annotations have the largest size; its other conditions stay."""
    ns = api.namespace()
    body = pod("a")
    body["metadata"]["annotations"] = {"example.com/x": "x" * (256 * 1024 - len("example.com/x"))}
    meta = api.make(f"{ns}/pods", body)["metadata"]
    failed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    meta = api.patch(f"{ns}/pods/a/status", {"status": {"conditions": [failed]}}).body["metadata"]
    condition = {"type": "example.com/Fence", "status": "True", "reason": "R", "message": "1"}
    fence = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [condition]}}
    reply = api.patch(f"{ns}/pods/a/status", fence, STRATEGIC)
    assert reply.code == 200
    assert {item["type"] for item in reply.body["status"]["conditions"]} == {"PodScheduled", "example.com/Fence"}
    older = binding("a", uid=meta["uid"], resourceVersion=meta["resourceVersion"])
    assert api.post(f"{ns}/pods/a/binding", older).code == 409
    fenced = reply.body["metadata"]["resourceVersion"]
    assert api.patch(f"{ns}/pods/a/status", fence, STRATEGIC).body["metadata"]["resourceVersion"] == fenced, "nothing to write"
    other = {"metadata": {"uid": "another"}, "status": {"conditions": [{**condition, "message": "2"}]}}
    assert api.patch(f"{ns}/pods/a/status", other, STRATEGIC).code == 422
    assert api.post(f"{ns}/pods/a/binding", binding("a", uid=meta["uid"], resourceVersion=fenced)).code == 201


def a_pod_that_is_being_deleted_is_not_bound(api: Api) -> None:
    ns = api.namespace()
    body = pod("a")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    api.make(f"{ns}/pods", body)
    api.delete(f"{ns}/pods/a")
    reply = api.post(f"{ns}/pods/a/binding", binding("a"))
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert reply.message.endswith("pod a is being deleted, cannot be assigned to a host")
    api.patch(f"{ns}/pods/a", {"metadata": {"finalizers": None}})


def a_gated_pod_is_not_bound(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a", schedulingGates=[{"name": "example.com/wait"}]))
    reply = api.post(f"{ns}/pods/a/binding", binding("a"))
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert reply.message.endswith("pod a has non-empty .spec.schedulingGates")


def a_pod_that_is_not_there_is_not_bound(api: Api) -> None:
    ns = api.namespace()
    reply = api.post(f"{ns}/pods/ghost/binding", binding("ghost"))
    assert (reply.code, reply.reason, reply.message) == (404, "NotFound", 'pods "ghost" not found')


def the_name_of_a_binding_is_the_urls(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    reply = api.post(f"{ns}/pods/a/binding", binding("b"))
    assert (reply.code, reply.reason, reply.message) == (400, "BadRequest", "name in URL does not match name in Binding object")


def a_binding_needs_a_node(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    for target in ({"kind": "Node"}, {"kind": "Pod", "name": "x"}):
        reply = api.post(f"{ns}/pods/a/binding", binding("a") | {"target": target})
        assert (reply.code, reply.reason) == (500, ""), target
    assert api.post(f"{ns}/pods/a/binding", binding("a") | {"target": {"name": "n1"}}).code == 201


def a_bindings_annotations_are_not_checked(api: Api) -> None:
    """A bad key is stored by the binding, and then every ordinary update of the pod is refused."""
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    assert api.post(f"{ns}/pods/a/binding", binding("a", annotations={"bad key": "x"})).code == 201
    assert api.get(f"{ns}/pods/a").body["metadata"]["annotations"] == {"bad key": "x"}
    reply = api.patch(f"{ns}/pods/a", {"metadata": {"labels": {"x": "y"}}})
    assert (reply.code, reply.reason) == (422, "Invalid")


def the_older_door_binds_too(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    reply = api.post(f"{ns}/bindings", binding("a", "n7"))
    assert (reply.code, reply.body["status"]) == (201, "Success")
    assert api.get(f"{ns}/pods/a").body["spec"]["nodeName"] == "n7"
    assert api.post(f"{ns}/bindings", binding("ghost")).code == 404


def a_nomination_ends_with_the_binding(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    api.patch(f"{ns}/pods/a/status", {"status": {"nominatedNodeName": "n5"}})
    api.post(f"{ns}/pods/a/binding", binding("a"))
    assert "nominatedNodeName" not in api.get(f"{ns}/pods/a").body["status"]


def a_failed_attempt_to_schedule_is_overwritten(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    failed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
    other = {"type": "example.com/Other", "status": "True"}
    api.patch(f"{ns}/pods/a/status", {"status": {"conditions": [failed, other]}})
    api.post(f"{ns}/pods/a/binding", binding("a"))
    conditions = api.get(f"{ns}/pods/a").body["status"]["conditions"]
    scheduled = next(condition for condition in conditions if condition["type"] == "PodScheduled")
    assert (scheduled["status"], scheduled.get("reason"), len(conditions)) == ("True", None, 2)
