"""Cases about PATCH: its three kinds, and the status subresources."""

from tests.contract.api_cases.client import JSON_PATCH, MERGE, STRATEGIC, Api, Body, config_map, name_of, pod

KINDS = (MERGE, STRATEGIC)


def maps_are_merged_and_null_deletes(api: Api) -> None:
    ns = api.namespace()
    for kind in KINDS:
        name = kind.split("/")[1].partition("+")[0]
        body = pod(name, labels={"keep": "1", "drop": "1", "change": "1"})
        api.make(f"{ns}/pods", body)
        reply = api.patch(f"{ns}/pods/{name}", {"metadata": {"labels": {"drop": None, "change": "2", "new": "3"}}}, kind)
        assert reply.code == 200
        assert reply.body["metadata"]["labels"] == {"keep": "1", "change": "2", "new": "3"}


def deleting_the_last_annotation_deletes_the_map(api: Api) -> None:
    ns = api.namespace()
    body = pod("a")
    body["metadata"]["annotations"] = {"example.com/x": "1"}
    api.make(f"{ns}/pods", body)
    reply = api.patch(f"{ns}/pods/a", {"metadata": {"annotations": {"example.com/x": None, "example.com/never": None}}}, MERGE)
    assert "annotations" not in reply.body["metadata"]


def a_merge_patch_replaces_lists(api: Api) -> None:
    path = api.node(taints=[{"key": "a", "effect": "NoSchedule"}])
    taints = [{"key": "b", "effect": "NoExecute"}]
    assert api.patch(path, {"spec": {"taints": taints}}, MERGE).body["spec"]["taints"] == taints
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "True"}]
    api.patch(f"{path}/status", {"status": {"conditions": conditions}}, MERGE)
    reply = api.patch(f"{path}/status", {"status": {"conditions": conditions[1:]}}, MERGE)
    assert [condition["type"] for condition in reply.body["status"]["conditions"]] == ["Other"]


def a_strategic_patch_merges_lists_by_their_key(api: Api) -> None:
    path = api.node()
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "True", "reason": "R"}]
    api.patch(f"{path}/status", {"status": {"conditions": conditions}})
    changed = [{"type": "Other", "status": "False"}, {"type": "New", "status": "True"}]
    reply = api.patch(f"{path}/status", {"status": {"conditions": changed}})
    found = [(item["type"], item["status"], item.get("reason")) for item in reply.body["status"]["conditions"]]
    assert found == [("Ready", "True", None), ("Other", "False", "R"), ("New", "True", None)]


def a_strategic_patch_orders_what_it_merges(api: Api) -> None:
    """Items have the patch's order; unpatched items stay before the items that they preceded."""
    path = api.node()
    cases = {"N": "NABC", "CA": "BCA", "BN": "ABNC", "NB": "NABC", "CNA": "BCNA", "": "ABC", "B": "ABC"}

    def conditions(types: str) -> Body:
        return {"status": {"conditions": [{"type": kind, "status": "True"} for kind in types]}}

    for patch, wanted in cases.items():
        api.patch(f"{path}/status", conditions("ABC"), MERGE)
        found = api.patch(f"{path}/status", conditions(patch)).body["status"]["conditions"]
        assert "".join(item["type"] for item in found) == wanted, patch


def a_strategic_patch_finds_containers_by_name(api: Api) -> None:
    ns = api.namespace()
    containers = [{"name": "one", "image": "i:1", "env": [{"name": "A", "value": "1"}]}, {"name": "two", "image": "i:1"}]
    api.make(f"{ns}/pods", pod("a") | {"spec": {"containers": containers}})
    reply = api.patch(f"{ns}/pods/a", {"spec": {"containers": [{"name": "two", "image": "i:2"}]}})
    found = [(item["name"], item["image"]) for item in reply.body["spec"]["containers"]]
    assert (reply.code, found) == (200, [("one", "i:1"), ("two", "i:2")])
    assert reply.body["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


def a_strategic_patch_replaces_other_lists(api: Api) -> None:
    path = api.node(taints=[{"key": "a", "effect": "NoSchedule"}])
    taints = [{"key": "b", "effect": "NoExecute"}]
    assert api.patch(path, {"spec": {"taints": taints}}).body["spec"]["taints"] == taints
    assert "taints" not in api.patch(path, {"spec": {"taints": None}}).body["spec"]


def a_strategic_patch_can_delete_an_item_or_a_map(api: Api) -> None:
    path = api.node()
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "True"}]
    api.patch(f"{path}/status", {"status": {"conditions": conditions}})
    gone = [{"type": "Ready", "$patch": "delete"}]
    reply = api.patch(f"{path}/status", {"status": {"conditions": gone}})
    assert [item["type"] for item in reply.body["status"]["conditions"]] == ["Other"]
    instead = [{"$patch": "replace"}, {"type": "Only", "status": "True"}]
    reply = api.patch(f"{path}/status", {"status": {"conditions": instead}})
    assert [item["type"] for item in reply.body["status"]["conditions"]] == ["Only"]
    ns = api.namespace()
    api.make(f"{ns}/configmaps", config_map("a", labels={"x": "y"}, k="v"))
    reply = api.patch(
        f"{ns}/configmaps/a", {"metadata": {"labels": {"$patch": "delete"}}, "data": {"$patch": "replace", "n": "1"}}
    )
    assert "labels" not in reply.body["metadata"]
    assert reply.body["data"] == {"n": "1"}


