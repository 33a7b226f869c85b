from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.agent.nri.protocol.errors import Code, StatusError, WireError
from accelshare.agent.nri.protocol.messages import PLUGIN_SERVICE, adjustment, decode, event_mask
from accelshare.agent.nri.protocol.nri_pb2 import (
    ConfigureRequest,
    ConfigureResponse,
    Container,
    ContainerAdjustment,
    CreateContainerRequest,
    CreateContainerResponse,
    Event,
    PodSandbox,
    StateChangeEvent,
    SynchronizeRequest,
    SynchronizeResponse,
    ValidateContainerAdjustmentRequest,
    ValidateContainerAdjustmentResponse,
)
from accelshare.agent.nri.protocol.plugin import IGNORED_CALLS, NriPlugin, Refuse
from accelshare.agent.nri.protocol.ttrpc_pb2 import Request

POD, CONTAINER = PodSandbox(id="p", name="pod", uid="uid", namespace="ml"), Container(id="c", pod_sandbox_id="p", name="train")
METHODS = ("Configure", "Synchronize", "CreateContainer", "StartContainer", "StateChange", *IGNORED_CALLS)


class Handler:
    """Returns what the test sets; a `start` that is an exception is raised."""

    def __init__(self, gives: Any = None, start: Exception | None = None) -> None:
        self.gives = gives if gives is not None else ContainerAdjustment()
        self.start = start
        self.lists: list[tuple[int, int]] = []

    def synchronize(self, pods: Sequence[PodSandbox], containers: Sequence[Container]) -> None:
        self.lists.append((len(pods), len(containers)))

    def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment:
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives  # also what is no ContainerAdjustment

    def validate_container(self, pod: PodSandbox, container: Container, adjust: ContainerAdjustment) -> None:
        if container.name == "intruder":
            raise Refuse("it brings a card")

    def start_container(self, pod: PodSandbox, container: Container) -> None:
        if self.start is not None:
            raise self.start


def plugin(handler: Handler | None = None) -> NriPlugin:
    return NriPlugin("accelshare", handler or Handler())


def call(plugin: NriPlugin, method: str, message: Any = None) -> bytes:
    payload = b"" if message is None else message.SerializeToString()
    return plugin.answer(Request(service=PLUGIN_SERVICE, method=method, payload=payload))


def test_the_plugin_subscribes_only_to_events_that_it_may_refuse() -> None:
    """With the failure policy every subscribed event fails while we are away, and a container must always be able to stop."""
    answer = decode(ConfigureResponse, call(plugin(), "Configure", ConfigureRequest(runtime_name="containerd")))
    assert answer.events == event_mask([Event.CREATE_CONTAINER, Event.START_CONTAINER]) == 0b101000
    assert answer.failure_policy.fail_request
    assert answer.failure_policy.keep_connected


def test_the_events_may_depend_on_the_runtime() -> None:
    def select_events(name: str, version: str) -> list[Event]:
        return [Event.VALIDATE_CONTAINER_ADJUSTMENT] if (name, version) == ("containerd", "v2.4.2") else [Event.CREATE_CONTAINER]

    one = NriPlugin("accelshare", Handler(), select_events)
    for version, bits in (("v2.4.2", 1 << 13), ("v1.7.35", 1 << 3)):
        request = ConfigureRequest(runtime_name="containerd", runtime_version=version)
        assert decode(ConfigureResponse, call(one, "Configure", request)).events == bits


def test_a_list_in_parts_is_passed_on_once() -> None:
    handler = Handler()
    one = plugin(handler)
    for part in (
        SynchronizeRequest(pods=[POD], more=True),
        SynchronizeRequest(containers=[CONTAINER] * 2, more=True),
    ):
        assert decode(SynchronizeResponse, call(one, "Synchronize", part)).more
        assert not one.synchronized.is_set()
    assert not decode(
        SynchronizeResponse, call(one, "Synchronize", SynchronizeRequest(pods=(POD,), containers=(CONTAINER,)))
    ).more
    assert one.synchronized.is_set()
    assert handler.lists == [(2, 3)]


def test_the_response_has_the_handlers_adjustment() -> None:
    given_ = adjustment(env={"CARD": "0"}, cdi_devices=["vendor/card=0"])
    raw = call(plugin(Handler(given_)), "CreateContainer", CreateContainerRequest(pod=POD, container=CONTAINER))
    assert decode(CreateContainerResponse, raw).adjust == given_


