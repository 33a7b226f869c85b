"""Cases about watches: from a version, from the current state, with selectors, and how they end."""

from tests.contract.api_cases.client import MERGE, Api, binding, lease, leases, name_of, pod


def a_watch_goes_on_from_a_version(api: Api) -> None:
    ns = api.namespace()
    path = leases(ns)
    version = api.make(path, lease("a"))["metadata"]["resourceVersion"]
    api.make(path, lease("b"))
    changed = api.patch(f"{path}/a", {"spec": {"holderIdentity": "x"}}, MERGE).body
    with api.watch(path, resourceVersion=version) as stream:
        assert stream.code == 200
        stream.expect("ADDED", "b")
        assert stream.expect("MODIFIED", "a") == changed
        api.delete(f"{path}/b")
        gone = stream.expect("DELETED", "b")
        assert int(gone["metadata"]["resourceVersion"]) > int(changed["metadata"]["resourceVersion"])
        assert gone["kind"] == "Lease"


def a_list_and_a_watch_miss_nothing(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    version = api.get(f"{ns}/pods").version
    api.make(f"{ns}/pods", pod("b"))
    with api.watch(f"{ns}/pods", resourceVersion=version) as stream:
        stream.expect("ADDED", "b")


def a_watch_from_nothing_begins_with_what_is_there(api: Api) -> None:
    ns = api.namespace()
    for name in ("b", "a"):
        made = api.make(f"{ns}/pods", pod(name))
    assert api.get(f"{ns}/pods", resourceVersion=made["metadata"]["resourceVersion"]).names == ["a", "b"]
    for query in ({}, {"resourceVersion": "0"}):
        with api.watch(f"{ns}/pods", **query) as stream:
            assert sorted(stream.next()[1]["metadata"]["name"] for _ in range(2)) == ["a", "b"]
            fresh = api.make(f"{ns}/pods", pod(f"c{len(query)}"))
            assert stream.expect("ADDED", f"c{len(query)}") == fresh
            api.delete(f"{ns}/pods/c{len(query)}")


def a_watch_sees_its_namespace_only(api: Api) -> None:
    ns, other = api.namespace(), api.namespace()
    version = api.get(f"{ns}/pods").version
    everywhere = api.watch("/api/v1/pods", resourceVersion=version, labelSelector=f"mine={name_of(ns)}")
    with api.watch(f"{ns}/pods", resourceVersion=version) as one, everywhere as both:
        for path, name in ((other, "a"), (ns, "b")):
            api.make(f"{path}/pods", pod(name, labels={"mine": name_of(ns)}))
        one.expect("ADDED", "b")
        assert [both.next()[1]["metadata"]["namespace"] for _ in range(2)] == [name_of(other), name_of(ns)]


def labels_come_into_view_and_leave_it(api: Api) -> None:
    ns = api.namespace()
    version = api.make(f"{ns}/pods", pod("a"))["metadata"]["resourceVersion"]
    with api.watch(f"{ns}/pods", resourceVersion=version, labelSelector="on=yes") as stream:
        api.make(f"{ns}/pods", pod("unseen"))
        came = api.patch(f"{ns}/pods/a", {"metadata": {"labels": {"on": "yes"}}}).body
        assert stream.expect("ADDED", "a") == came
        api.patch(f"{ns}/pods/a", {"metadata": {"annotations": {"example.com/x": "1"}}})
        stream.expect("MODIFIED", "a")
        left = api.patch(f"{ns}/pods/a", {"metadata": {"labels": {"on": None}}}).body
        gone = stream.expect("DELETED", "a")
        assert gone["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
        assert gone["metadata"]["labels"] == {"on": "yes"}
        api.patch(f"{ns}/pods/a", {"metadata": {"labels": {"on": "yes"}}})
        stream.expect("ADDED", "a")


def a_node_sees_its_pods(api: Api) -> None:
    """As kubelet and the agent watch: a pod is ADDED when it is bound."""
    ns = api.namespace()
    version = api.make(f"{ns}/pods", pod("a"))["metadata"]["resourceVersion"]
    node = f"node-of-{name_of(ns)}"
    with api.watch("/api/v1/pods", resourceVersion=version, fieldSelector=f"spec.nodeName={node}") as stream:
        api.make(f"{ns}/pods", pod("b"))
        api.post(f"{ns}/pods/b/binding", binding("b", "elsewhere"))
        api.post(f"{ns}/pods/a/binding", binding("a", node))
        assert stream.expect("ADDED", "a")["spec"]["nodeName"] == node
        api.patch(f"{ns}/pods/a/status", {"status": {"phase": "Running"}})
        stream.expect("MODIFIED", "a")
        api.delete(f"{ns}/pods/a", gracePeriodSeconds=0)
        assert "deletionTimestamp" in stream.expect("MODIFIED", "a")["metadata"]
        stream.expect("DELETED", "a")


def pods_that_have_ended_leave_the_view(api: Api) -> None:
    ns = api.namespace()
    version = api.make(f"{ns}/pods", pod("a"))["metadata"]["resourceVersion"]
    selector = "status.phase!=Succeeded,status.phase!=Failed"
    with api.watch(f"{ns}/pods", resourceVersion=version, fieldSelector=selector) as stream:
        api.patch(f"{ns}/pods/a/status", {"status": {"phase": "Running"}})
        stream.expect("MODIFIED", "a")
        api.patch(f"{ns}/pods/a/status", {"status": {"phase": "Succeeded"}})
        assert stream.expect("DELETED", "a")["status"]["phase"] == "Running"


def one_object_can_be_watched(api: Api) -> None:
    path = leases(api.namespace())
    version = api.make(path, lease("a"))["metadata"]["resourceVersion"]
    api.make(path, lease("b"))
    with api.watch(path, resourceVersion=version, fieldSelector="metadata.name=b") as stream:
        stream.expect("ADDED", "b")


def deleting_a_pod_is_seen_in_its_steps(api: Api) -> None:
    ns = api.namespace()
    version = api.make(f"{ns}/pods", pod("a"))["metadata"]["resourceVersion"]
    with api.watch(f"{ns}/pods", resourceVersion=version) as stream:
        api.delete(f"{ns}/pods/a")
        marked = stream.expect("MODIFIED", "a")
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
        gone = stream.expect("DELETED", "a")
        assert int(gone["metadata"]["resourceVersion"]) > int(marked["metadata"]["resourceVersion"])


def a_watch_ends_when_its_time_is_up(api: Api) -> None:
    ns = api.namespace()
    version = api.get(f"{ns}/pods").version
    with api.watch(f"{ns}/pods", resourceVersion=version, timeoutSeconds=1) as stream:
        assert stream.rest() == []


def a_bookmark_is_a_place_to_go_on_from(api: Api) -> None:
    """Shortly before its end a watch sends a bookmark with the server's revision, beyond changes that it does not show."""
    ns, elsewhere = api.namespace(), api.namespace()
    for attempt in range(5):  # "we don't provide any guarantees on sending bookmarks", says the real server
        version = api.get(f"{ns}/pods").version
        with api.watch(f"{ns}/pods", resourceVersion=version, timeoutSeconds=3, allowWatchBookmarks="true") as stream:
            unseen = api.make(f"{elsewhere}/pods", pod(f"unseen-{attempt}"))
            events = stream.rest()
        # On a busy machine the watch may end before the change is made.
        if events and int(events[-1][1]["metadata"]["resourceVersion"]) >= int(unseen["metadata"]["resourceVersion"]):
            break
    assert {kind for kind, _ in events} == {"BOOKMARK"}
    bookmark = events[-1][1]
    assert (bookmark["kind"], bookmark["apiVersion"]) == ("Pod", "v1")
    assert int(bookmark["metadata"]["resourceVersion"]) >= int(unseen["metadata"]["resourceVersion"])
    api.make(f"{ns}/pods", pod("a"))
    with api.watch(f"{ns}/pods", resourceVersion=bookmark["metadata"]["resourceVersion"]) as stream:
        stream.expect("ADDED", "a")


def there_are_no_bookmarks_unasked(api: Api) -> None:
    ns, elsewhere = api.namespace(), api.namespace()
    version = api.get(f"{ns}/pods").version
    with api.watch(f"{ns}/pods", resourceVersion=version, timeoutSeconds=3) as stream:
        api.make(f"{elsewhere}/pods", pod("unseen"))
        assert stream.rest() == []


def a_version_from_long_ago_is_gone(api: Api) -> None:
    """The stream starts normally, and its only event is the error.

    Events, because the real server keeps them in no cache of its own, which on a young server remembers everything.
    """
    ns = api.namespace()
    api.make(f"{ns}/events", {"metadata": {"name": "e"}, "involvedObject": {"namespace": name_of(ns)}})
    api.compact()
    with api.watch(f"{ns}/events", resourceVersion="1") as stream:
        assert stream.code == 200
        ((kind, status),) = stream.rest()
    assert kind == "ERROR"
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert "too old" in status["message"]


def the_initial_state_can_be_streamed(api: Api) -> None:
    ns = api.namespace()
    for name in ("a", "b"):
        api.make(f"{ns}/pods", pod(name))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with api.watch(f"{ns}/pods", **query) as stream:
        assert sorted(stream.next()[1]["metadata"]["name"] for _ in range(2)) == ["a", "b"]
        kind, bookmark = stream.next()
        assert kind == "BOOKMARK"
        assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        api.make(f"{ns}/pods", pod("c"))
        stream.expect("ADDED", "c")


def a_version_that_is_none_is_refused(api: Api) -> None:
    ns = api.namespace()
    with api.watch(f"{ns}/pods", resourceVersion="abc") as stream:
        assert stream.code == 500
        assert stream.body()["message"].startswith('resourceVersion: Invalid value: "abc"')


def a_selector_that_cannot_be_read_is_refused_before_the_stream(api: Api) -> None:
    ns = api.namespace()
    with api.watch(f"{ns}/pods", fieldSelector="spec.hostname=x") as stream:
        assert (stream.code, stream.body()["reason"]) == (400, "BadRequest")


def two_watches_see_the_same(api: Api) -> None:
    ns = api.namespace()
    version = api.get(f"{ns}/pods").version
    with api.watch(f"{ns}/pods", resourceVersion=version) as one, api.watch(f"{ns}/pods", resourceVersion=version) as two:
        for name in ("a", "b", "c"):
            api.make(f"{ns}/pods", pod(name))
        assert [one.next() for _ in range(3)] == [two.next() for _ in range(3)]
