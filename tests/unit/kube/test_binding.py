"""A bind is one POST; its result is certain or explicitly unknown."""

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from accelshare.kube.binding import (
    LARGEST_ANNOTATIONS_BYTES,
    AlwaysPermit,
    BindRefusalReason,
    BindRefused,
    Bound,
    BoundTo,
    Missing,
    Unbound,
    Unknown,
    bind,
    bound_state,
)
from accelshare.kube.client import Client
from accelshare.kube.config import Cluster
from accelshare.kube.errors import Forbidden, Unreachable
from tests.unit.kube.support import Naps, asking, client_of, hang_up, refusal, unused_url

WANTED: dict[str, Any] = {
    "namespace": "ml",
    "name": "train",
    "uid": "u1",
    "version": "5",
    "node": "n1",
    "annotations": {"x.io/card": "0"},
}

Fault = Callable[["Api", web.BaseRequest], Awaitable[web.StreamResponse]]


class Api:
    """One pod, bound as an API server does it. Faults are taken in order: one for each POST, one for each GET."""

    def __init__(self, *, posts: list[Fault] | None = None, gets: list[Fault] | None = None) -> None:
        self.pod: dict[str, Any] | None = {
            "metadata": {"name": "train", "namespace": "ml", "uid": "u1", "resourceVersion": "5", "annotations": {"old": "1"}},
            "spec": {},
        }
        self.faults = {"POST": posts or [], "GET": gets or []}
        self.calls: list[str] = []
        self.bodies: list[dict[str, Any]] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.calls.append(request.method)
        assert request.path == "/api/v1/namespaces/ml/pods/train" + ("/binding" if request.method == "POST" else "")
        if request.method == "POST":
            self.bodies.append(json.loads(await request.read()))
        faults = self.faults[request.method]
        if faults:
            return await faults.pop(0)(self, request)
        return self.carry_out() if request.method == "POST" else self.read()

    def read(self) -> web.Response:
        return refusal(404, "NotFound") if self.pod is None else web.json_response(self.pod)

    def carry_out(self) -> web.Response:
        asked = self.bodies[-1]
        if self.pod is None:
            return refusal(404, "NotFound", 'pods "train" not found')
        if asked["metadata"]["uid"] != self.pod["metadata"]["uid"]:
            return refusal(409, "Conflict", "Precondition failed: UID in precondition")
        if asked["metadata"].get("resourceVersion", "") not in ("", self.pod["metadata"]["resourceVersion"]):
            return refusal(409, "Conflict", "Precondition failed: ResourceVersion in precondition")
        if "nodeName" in self.pod["spec"]:
            return refusal(409, "Conflict", f"pod train is already assigned to node {self.pod['spec']['nodeName']}")
        self.pod["spec"]["nodeName"] = asked["target"]["name"]
        self.pod["metadata"]["annotations"].update(asked["metadata"]["annotations"])
        return web.json_response({"kind": "Status", "status": "Success", "code": 201}, status=201)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with asking(self) as client:
            yield client

    async def bind(self, **changed: Any) -> Bound | BindRefused | Unknown:
        async with self.client() as client:
            return await bind(client, **{**WANTED, "sleep": Naps(), **changed})


async def lost_before(api: Api, request: web.BaseRequest) -> web.StreamResponse:
    """The connection breaks before the API server does anything."""
    return hang_up(request)


async def lost_after(api: Api, request: web.BaseRequest) -> web.StreamResponse:
    """The API server carries the bind out, and then the connection breaks."""
    api.carry_out()
    return hang_up(request)


async def change(api: Api, request: web.BaseRequest) -> web.StreamResponse:
    """The pod changes just before the POST arrives, as when kube-scheduler writes its status."""
    assert api.pod is not None
    api.pod["metadata"]["resourceVersion"] = str(int(api.pod["metadata"]["resourceVersion"]) + 1)
    return api.carry_out()


async def silent(api: Api, request: web.BaseRequest) -> web.StreamResponse:
    await asyncio.Event().wait()
    return web.Response()


def answered(status: int, **headers: str) -> Fault:
    async def fault(api: Api, request: web.BaseRequest) -> web.StreamResponse:
        return refusal(status, message=f"fault {status}", **headers)

    return fault


def carried_out_but_answered(status: int) -> Fault:
    async def fault(api: Api, request: web.BaseRequest) -> web.StreamResponse:
        api.carry_out()
        return refusal(status)

    return fault


# One POST


