"""Cases about access: health, version, tokens, unknown paths and methods, access reviews."""

from dataclasses import replace

from tests.contract.api_cases.client import Api, pod


def the_server_is_healthy(api: Api) -> None:
    for path in ("/readyz", "/livez", "/healthz"):
        reply = api.get(path)
        assert (reply.code, reply.body) == (200, "ok")


def the_server_has_a_version(api: Api) -> None:
    reply = api.get("/version")
    assert reply.code == 200
    assert reply.body["major"] == "1"
    assert reply.body["minor"] == "36"
    assert reply.body["gitVersion"].startswith("v1.36.4")


def a_wrong_token_is_refused(api: Api) -> None:
    stranger = replace(api, token="wrong")
    for reply in (stranger.get("/api/v1/nodes"), stranger.post("/api/v1/namespaces/default/pods", pod("a"))):
        assert (reply.code, reply.reason, reply.message) == (401, "Unauthorized", "Unauthorized")


def an_unknown_path_is_not_found(api: Api) -> None:
    for path in ("/api/v1/gadgets", "/apis/example.com/v1/gadgets", "/nowhere", "/api/v1/namespaces/default/pods/a/gadget"):
        assert api.get(path).code == 404, path


def a_method_that_a_resource_does_not_have_is_refused(api: Api) -> None:
    ns = api.namespace()
    api.make(f"{ns}/pods", pod("a"))
    for method, path in (
        ("POST", f"{ns}/pods/a"),
        ("PUT", f"{ns}/pods"),
        ("PATCH", f"{ns}/pods"),
        ("DELETE", f"{ns}/pods/a/status"),
    ):
        reply = api.request(method, path, {})
        assert (reply.code, reply.reason) == (405, "MethodNotAllowed"), (method, path)


def an_administrator_may_do_everything(api: Api) -> None:
    """A review is answered and not stored."""
    for attributes in (
        {"verb": "create", "group": "apps", "resource": "daemonsets", "namespace": "kube-system"},
        {"verb": "*", "resource": "*"},
    ):
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        reply = api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        assert (reply.code, reply.body["kind"], reply.body["status"]["allowed"]) == (201, "SelfSubjectAccessReview", True)
