"""Cases about validation: defaults that scheduling relies on, and users' mistakes."""

from typing import Any

from tests.contract.api_cases.client import Api, Body, Reply, config_map, name_of, node, pod, unique

CARD = "example.com/card"


def limits_become_requests(api: Api) -> None:
    ns = api.namespace()
    body = pod("a", limits={CARD: 3, "cpu": "1500m", "memory": "1024Mi"})
    body["spec"]["initContainers"] = [{"name": "first", "image": "i:1", "resources": {"limits": {CARD: "2"}}}]
    spec = api.make(f"{ns}/pods", body)["spec"]
    wanted = {CARD: "3", "cpu": "1500m", "memory": "1Gi"}
    assert spec["containers"][0]["resources"] == {"limits": wanted, "requests": wanted}
    assert spec["initContainers"][0]["resources"] == {"limits": {CARD: "2"}, "requests": {CARD: "2"}}


def requests_of_ones_own_are_kept(api: Api) -> None:
    ns = api.namespace()
    body = pod("a")
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": 2, CARD: 1}, "requests": {"cpu": "0.5"}}
    resources = api.make(f"{ns}/pods", body)["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"cpu": "2", CARD: "1"}, "requests": {"cpu": "500m", CARD: "1"}}


def quantities_have_one_form(api: Api) -> None:
    ns = api.namespace()
    forms = {"1000m": "1", "0.5": "500m", "1.5Gi": "1536Mi", "1024": "1024", "1e3": "1e3", "2000k": "2M", "1000Ki": "1000Ki"}
    forms |= {"0": "0", "0.0001": "1m", "1Ki": "1Ki", "0.5Ki": "512", "100E": "100E", "12e4": "120e3", ".5": "500m"}
    forms |= {"1000": "1k", "12000": "12k", "1500": "1500", "1.50": "1500m", "3.0": "3", "1E": "1E", "2Ei": "2Ei"}
    containers = [
        {"name": f"c{index}", "image": "i:1", "resources": {"requests": {"memory": form}}} for index, form in enumerate(forms)
    ]
    spec = api.make(f"{ns}/pods", pod("a") | {"spec": {"containers": containers}})["spec"]
    stored = [container["resources"]["requests"]["memory"] for container in spec["containers"]]
    assert dict(zip(forms, stored, strict=True)) == forms


def a_pod_begins_pending_whatever_its_manifest_says(api: Api) -> None:
    ns = api.namespace()
    body = pod("a") | {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    made = api.make(f"{ns}/pods", body)
    assert made["status"]["phase"] == "Pending"
    assert "conditions" not in made["status"]
    assert made["metadata"]["generation"] == 1


def a_pods_spec_gets_its_defaults(api: Api) -> None:
    ns = api.namespace()
    spec = api.make(f"{ns}/pods", pod("a"))["spec"]
    wanted = {
        "schedulerName": "default-scheduler",
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "enableServiceLinks": True,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
    }
    assert wanted.items() <= spec.items()
    assert spec["containers"] == [
        {
            "name": "main",
            "image": "registry.example/app:1",
            "imagePullPolicy": "IfNotPresent",
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
    ]


def a_gated_pod_says_so(api: Api) -> None:
    ns = api.namespace()
    made = api.make(f"{ns}/pods", pod("a", schedulingGates=[{"name": "example.com/wait"}]))
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")


def a_pod_needs_containers(api: Api) -> None:
    ns = api.namespace()
    empty: tuple[Body, ...] = ({}, {"containers": []})
    for spec in empty:
        reply = api.post(f"{ns}/pods", pod("a") | {"spec": spec})
        expect_invalid(reply, 'Pod "a" is invalid: spec.containers: Required value')
        assert {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"} in causes(reply)


def a_container_needs_a_name_and_an_image(api: Api) -> None:
    ns = api.namespace()
    reply = api.post(f"{ns}/pods", pod("a") | {"spec": {"containers": [{}]}})
    expect_invalid(reply, "spec.containers[0].name: Required value", "spec.containers[0].image: Required value")


def two_containers_need_two_names(api: Api) -> None:
    ns = api.namespace()
    container = {"name": "same", "image": "i:1"}
    reply = api.post(f"{ns}/pods", pod("a") | {"spec": {"containers": [container, container]}})
    expect_invalid(reply, 'Pod "a" is invalid: spec.containers[1].name: Duplicate value: "same"')


def cards_are_counted_in_whole_numbers(api: Api) -> None:
    ns = api.namespace()
    reply = api.post(f"{ns}/pods", pod("a", limits={CARD: "500m"}))
    for side in ("limits", "requests"):
        expect_invalid(reply, f'spec.containers[0].resources.{side}[{CARD}]: Invalid value: "500m": must be an integer')


def requests_for_cards_equal_limits(api: Api) -> None:
    ns = api.namespace()
    body = pod("a")
    body["spec"]["containers"][0]["resources"] = {"limits": {CARD: 2}, "requests": {CARD: 1}}
    reply = api.post(f"{ns}/pods", body)
    expect_invalid(reply, f'spec.containers[0].resources.requests: Invalid value: "1": must be equal to {CARD} limit of 2')
    body["spec"]["containers"][0]["resources"] = {"requests": {CARD: 1}}
    reply = api.post(f"{ns}/pods", body)
    expect_invalid(
        reply, "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources"
    )


def requests_stay_within_limits(api: Api) -> None:
    ns = api.namespace()
    body = pod("a")
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": 1}, "requests": {"cpu": 2}}
    expect_invalid(api.post(f"{ns}/pods", body), 'Invalid value: "2": must be less than or equal to cpu limit of 1')


def amounts_are_not_negative(api: Api) -> None:
    ns = api.namespace()
    reply = api.post(f"{ns}/pods", pod("a", limits={CARD: -1}))
    expect_invalid(reply, f'resources.limits[{CARD}]: Invalid value: "-1": must be greater than or equal to 0')


def a_resource_needs_a_domain(api: Api) -> None:
    ns = api.namespace()
    reply = api.post(f"{ns}/pods", pod("a", limits={"cards": 1}))
    expect_invalid(reply, "must be a standard resource type or fully qualified")


def something_that_is_no_quantity_is_refused(api: Api) -> None:
    ns = api.namespace()
    wrong: tuple[Any, ...] = ("lots", "1 Gi", "", "1..5", True, ["1"], "10Mib")
    for amount in wrong:
        reply = api.post(f"{ns}/pods", pod("a", limits={CARD: amount}))
        assert (reply.code, reply.reason) == (400, "BadRequest"), amount
    assert "quantities must match the regular expression" in api.post(f"{ns}/pods", pod("a", limits={CARD: "lots"})).message


def a_name_is_a_dns_name(api: Api) -> None:
    ns = api.namespace()
    for name in ("Upper", "under_score", "-dash", "dash-", "a..b"):
        reply = api.post(f"{ns}/configmaps", config_map(name))
        wanted = (
            f'ConfigMap "{name}" is invalid: metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist'
        )
        expect_invalid(reply, wanted)
    expect_invalid(api.post(f"{ns}/pods", pod("a" * 254)), "must be no more than 253 characters")


def a_namespaces_name_has_no_dots(api: Api) -> None:
    expect_invalid(api.post("/api/v1/namespaces", {"metadata": {"name": "a.b"}}), "must not contain dots")


def a_name_is_needed(api: Api) -> None:
    ns = api.namespace()
    reply = api.post(f"{ns}/pods", pod())
    expect_invalid(reply, "metadata.name: Required value: name or generateName is required")


def labels_and_annotations_are_texts(api: Api) -> None:
    ns = api.namespace()
    for field in ("labels", "annotations"):
        body = pod("a")
        body["metadata"][field] = {"example.com/count": 3}
        reply = api.post(f"{ns}/pods", body)
        assert (reply.code, reply.reason) == (400, "BadRequest")
        assert f"cannot unmarshal number into Go struct field ObjectMeta.metadata.{field} of type string" in reply.message


def labels_have_a_shape(api: Api) -> None:
    ns = api.namespace()
    for labels in ({"key": "two words"}, {"-bad": "x"}, {"a/b/c": "x"}, {"": "x"}, {"key": "x" * 64}, {"UP.com/x": "y"}):
        reply = api.post(f"{ns}/pods", pod("a", labels=labels))
        expect_invalid(reply, "metadata.labels: Invalid value: ")


def annotations_have_keys_and_a_limit(api: Api) -> None:
    ns = api.namespace()
    body = pod("a")
    body["metadata"]["annotations"] = {"bad key": "x"}
    expect_invalid(api.post(f"{ns}/pods", body), 'metadata.annotations: Invalid value: "bad key": name part must consist of')
    body["metadata"]["annotations"] = {"UP.example.com/Key": "x" * (256 * 1024)}
    expect_invalid(api.post(f"{ns}/pods", body), "metadata.annotations: Too long: may not be more than 262144 bytes")
    body["metadata"]["annotations"] = {"UP.example.com/Key": "x" * 1000}
    assert api.post(f"{ns}/pods", body).code == 201


def a_config_map_has_texts_under_plain_keys(api: Api) -> None:
    ns = api.namespace()
    reply = api.post(f"{ns}/configmaps", {"metadata": {"name": "a"}, "data": {"x": 1}})
    assert (reply.code, reply.reason) == (400, "BadRequest")
    assert "into Go struct field ConfigMap.data of type string" in reply.message
    reply = api.post(f"{ns}/configmaps", {"metadata": {"name": "a"}, "data": {"a b": "1"}})
    expect_invalid(reply, 'ConfigMap "a" is invalid: data[a b]: Invalid value: "a b": a valid config key must consist of')


def a_nodes_cards_are_counted_in_whole_numbers(api: Api) -> None:
    name = unique("node")
    reply = api.post("/api/v1/nodes", node(name, capacity={CARD: "1500m"}))
    expect_invalid(reply, "must be an integer")
    path = api.node()
    reply = api.patch(f"{path}/status", {"status": {"capacity": {CARD: "1500m"}}})
    expect_invalid(reply, f'Node "{name_of(path)}" is invalid: ', "must be an integer")


def expect_invalid(reply: Reply, *texts: str) -> None:
    assert (reply.code, reply.reason) == (422, "Invalid"), reply.body
    for text in texts:
        assert text in reply.message


def causes(reply: Reply) -> list[Body]:
    found: list[Body] = reply.body["details"]["causes"]
    return found
