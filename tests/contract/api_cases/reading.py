"""Cases about GET: one object, lists, pages, selectors."""

import json
from typing import Any

from accelshare.wire import protobuf
from accelshare.wire.decoding import PROTOBUF_MAGIC
from accelshare.wire.objects import Pod, node_decoder, pod_decoder
from tests.contract.api_cases.client import Api, config_map, name_of, pod, unique


def a_missing_object_is_not_found(api: Api) -> None:
    ns = api.namespace()
    reply = api.get(f"{ns}/pods/ghost")
    assert (reply.code, reply.reason, reply.message) == (404, "NotFound", 'pods "ghost" not found')
    assert reply.body["details"] == {"name": "ghost", "kind": "pods"}
    reply = api.get(f"{ns}/pods/ghost".replace("/api/v1", "/apis/coordination.k8s.io/v1").replace("pods", "leases"))
    assert reply.message == 'leases.coordination.k8s.io "ghost" not found'
    assert reply.body["details"] == {"name": "ghost", "group": "coordination.k8s.io", "kind": "leases"}


def a_list_is_sorted_and_says_its_version(api: Api) -> None:
    ns = api.namespace()
    for name in ("b", "a", "a-1", "a.b"):
        last = api.make(f"{ns}/configmaps", config_map(name, labels={"mine": "yes"}))
    reply = api.get(f"{ns}/configmaps", labelSelector="mine")
    assert (reply.code, reply.body["kind"], reply.body["apiVersion"]) == (200, "ConfigMapList", "v1")
    assert reply.names == ["a", "a-1", "a.b", "b"]
    assert int(reply.version) >= int(last["metadata"]["resourceVersion"])
    assert not {"kind", "apiVersion"} & set(reply.body["items"][0])


def an_empty_list_has_no_items(api: Api) -> None:
    ns = api.namespace()
    reply = api.get(f"{ns}/pods")
    assert reply.body["items"] == []
    assert int(reply.version) > 0


def a_namespace_that_is_not_there_has_nothing_in_it(api: Api) -> None:
    reply = api.get(f"/api/v1/namespaces/{unique('nowhere')}/pods")
    assert (reply.code, reply.body["items"]) == (200, [])


def all_namespaces_can_be_listed_at_once(api: Api) -> None:
    mine = unique("mine")
    namespaces = sorted(api.namespace() for _ in range(2))
    for ns in namespaces:
        for name in ("b", "a"):
            api.make(f"{ns}/pods", pod(name, labels={"mine": mine}))
    reply = api.get("/api/v1/pods", labelSelector=f"mine={mine}")
    found = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in reply.body["items"]]
    assert found == [(name_of(ns), name) for ns in namespaces for name in ("a", "b")]


def a_list_comes_in_pages(api: Api) -> None:
    ns = api.namespace()
    names = [f"c{index}" for index in range(7)]
    for name in names:
        api.make(f"{ns}/configmaps", config_map(name, labels={"mine": "yes"}))
    replies = []
    token = ""
    while True:
        query = {"limit": 3, "labelSelector": "mine"} | ({"continue": token} if token else {})
        replies.append(api.get(f"{ns}/configmaps", **query))
        token = replies[-1].body["metadata"].get("continue", "")
        if not token:
            break
    assert [len(reply.body["items"]) for reply in replies] == [3, 3, 1]
    assert [name for reply in replies for name in reply.names] == names
    assert len({reply.version for reply in replies}) == 1


