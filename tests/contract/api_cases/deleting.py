"""Cases about DELETE: at once, with a grace period, with preconditions, of collections."""

from tests.contract.api_cases.client import Api, binding, config_map, lease, leases, name_of, pod


def what_is_deleted_is_gone(api: Api) -> None:
    ns = api.namespace()
    made = api.make(f"{ns}/configmaps", config_map("a"))
    reply = api.delete(f"{ns}/configmaps/a")
    assert (reply.code, reply.body["kind"], reply.body["status"]) == (200, "Status", "Success")
    assert reply.body["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    again = api.delete(f"{ns}/configmaps/a")
    assert (again.code, again.reason, again.message) == (404, "NotFound", 'configmaps "a" not found')
    api.make(leases(ns), lease("a"))
    assert api.delete(f"{leases(ns)}/a").body["details"]["group"] == "coordination.k8s.io"


def a_node_is_deleted_at_once(api: Api) -> None:
    path = api.node()
    assert api.delete(path).body["status"] == "Success"
    assert api.get(path).code == 404


def a_pod_that_runs_nowhere_goes_at_once(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    reply = api.delete(f"{ns}/pods/a")
    assert (reply.code, reply.body["kind"], reply.body["metadata"]["name"]) == (200, "Pod", "a")
    assert api.get(f"{ns}/pods/a").code == 404


def a_pod_on_a_node_stays_until_it_has_ended(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    api.post(f"{ns}/pods/a/binding", binding("a"))
    reply = api.delete(f"{ns}/pods/a")
    assert reply.code == 200
    assert reply.body["metadata"]["deletionGracePeriodSeconds"] == 30
    first = reply.body["metadata"]["deletionTimestamp"]
    found = api.get(f"{ns}/pods/a").body
    assert found["metadata"]["deletionTimestamp"] == first
    assert found["metadata"]["generation"] == 2
    again = api.delete(f"{ns}/pods/a", gracePeriodSeconds=60)  # it can only be made faster
    assert again.body["metadata"]["deletionTimestamp"] == first
    faster = api.delete(f"{ns}/pods/a", gracePeriodSeconds=10)
    assert faster.body["metadata"]["deletionGracePeriodSeconds"] == 10
    assert faster.body["metadata"]["deletionTimestamp"] < first
    assert api.delete(f"{ns}/pods/a", {"gracePeriodSeconds": 0}).code == 200
    assert api.get(f"{ns}/pods/a").code == 404


def grace_can_be_asked_for(api: Api) -> None:
    ns = api.namespace()
    for name, options, query in (("a", {"gracePeriodSeconds": 7}, {}), ("b", None, {"gracePeriodSeconds": 7})):
        api.make(f"{ns}/pods", pod(name, nodeName="n1"))
        reply = api.delete(f"{ns}/pods/{name}", options, **query)
        assert reply.body["metadata"]["deletionGracePeriodSeconds"] == 7
        api.delete(f"{ns}/pods/{name}", gracePeriodSeconds=0)


def no_grace_ends_a_pod_on_a_node_at_once(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a", nodeName="n1"))
    assert api.delete(f"{ns}/pods/a", gracePeriodSeconds=0).code == 200
    assert api.get(f"{ns}/pods/a").code == 404


def a_pod_with_no_grace_of_its_own_goes_at_once(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a", nodeName="n1", terminationGracePeriodSeconds=0))
    api.delete(f"{ns}/pods/a")
    assert api.get(f"{ns}/pods/a").code == 404


def a_pod_that_has_ended_goes_at_once(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a", nodeName="n1"))
    api.patch(f"{ns}/pods/a/status", {"status": {"phase": "Failed"}})
    api.delete(f"{ns}/pods/a")
    assert api.get(f"{ns}/pods/a").code == 404


def a_pod_under_deletion_can_still_change(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a", nodeName="n1"))
    marked = api.delete(f"{ns}/pods/a").body["metadata"]
    reply = api.patch(f"{ns}/pods/a/status", {"status": {"phase": "Running"}})
    assert reply.body["metadata"]["deletionTimestamp"] == marked["deletionTimestamp"]
    reply = api.patch(f"{ns}/pods/a", {"metadata": {"annotations": {"example.com/x": "1"}, "deletionTimestamp": None}})
    assert reply.body["metadata"]["deletionTimestamp"] == marked["deletionTimestamp"]
    api.delete(f"{ns}/pods/a", gracePeriodSeconds=0)


def a_deletion_can_name_its_object_exactly(api: Api) -> None:
    ns = api.namespace()
    meta = api.make(f"{ns}/pods", pod("a"))["metadata"]
    reply = api.delete(f"{ns}/pods/a", {"preconditions": {"uid": "another"}})
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert reply.message == (
        'Operation cannot be fulfilled on Pod "a": the UID in the precondition (another) does not match the UID in record '
        f"({meta['uid']}). The object might have been deleted and then recreated"
    )
    reply = api.delete(f"{ns}/pods/a", {"preconditions": {"resourceVersion": "1"}})
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert "the ResourceVersion in the precondition (1) does not match" in reply.message
    exact = {"preconditions": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}}
    assert api.delete(f"{ns}/pods/a", exact).code == 200


def a_name_can_be_used_again(api: Api) -> None:
    ns = api.namespace()
    first = api.make(f"{ns}/pods", pod("a"))
    api.delete(f"{ns}/pods/a")
    assert api.make(f"{ns}/pods", pod("a"))["metadata"]["uid"] != first["metadata"]["uid"]


def a_finalizer_holds_an_object(api: Api) -> None:
    ns = api.namespace()
    for kind, body in (("configmaps", config_map("a")), ("pods", pod("a"))):
        body["metadata"]["finalizers"] = ["example.com/hold"]
        api.make(f"{ns}/{kind}", body)
        assert api.delete(f"{ns}/{kind}/a").code == 200
        found = api.get(f"{ns}/{kind}/a").body["metadata"]
        assert found["deletionGracePeriodSeconds"] == 0
        assert "deletionTimestamp" in found
        assert api.patch(f"{ns}/{kind}/a", {"metadata": {"finalizers": None}}).code == 200
        assert api.get(f"{ns}/{kind}/a").code == 404


def many_are_deleted_at_once(api: Api) -> None:
    ns = api.namespace()
    for name, tier in {"a": "x", "b": "x", "c": "y"}.items():
        api.make(f"{ns}/pods", pod(name, labels={"tier": tier}))
    reply = api.delete(f"{ns}/pods", labelSelector="tier=x")
    assert reply.code == 200
    assert api.get(f"{ns}/pods").names == ["c"]
    api.delete(f"{ns}/pods")
    assert api.get(f"{ns}/pods").names == []


def a_namespace_begins_to_end(api: Api) -> None:
    ns = api.namespace()
    reply = api.delete(ns)
    assert (reply.code, reply.body["kind"]) == (200, "Namespace")
    assert reply.body["status"]["phase"] == "Terminating"
    assert "deletionTimestamp" in reply.body["metadata"]


def the_first_namespaces_cannot_be_deleted(api: Api) -> None:
    for name in ("default", "kube-system"):
        reply = api.delete(f"/api/v1/namespaces/{name}")
        assert (reply.code, reply.reason) == (403, "Forbidden")
        assert reply.message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


def deleting_what_is_not_there(api: Api) -> None:
    ns = api.namespace()
    reply = api.delete(f"{ns}/pods/ghost")
    assert (reply.code, reply.reason, reply.body["details"]["name"]) == (404, "NotFound", "ghost")
    assert name_of(ns) not in reply.message


def eviction(name: str, uid: str) -> dict[str, object]:
    options = {"preconditions": {"uid": uid}}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}


def an_eviction_deletes_the_pod_and_a_dry_run_does_not(api: Api) -> None:
    ns = api.namespace()
    made = api.make(f"{ns}/pods", pod("a"))
    body = eviction("a", made["metadata"]["uid"])
    reply = api.post(f"{ns}/pods/a/eviction", body, dryRun="All")
    assert (reply.code, reply.body["kind"], reply.body["status"]) == (201, "Status", "Success")
    assert api.get(f"{ns}/pods/a").code == 200
    assert api.post(f"{ns}/pods/a/eviction", body).code == 201
    assert api.get(f"{ns}/pods/a").code == 404
    assert api.post(f"{ns}/pods/a/eviction", body).code == 404


def an_eviction_names_the_pod_that_it_means(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    for query in ({}, {"dryRun": "All"}):
        reply = api.post(f"{ns}/pods/a/eviction", eviction("a", "another"), **query)
        assert (reply.code, reply.reason) == (409, "Conflict")
    assert api.get(f"{ns}/pods/a").code == 200
