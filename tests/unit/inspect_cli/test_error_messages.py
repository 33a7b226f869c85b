"""Errors for people: what is missing, whose, and what to do."""

import json

import click
import pytest

from accelshare.inspect_cli.error_messages import errors_for_people, unknown, words
from accelshare.kube.errors import ConfigError, Forbidden, KubeError, Unauthorized, Unreachable, from_answer

MESSAGE = 'nodes is forbidden: User "bob" cannot list resource "nodes" in API group "" at the cluster scope'


@pytest.mark.parametrize(
    ("request_", "message", "starts"),
    [
        ("GET https://x:6443/api/v1/nodes", MESSAGE, "no permission: user bob may not list nodes in the whole cluster.\n"),
        ("GET https://x:6443/api/v1/nodes/n1", "no", "no permission: you may not get nodes in the whole cluster.\n"),
        (
            "GET https://x:6443/prefix/api/v1/pods",
            "no",
            "no permission: you may not list pods in the whole cluster; if you can list pods in only one namespace, use "
            "-n NAMESPACE.\n",
        ),
        ("GET https://x/api/v1/namespaces/ml/pods/p", "no", "no permission: you may not get pods in namespace ml.\n"),
    ],
)
def test_a_missing_permission_is_named_with_verb_and_resource(request_: str, message: str, starts: str) -> None:
    inventories = words(Forbidden(403, "Forbidden", message, request=request_))
    assert inventories.startswith(starts)
    assert "kubectl create clusterrole accelshare-inspect --verb=get,list --resource=nodes,pods" in inventories


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (ConfigError("kubeconfig x: no context"), "kubeconfig x: no context"),
        (Unauthorized(401, "Unauthorized", "who are you"), "the API server rejects your credentials: who are you"),
        (Unreachable("GET https://x: refused"), "the API server cannot be reached: GET https://x: refused"),
    ],
)
def test_every_problem_is_an_error_message_with_exit_code_one(error: KubeError, part: str) -> None:
    with pytest.raises(click.ClickException) as caught, errors_for_people():
        raise error
    assert part in caught.value.message
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("name", "known", "message"),
    [
        ("minikub", ["minikube", "other"], "there is no node 'minikub'; did you mean minikube?"),
        ("zzz", ["b", "a"], "there is no node 'zzz'; there are a, b"),
        ("zzz", [f"node-{number}" for number in range(20)], "there is no node 'zzz'"),
        ("zzz", [], "there is no node 'zzz'"),
    ],
)
def test_an_unknown_name_gets_a_suggestion(name: str, known: list[str], message: str) -> None:
    with pytest.raises(click.ClickException) as caught:
        unknown("node", name, known)
    assert caught.value.message == message


@pytest.mark.parametrize("status", [401, 403, 404, 422, 500])
@pytest.mark.parametrize("as_status", [True, False])
def test_an_api_servers_message_is_shown_and_not_interpreted(status: int, as_status: bool) -> None:
    """They may quote an admission webhook, a proxy, or what a user wrote."""
    message = 'no\x1b[2J\u202e\x9b\nError: fake User "a\nb"'
    body = json.dumps({"kind": "Status", "code": status, "reason": "R", "message": message}) if as_status else message
    error = from_answer(status, body.encode(), request="GET https://c/api/v1/pods")
    shown = words(error)
    assert str(error).isprintable()
    assert shown.replace("\n", "").isprintable()
    assert "\nError: fake" not in shown