def pods_in_protobuf_are_the_same_as_in_json(api: Api) -> None:
    """Where the server can: the in-memory one answers in JSON."""
    ns = api.namespace()
    amounts = {"cpu": "500m", "memory": "1Gi", "example.com/gpu": "2"}
    side = {"name": "side", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    main = {"name": "main", "image": "i", "resources": {"limits": amounts, "requests": amounts}}
    spec = {"containers": [main], "initContainers": [side], "nodeName": "n1", "resources": {"requests": {"cpu": "2"}}}
    content = pod("a", labels={"l": "v"})
    content["metadata"]["annotations"] = {"k": "ü"}
    api.make(f"{ns}/pods", content | {"spec": spec})
    api.make(f"{ns}/pods", pod("b"))
    status = {"phase": "Failed", "reason": "Why", "message": "because", "startTime": "2026-11-17T12:01:28Z"}
    conditions = [{"type": "PodScheduled", "status": "True"}]
    assert api.patch(f"{ns}/pods/a/status", {"status": status | {"conditions": conditions}}).code == 200
    body = api.in_protobuf(f"{ns}/pods", limit=1)
    listed = api.get(f"{ns}/pods", limit=1).body
    if not body.startswith(PROTOBUF_MAGIC):
        assert json.loads(body)["items"] == listed["items"]
        return
    page = protobuf.PODS.page(body)
    assert [protobuf.pod_of(item) for item in page.items] == [with_texts(item) for item in listed["items"]]
    assert page.continue_token
    rest = protobuf.PODS.page(api.in_protobuf(f"{ns}/pods", limit=1, **{"continue": page.continue_token}))
    assert [(item.metadata.name, rest.continue_token) for item in rest.items] == [("b", "")]
    assert rest.resource_version == page.resource_version
    stream = protobuf.PODS.stream()
    newest = {"resourceVersion": page.resource_version, "resourceVersionMatch": "NotOlderThan"}
    whole = api.in_protobuf(f"{ns}/pods", **newest)
    streamed = [item.metadata.name for start in range(0, len(whole), 99) for item in stream.feed(whole[start : start + 99])]
    assert (streamed, stream.complete) == (["a", "b"], True)
    assert int(stream.resource_version) >= int(page.resource_version)


def with_texts(item: dict[str, Any]) -> Pod:
    """The pod, with the empty texts that protobuf cannot tell from absent ones."""
    decoded = pod_decoder.decode(json.dumps(item))
    decoded.spec.service_account_name = decoded.spec.service_account_name or ""
    return decoded


def nodes_in_protobuf_are_the_same_as_in_json(api: Api) -> None:
    """Where the server can: the in-memory one answers in JSON."""
    made = api.node(capacity={"cpu": "4", "example.com/gpu": "2"})
    assert api.patch(f"{made}/status", {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}).code == 200
    chosen = {"fieldSelector": f"metadata.name={made.rpartition('/')[2]}"}
    body = api.in_protobuf("/api/v1/nodes", **chosen)
    (listed,) = api.get("/api/v1/nodes", **chosen).body["items"]
    if body.startswith(PROTOBUF_MAGIC):
        (message,) = protobuf.NODES.page(body).items
        found, expected = protobuf.node_of(message), node_decoder.decode(json.dumps(listed))
        assert found.status == expected.status
        assert found.metadata.name == expected.metadata.name
        assert found.metadata.resource_version == expected.metadata.resource_version
        assert dict(found.metadata.annotations or {}) == dict(expected.metadata.annotations or {})


def pages_show_one_moment(api: Api) -> None:
    ns = api.namespace()
    for name in ("a", "b", "c", "d"):
        api.make(f"{ns}/pods", pod(name))
    first = api.get(f"{ns}/pods", limit=2)
    api.delete(f"{ns}/pods/c", gracePeriodSeconds=0)
    api.make(f"{ns}/pods", pod("bb"))
    api.patch(f"{ns}/pods/d", {"metadata": {"labels": {"new": "yes"}}})
    second = api.get(f"{ns}/pods", limit=5, **{"continue": first.body["metadata"]["continue"]})
    assert first.names + second.names == ["a", "b", "c", "d"]
    assert "labels" not in second.body["items"][1]["metadata"]
    assert second.version == first.version
    assert api.get(f"{ns}/pods").names == ["a", "b", "bb", "d"]


def a_page_as_long_as_the_list_is_the_last(api: Api) -> None:
    ns = api.namespace()
    for name in ("a", "b"):
        api.make(f"{ns}/pods", pod(name))
    reply = api.get(f"{ns}/pods", limit=2)
    assert reply.names == ["a", "b"]
    assert "continue" not in reply.body["metadata"]


def an_old_continue_token_expires(api: Api) -> None:
    """The response is 410, with a token that continues from the same key at the current revision.

    Events, because the real server remembers other kinds in a cache of its own, for a while longer than etcd does.
    """
    ns = api.namespace()
    for name in ("a", "b", "c"):
        api.make(f"{ns}/events", {"metadata": {"name": name}, "involvedObject": {"namespace": name_of(ns)}})
    token = api.get(f"{ns}/events", limit=1).body["metadata"]["continue"]
    api.delete(f"{ns}/events/b")
    api.compact()
    reply = api.get(f"{ns}/events", limit=1, **{"continue": token})
    assert (reply.code, reply.reason) == (410, "Expired")
    assert reply.message.startswith("The provided continue parameter is too old to display a consistent list result.")
    going_on = api.get(f"{ns}/events", limit=5, **{"continue": reply.body["metadata"]["continue"]})
    assert going_on.names == ["c"]


def a_token_that_is_none_is_refused(api: Api) -> None:
    ns = api.namespace()
    reply = api.get(f"{ns}/pods", limit=1, **{"continue": "nonsense"})
    assert (reply.code, reply.reason) == (400, "BadRequest")
    assert "continue key is not valid" in reply.message


def a_list_from_the_cache_has_no_pages(api: Api) -> None:
    ns = api.namespace()
    for name in ("a", "b"):
        version = api.make(f"{ns}/pods", pod(name))["metadata"]["resourceVersion"]
    assert api.get(f"{ns}/pods", resourceVersion=version).names == ["a", "b"]  # the cache has seen both from here on
    assert api.get(f"{ns}/pods", limit=1, resourceVersion="0").names == ["a", "b"]


def a_list_from_the_future_is_refused(api: Api) -> None:
    ns = api.namespace()
    reply = api.get(f"{ns}/pods", resourceVersion="9999999999")
    assert (reply.code, reply.reason) == (504, "Timeout")
    assert reply.message.startswith("Timeout: Too large resource version: 9999999999, current: ")
    assert reply.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def labels_select(api: Api) -> None:
    ns = api.namespace()
    for name, labels in {"a": {"tier": "x"}, "b": {"tier": "y", "big": "9"}, "c": {}, "d": {"example.com/tier": "x"}}.items():
        api.make(f"{ns}/pods", pod(name, labels=labels))
    wanted = {
        "tier=x": "a",
        "tier==x": "a",
        "tier!=x": "bcd",
        "tier": "ab",
        "!tier": "cd",
        "tier in (x,y)": "ab",
        "tier in (x, z)": "a",
        "tier notin (x)": "bcd",
        "tier,big": "b",
        "tier in (x,y),big!=9": "a",
        "example.com/tier=x": "d",
        "tier=": "",
        "big>8": "b",
        "big<8": "",
        "": "abcd",
    }
    found = {query: "".join(api.get(f"{ns}/pods", labelSelector=query).names) for query in wanted}
    assert found == wanted


def a_label_selector_that_cannot_be_read_is_refused(api: Api) -> None:
    ns = api.namespace()
    for query in ("a in", "=x", "a=b=c", "a in (x", "a b"):
        reply = api.get(f"{ns}/pods", labelSelector=query)
        assert (reply.code, reply.reason) == (400, "BadRequest"), query


def fields_select(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a", nodeName="n1"))
    api.make(f"{ns}/pods", pod("b", restartPolicy="Never", schedulerName="own"))
    api.patch(f"{ns}/pods/b/status", {"status": {"phase": "Succeeded"}})
    wanted = {
        "spec.nodeName=n1": "a",
        "spec.nodeName=": "b",
        "spec.nodeName!=": "a",
        "status.phase=Succeeded": "b",
        "status.phase!=Succeeded,status.phase!=Failed": "a",
        "metadata.name=b": "b",
        "metadata.name=z": "",
        f"metadata.namespace={name_of(ns)}": "ab",
        "spec.schedulerName=own": "b",
        "spec.restartPolicy==Always": "a",
    }
    found = {query: "".join(api.get(f"{ns}/pods", fieldSelector=query).names) for query in wanted}
    assert found == wanted


def fields_of_nodes_and_events_select(api: Api) -> None:
    ns = api.namespace()
    name = name_of(api.node(unschedulable=True))
    assert name in api.get("/api/v1/nodes", fieldSelector="spec.unschedulable=true").names
    assert name not in api.get("/api/v1/nodes", fieldSelector="spec.unschedulable=false").names
    assert api.get("/api/v1/nodes", fieldSelector=f"metadata.name={name}").names == [name]
    for event, pod_name in (("e1", "a"), ("e2", "b")):
        involved = {"kind": "Pod", "namespace": name_of(ns), "name": pod_name}
        api.make(f"{ns}/events", {"metadata": {"name": event}, "involvedObject": involved, "reason": "R", "type": "Warning"})
    assert api.get(f"{ns}/events", fieldSelector="involvedObject.name=b,reason=R,type=Warning").names == ["e2"]


def a_field_that_cannot_be_selected_is_refused(api: Api) -> None:
    ns = api.namespace()
    reply = api.get(f"{ns}/pods", fieldSelector="spec.hostname=x")
    assert (reply.code, reply.reason, reply.message) == (400, "BadRequest", "field label not supported: spec.hostname")
    reply = api.get(f"{ns}/configmaps", fieldSelector="data.x=y")
    assert reply.message == '"data.x" is not a known field selector: only "metadata.name", "metadata.namespace"'
    assert api.get(f"{ns}/pods", fieldSelector="nonsense").code == 400