async def test_a_bind_is_one_post_with_everything_in_it() -> None:
    api = Api()
    assert await api.bind() == Bound(already=False)
    assert api.calls == ["POST"], "after a 201 nothing more is read"
    assert api.bodies[0] == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "train",
            "namespace": "ml",
            "uid": "u1",
            "resourceVersion": "5",
            "annotations": {"x.io/card": "0"},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


async def test_a_pod_that_has_changed_since_is_bound_with_the_version_just_read() -> None:
    """And without a wait: kube-scheduler's own status patches change a pod all the time."""
    api, naps = Api(posts=[change]), Naps()
    assert await api.bind(sleep=naps) == Bound(already=False)
    assert api.calls == ["POST", "GET", "POST"]
    assert [body["metadata"]["resourceVersion"] for body in api.bodies] == ["5", "6"]
    assert naps.taken == [0.0]


async def test_a_pod_that_keeps_changing_is_refused_by_the_deadline() -> None:
    """Each try waits longer, and all of them end with the deadline."""
    api = Api(posts=[change] * 1000)
    outcome = await api.bind(deadline_s=3.0, sleep=asyncio.sleep)
    assert isinstance(outcome, BindRefused)
    assert "ResourceVersion in precondition" in outcome.message
    assert len(api.bodies) < 10


async def test_a_pod_whose_version_is_not_known_is_bound_without_one() -> None:
    api = Api()
    assert await api.bind(version="") == Bound(already=False)
    assert "resourceVersion" not in api.bodies[0]["metadata"]


async def test_a_conflict_at_the_right_version_is_final() -> None:
    """A pod that is being deleted, or has a scheduling gate."""
    api = Api(posts=[answered(409)] * 2)
    outcome = await api.bind()
    assert isinstance(outcome, BindRefused)
    assert outcome.why is BindRefusalReason.DENIED
    assert api.calls == ["POST", "GET"]


@pytest.mark.parametrize("status", [400, 401, 403, 422])
async def test_a_certain_refusal_has_the_servers_message(status: int) -> None:
    api = Api(posts=[answered(status)] * 2)
    outcome = await api.bind()
    assert isinstance(outcome, BindRefused)
    assert outcome.why is BindRefusalReason.DENIED
    assert f"fault {status}" in outcome.message
    assert "GET" not in api.calls


async def test_a_pod_that_is_not_there_is_refused() -> None:
    api = Api()
    api.pod = None
    outcome = await api.bind()
    assert isinstance(outcome, BindRefused)
    assert outcome.why is BindRefusalReason.NO_SUCH_POD


# 409: read the pod


async def test_the_same_bind_twice_is_fine() -> None:
    api = Api()
    assert await api.bind() == Bound()
    assert await api.bind() == Bound(already=True)
    assert api.calls == ["POST", "POST", "GET"]


async def test_a_pod_on_another_node_is_refused_with_the_pod() -> None:
    api = Api()
    await api.bind(node="n2")
    outcome = await api.bind()
    assert isinstance(outcome, BindRefused)
    assert outcome.why is BindRefusalReason.ASSIGNED
    assert "is on node n2" in outcome.message
    assert outcome.pod is not None
    assert json.loads(outcome.pod) == api.pod


async def test_a_pod_on_this_node_with_other_annotations_is_refused() -> None:
    """Another extender assigned another card; our hold must end."""
    api = Api()
    await api.bind(annotations={"x.io/card": "3"})
    outcome = await api.bind()
    assert isinstance(outcome, BindRefused)
    assert outcome.why is BindRefusalReason.ASSIGNED
    assert "x.io/card" in outcome.message


async def test_another_pod_of_the_same_name_is_not_ours() -> None:
    api = Api()
    assert api.pod is not None
    api.pod["metadata"]["uid"] = "u2"
    outcome = await api.bind()
    assert isinstance(outcome, BindRefused)
    assert outcome.why is BindRefusalReason.NO_SUCH_POD


async def test_a_conflict_with_an_unbound_pod_is_refused() -> None:
    """Being deleted, or gated."""
    outcome = await Api(posts=[answered(409)]).bind()
    assert isinstance(outcome, BindRefused)
    assert outcome.why is BindRefusalReason.DENIED
    assert "fault 409" in outcome.message


# Answers that were lost


async def test_a_bind_whose_response_was_lost_is_bound() -> None:
    api = Api(posts=[lost_after])
    assert await api.bind() == Bound(already=True)
    assert api.calls == ["POST", "GET"]


async def test_lost_before_it_was_carried_out_is_sent_again() -> None:
    api = Api(posts=[lost_before])
    assert await api.bind() == Bound()
    assert api.calls == ["POST", "GET", "POST"]


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
async def test_a_bind_that_was_carried_out_despite_an_error_is_bound(status: int) -> None:
    assert await Api(posts=[carried_out_but_answered(status)]).bind() == Bound(already=True)