def finalizers_are_added_and_taken_away(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/configmaps", config_map("a"))
    api.patch(f"{ns}/configmaps/a", {"metadata": {"finalizers": ["example.com/one"]}})
    reply = api.patch(f"{ns}/configmaps/a", {"metadata": {"finalizers": ["example.com/two"]}})
    assert reply.body["metadata"]["finalizers"] == ["example.com/two", "example.com/one"]
    reply = api.patch(f"{ns}/configmaps/a", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/one"]}})
    assert reply.body["metadata"]["finalizers"] == ["example.com/two"]
    assert "finalizers" not in api.patch(f"{ns}/configmaps/a", {"metadata": {"finalizers": None}}).body["metadata"]


def a_json_patch_works_step_by_step(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/configmaps", config_map("a", x="1", y="2", z="3"))
    steps = [
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "replace", "path": "/data/x", "value": "one"},
        {"op": "remove", "path": "/data/y"},
        {"op": "add", "path": "/metadata/annotations", "value": {"example.com/~1": "t"}},
        {"op": "add", "path": "/metadata/annotations/example.com~1new", "value": "n"},
        {"op": "move", "from": "/data/z", "path": "/data/moved"},
        {"op": "copy", "from": "/data/x", "path": "/data/copied"},
    ]
    # A key that ends in "~1" is not valid; it only shows how pointers are read, and is removed again.
    steps.append({"op": "remove", "path": "/metadata/annotations/example.com~1~01"})
    reply = api.patch(f"{ns}/configmaps/a", steps, JSON_PATCH)
    assert reply.code == 200
    assert reply.body["data"] == {"x": "one", "moved": "3", "copied": "one"}
    assert reply.body["metadata"]["annotations"] == {"example.com/new": "n"}


def a_json_patch_counts_in_lists(api: Api) -> None:
    path = api.node(taints=[{"key": key, "effect": "NoSchedule"} for key in ("a", "b")])
    steps = [
        {"op": "add", "path": "/spec/taints/-", "value": {"key": "z", "effect": "NoSchedule"}},
        {"op": "add", "path": "/spec/taints/1", "value": {"key": "i", "effect": "NoSchedule"}},
        {"op": "remove", "path": "/spec/taints/0"},
    ]
    reply = api.patch(path, steps, JSON_PATCH)
    assert [taint["key"] for taint in reply.body["spec"]["taints"]] == ["i", "b", "z"]


def a_json_patch_that_does_not_fit_changes_nothing(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/configmaps", config_map("a", x="1"))
    good = {"op": "replace", "path": "/data/x", "value": "2"}
    for bad in (
        {"op": "test", "path": "/data/x", "value": "9"},
        {"op": "remove", "path": "/data/none"},
        {"op": "add", "path": "/nowhere/else", "value": "1"},
        {"op": "move", "from": "/data/none", "path": "/data/y"},
        {"op": "test", "path": "/nowhere/x", "value": None},
        {"op": "replace", "path": "/metadata/finalizers/3", "value": "x"},
        {"op": "remove", "path": "data"},
        {"op": "bogus", "path": "/data/x"},
        {"path": "/data/x"},
    ):
        reply = api.patch(f"{ns}/configmaps/a", [good, bad], JSON_PATCH)
        assert (reply.code, reply.reason) == (422, "Invalid"), bad
    assert api.get(f"{ns}/configmaps/a").body["data"] == {"x": "1"}


def a_json_patch_is_easy_about_missing_keys(api: Api) -> None:
    """Unlike in RFC 6902, replace adds a missing key, and copy of a missing key copies null."""
    ns = api.namespace()
    api.make(f"{ns}/configmaps", config_map("a", x="1"))
    steps = [
        {"op": "test", "path": "/data/none", "value": None},
        {"op": "replace", "path": "/data/new", "value": "2"},
        {"op": "copy", "from": "/data/none", "path": "/data/never"},
    ]
    reply = api.patch(f"{ns}/configmaps/a", steps, JSON_PATCH)
    assert reply.code == 200
    assert {"x": "1", "new": "2"}.items() <= reply.body["data"].items()


def a_patch_that_is_none_is_refused(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/configmaps", config_map("a"))
    for kind, body in ((JSON_PATCH, {}), (MERGE, []), (STRATEGIC, []), (MERGE, b"{"), (STRATEGIC, b"{"), (JSON_PATCH, b"{")):
        assert api.patch(f"{ns}/configmaps/a", body, kind).code == 400, (kind, body)
    reply = api.patch(f"{ns}/configmaps/a", {}, "application/json")
    assert (reply.code, reply.reason) == (415, "UnsupportedMediaType")


def a_patch_that_makes_a_wrong_type_is_invalid(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/configmaps", config_map("a"))
    for kind in KINDS:
        reply = api.patch(f"{ns}/configmaps/a", {"metadata": {"labels": {"x": 3}}}, kind)
        assert (reply.code, reply.reason) == (422, "Invalid"), kind


def a_version_in_a_patch_is_a_condition(api: Api) -> None:
    ns = api.namespace()
    old = api.make(f"{ns}/pods", pod("a"))["metadata"]["resourceVersion"]
    for kind in KINDS:
        new = api.patch(f"{ns}/pods/a", {"metadata": {"labels": {"by": kind.split("-")[0][-5:]}}}).version
        reply = api.patch(f"{ns}/pods/a", {"metadata": {"resourceVersion": old, "labels": {"x": "y"}}}, kind)
        assert (reply.code, reply.reason) == (409, "Conflict")
        reply = api.patch(f"{ns}/pods/a", {"metadata": {"resourceVersion": new, "labels": {"x": kind[-9:-5]}}}, kind)
        assert reply.code == 200


def what_identifies_an_object_cannot_be_patched(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    reply = api.patch(f"{ns}/pods/a", {"metadata": {"uid": "another"}})
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert 'metadata.uid: Invalid value: "another": field is immutable' in reply.message
    assert api.patch(f"{ns}/pods/a", {"metadata": {"name": "b"}}).code == 400
    assert api.patch(f"{ns}/pods/a", {"metadata": {"namespace": "b"}}).code == 400
    before = api.get(f"{ns}/pods/a").body["metadata"]
    reply = api.patch(f"{ns}/pods/a", {"metadata": {"creationTimestamp": "2000-01-01T00:00:00Z"}})
    assert reply.body["metadata"]["creationTimestamp"] == before["creationTimestamp"]


def patching_what_is_not_there(api: Api) -> None:
    ns = api.namespace()
    for kind in KINDS:
        reply = api.patch(f"{ns}/pods/ghost", {}, kind)
        assert (reply.code, reply.reason, reply.message) == (404, "NotFound", 'pods "ghost" not found')


def a_pods_status_changes_only_the_status(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    change = {"metadata": {"annotations": {"example.com/seen": "1"}}, "spec": {"nodeName": "n9"}, "status": {"phase": "Running"}}
    reply = api.patch(f"{ns}/pods/a/status", change)
    assert (reply.code, reply.body["status"]["phase"]) == (200, "Running")
    assert reply.body["metadata"]["annotations"] == {"example.com/seen": "1"}
    assert "nodeName" not in reply.body["spec"]
    found = api.get(f"{ns}/pods/a").body
    reply = api.put(f"{ns}/pods/a/status", found | {"status": found["status"] | {"phase": "Succeeded"}})
    assert (reply.code, reply.body["status"]["phase"]) == (200, "Succeeded")
    assert api.get(f"{ns}/pods/a/status").body == reply.body


def a_patch_of_a_pod_leaves_its_status_alone(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    reply = api.patch(f"{ns}/pods/a", {"status": {"phase": "Failed"}})
    assert (reply.code, reply.body["status"]["phase"]) == (200, "Pending")


def a_nodes_status_changes_only_the_status(api: Api) -> None:
    path = api.node(capacity={"cpu": "4"})
    steps = [{"op": "add", "path": "/status/capacity/example.com~1card", "value": 24}]
    reply = api.patch(f"{path}/status", steps, JSON_PATCH)
    assert reply.body["status"]["capacity"] == {"cpu": "4", "example.com/card": "24"}
    assert reply.body["status"]["allocatable"] == {"cpu": "4"}
    change = {"metadata": {"annotations": {"example.com/x": "1"}}, "spec": {"unschedulable": True}}
    reply = api.patch(f"{path}/status", change, MERGE)
    assert "unschedulable" not in reply.body["spec"]
    assert reply.body["metadata"]["annotations"] == {"example.com/x": "1"}
    assert reply.body["metadata"]["name"] == name_of(path)


def cards_are_taken_off_a_node(api: Api) -> None:
    path = api.node(capacity={"cpu": "4", "example.com/card": "2"})
    gone = {"example.com/card": None}
    reply = api.patch(f"{path}/status", {"status": {"capacity": gone, "allocatable": gone}}, MERGE)
    assert reply.body["status"]["capacity"] == {"cpu": "4"}
    assert reply.body["status"]["allocatable"] == {"cpu": "4"}