def test_a_refusal_is_its_text() -> None:
    with pytest.raises(StatusError, match=r"^card 0 is not yours$") as refused:
        call(
            plugin(Handler(Refuse("card 0 is not yours"))),
            "CreateContainer",
            CreateContainerRequest(pod=POD, container=CONTAINER),
        )
    assert refused.value.code == Code.UNKNOWN


def test_a_handler_that_returns_nothing_is_an_error() -> None:
    """With an empty answer the runtime would create the container unchanged."""
    one = plugin()
    one._handler.gives = None  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="None instead of a ContainerAdjustment"):
        call(one, "CreateContainer", CreateContainerRequest(pod=POD, container=CONTAINER))


@pytest.mark.parametrize("message", [CreateContainerRequest(pod=POD), CreateContainerRequest(container=CONTAINER), None])
def test_a_call_without_a_pod_or_container_is_an_error(message: CreateContainerRequest | None) -> None:
    for method in ("CreateContainer", "StartContainer"):
        with pytest.raises(StatusError, match=f"accelshare: {method} names no (pod|container)"):
            call(plugin(), method, message)


def test_a_validation_is_answered_with_its_reason() -> None:
    """An error would refuse as well, but kubelet would report that the validator failed."""
    pod = PodSandbox(id="p", name="train-7")
    answer = call(
        plugin(),
        "ValidateContainerAdjustment",
        ValidateContainerAdjustmentRequest(pod=pod, container=Container(id="c", pod_sandbox_id="p", name="intruder")),
    )
    assert decode(ValidateContainerAdjustmentResponse, answer) == ValidateContainerAdjustmentResponse(
        reject=True, reason="it brings a card"
    )
    answer = call(
        plugin(),
        "ValidateContainerAdjustment",
        ValidateContainerAdjustmentRequest(pod=pod, container=Container(id="c", pod_sandbox_id="p", name="train")),
    )
    assert decode(ValidateContainerAdjustmentResponse, answer) == ValidateContainerAdjustmentResponse()


def test_a_start_is_refused_by_old_and_new_runtimes() -> None:
    one = plugin(Handler(start=Refuse("it has no card")))
    for method, message in (
        ("StartContainer", CreateContainerRequest(pod=POD, container=CONTAINER)),
        ("StateChange", StateChangeEvent(event=Event.START_CONTAINER, pod=POD, container=CONTAINER)),
    ):
        with pytest.raises(StatusError, match="it has no card"):
            call(one, method, message)
    assert call(one, "StateChange", StateChangeEvent(event=Event.STOP_CONTAINER, pod=POD, container=CONTAINER)) == b""


@pytest.mark.parametrize("method", IGNORED_CALLS)
def test_other_calls_have_an_empty_answer(method: str) -> None:
    assert call(plugin(), method, CreateContainerRequest(pod=POD, container=CONTAINER)) == b""


def test_an_unknown_call_is_unimplemented() -> None:
    """Runtimes then try the older way."""
    for service, method in ((PLUGIN_SERVICE, "Dance"), ("other.Service", "CreateContainer")):
        with pytest.raises(StatusError) as refused:
            plugin().answer(Request(service=service, method=method))
        assert refused.value.code == Code.UNIMPLEMENTED


def test_a_call_may_take_less_than_the_runtime_waits() -> None:
    """By the shorter timeout of runtime and call."""
    one = plugin()
    call(one, "Configure", ConfigureRequest(request_timeout_ms=40))
    for asked_ns, limit in ((0, "0.03"), (20_000_000, "0.015"), (80_000_000, "0.03")):
        limit_s, error = one.time_limit(
            Request(service=PLUGIN_SERVICE, method="CreateContainer", payload=b"", timeout_nano=asked_ns)
        )
        assert limit_s == pytest.approx(float(limit))
        assert error.text == f"accelshare: CreateContainer: no answer within {limit} s"
        assert error.code == Code.DEADLINE_EXCEEDED


@given(st.sampled_from(METHODS), st.binary(max_size=200))
def test_any_call_with_any_bytes_is_answered_or_refused(method: str, payload: bytes) -> None:
    try:
        plugin().answer(Request(service=PLUGIN_SERVICE, method=method, payload=payload))
    except (StatusError, WireError):
        pass