@pytest.mark.parametrize("status", [408, 502, 503, 504])
async def test_not_carried_out_and_a_failure_that_passes_is_sent_again(status: int) -> None:
    api = Api(posts=[answered(status)])
    assert await api.bind() == Bound()
    assert api.calls == ["POST", "GET", "POST"]


async def test_a_failure_of_the_api_server_itself_is_refused() -> None:
    """An admission webhook that is down will be down in 50 ms, too; kube-scheduler retries later."""
    api = Api(posts=[answered(500)])
    outcome = await api.bind()
    assert isinstance(outcome, BindRefused)
    assert outcome.why is BindRefusalReason.DENIED
    assert api.calls == ["POST", "GET"]


async def test_too_many_requests_means_not_carried_out() -> None:
    naps = Naps()
    api = Api(posts=[answered(429, Retry_After="1"), answered(429)])
    assert await api.bind(sleep=naps) == Bound()
    assert api.calls == ["POST", "POST", "POST"]
    assert naps.taken == [1.0, 0.1]


async def test_a_lost_response_and_a_pod_bound_elsewhere_is_refused() -> None:
    async def taken(api: Api, request: web.BaseRequest) -> web.StreamResponse:
        assert api.pod is not None
        api.pod["spec"]["nodeName"] = "n2"
        return hang_up(request)

    outcome = await Api(posts=[taken]).bind()
    assert isinstance(outcome, BindRefused)
    assert outcome.why is BindRefusalReason.ASSIGNED


async def test_a_post_that_hangs_leaves_time_to_read_the_pod() -> None:
    async def hangs_after(api: Api, request: web.BaseRequest) -> web.StreamResponse:
        api.carry_out()
        return await silent(api, request)

    assert await Api(posts=[hangs_after]).bind(deadline_s=1.0) == Bound(already=True)


async def test_reading_the_pod_is_retried() -> None:
    api = Api(posts=[lost_after], gets=[answered(500), lost_before, answered(503), answered(429)])
    assert await api.bind() == Bound(already=True)


# Nobody can tell


async def test_never_sent_is_refused_and_not_unknown() -> None:
    """Nothing reached the API server, so no hold is needed."""
    async with client_of(Cluster(unused_url())) as client:
        # The last attempt begins 1.6 s after the first: it must have ended at the deadline, also on a busy machine.
        outcome = await bind(client, **WANTED, deadline_s=2.5)
    assert isinstance(outcome, BindRefused)
    assert outcome.why is BindRefusalReason.NOT_SENT


async def test_a_bind_whose_pod_cannot_be_read_is_unknown() -> None:
    api = Api(posts=[silent] * 9, gets=[silent] * 999)
    outcome = await api.bind(deadline_s=2.0)
    assert isinstance(outcome, Unknown)
    assert "no response within" in outcome.message


async def test_lost_and_not_yet_there_at_the_end_is_unknown() -> None:
    """The pod has no node yet, but a POST that got lost in a proxy may still be carried out."""
    api = Api(posts=[silent] * 9)
    assert isinstance(await api.bind(deadline_s=2.0), Unknown)
    assert api.calls[:2] == ["POST", "GET"]


async def test_a_conflict_that_cannot_be_looked_into_is_unknown() -> None:
    """The conflict may be with an earlier bind of ours."""
    api = Api(posts=[answered(409)], gets=[answered(403)])
    outcome = await api.bind()
    assert isinstance(outcome, Unknown)
    assert "fault 409" in outcome.message
    assert "fault 403" in outcome.message
    assert isinstance(await Api(posts=[answered(409)], gets=[silent] * 999).bind(deadline_s=3.0), Unknown)


async def test_a_refusal_after_a_lost_post_is_unknown() -> None:
    api = Api(posts=[lost_before, answered(403)])
    assert isinstance(await api.bind(), Unknown)
    assert api.calls == ["POST", "GET", "POST"]


# The state, asked for later


async def test_the_errors_of_a_bind_are_freed_at_once() -> None:
    """With its traceback an error has the request in memory, and the extender's garbage collector seldom runs."""
    errors: list[weakref.ref[Unreachable]] = []

    class Unanswered:
        async def request(self, *_: object, **__: object) -> bytes:
            raise self._error()

        def _error(self) -> Unreachable:
            error = Unreachable("no response")
            errors.append(weakref.ref(error))
            return error

    gc.disable()
    try:
        assert isinstance(await bind(Unanswered(), **WANTED, deadline_s=0.1), Unknown)  # type: ignore[arg-type]
        assert errors
        assert [error() for error in errors] == [None] * len(errors)
    finally:
        gc.enable()


async def test_bound_state_returns_the_pods_node() -> None:
    api = Api()
    async with api.client() as client:
        before = await bound_state(client, "ml", "train", "u1")
        await bind(client, **WANTED)
        after = await bound_state(client, "ml", "train", "u1")
        other = await bound_state(client, "ml", "train", "u2")
        api.pod = None
        missing = await bound_state(client, "ml", "train", "u1")
    assert isinstance(before, Unbound)
    assert isinstance(after, BoundTo)
    assert (after.node, after.annotations) == ("n1", {"old": "1", "x.io/card": "0"})
    assert (other, missing) == (Missing(), Missing())


async def test_bound_state_raises_if_the_pod_cannot_be_read() -> None:
    async with Api(gets=[answered(403)]).client() as client:
        with pytest.raises(Forbidden):
            await bound_state(client, "ml", "train", "u1")


# What the API server would take and should not


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"annotations": {"a b": "1"}}, "annotation key 'a b'"),
        ({"annotations": {"": "1"}}, "annotation key ''"),
        ({"annotations": {"x.io/": "1"}}, "annotation key 'x.io/'"),
        ({"annotations": {"-x.io/a": "1"}}, "annotation key '-x.io/a'"),
        ({"annotations": {"a" * 64: "1"}}, "at most 63"),
        ({"annotations": {"a": "x" * LARGEST_ANNOTATIONS_BYTES}}, "they must have at most 204800"),
        ({"annotations": {"a": "ä" * (LARGEST_ANNOTATIONS_BYTES // 2)}}, "204801 bytes"),
        ({"annotations": {"a": "\ud800"}}, "annotation a: its value"),
        ({"uid": ""}, "uid is empty"),
        ({"node": ""}, "node is empty"),
        ({"name": "../../nodes"}, "pod name"),
        ({"namespace": ""}, "namespace"),
    ],
)
async def test_what_would_spoil_the_pod_is_not_sent(changed: dict[str, Any], problem: str) -> None:
    api = Api()
    with pytest.raises(ValueError, match=problem):
        await api.bind(**changed)
    assert api.calls == []


async def test_everything_a_kubernetes_key_may_be_is_sent() -> None:
    annotations = {"VENDOR_COM_GPU_MEM_IDX": "0", "x.io/a.b-c_D": "", "Example.COM/x": "{}", "a" * 63: "ä"}
    assert await Api().bind(annotations=annotations) == Bound()


class Paused:
    """The permit of a process that paused: by its own clock it still may bind, and the API server knows better."""

    def __init__(self, *, granted: int) -> None:
        self.granted_times = granted
        self.asked = 0

    def granted(self) -> bool:
        self.granted_times -= 1
        return self.granted_times >= 0

    async def confirm(self) -> bool:
        self.asked += 1
        return False

    async def announce(self, uid: str) -> bool:
        return bool(uid)

    def withdraw(self, uid: str) -> None:
        raise AssertionError(f"{uid}: only its caller knows whether an earlier bind of the pod is in flight")


class Unannounced(AlwaysPermit):
    async def announce(self, uid: str) -> bool:
        return not uid


async def test_a_bind_that_could_not_be_announced_is_not_sent() -> None:
    """The next process would not know that it must fence the pod."""
    api = Api()
    result = await api.bind(permit=Unannounced())
    assert isinstance(result, BindRefused)
    assert (result.why, api.calls) == (BindRefusalReason.NOT_SENT, [])


async def test_without_the_permit_nothing_is_sent() -> None:
    api = Api()
    result = await api.bind(permit=Paused(granted=0))
    assert isinstance(result, BindRefused)
    assert (result.why, api.calls) == (BindRefusalReason.NOT_SENT, [])


async def test_a_newer_version_is_used_only_after_the_permit_was_confirmed() -> None:
    """The pod may have changed because another process decides now and fenced it."""
    api, permit = Api(posts=[change]), Paused(granted=9)
    result = await api.bind(permit=permit)
    assert isinstance(result, BindRefused)
    assert (permit.asked, api.calls) == (1, ["POST", "GET"])


async def test_a_lost_post_stays_unknown_when_the_permit_is_gone() -> None:
    api = Api(posts=[lost_before])
    assert isinstance(await api.bind(permit=Paused(granted=1)), Unknown)
    assert api.calls == ["POST", "GET"]
