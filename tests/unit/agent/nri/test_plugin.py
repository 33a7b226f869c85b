import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.agent.nri.errors import Code, StatusError, WireError
from accelshare.agent.nri.handler import Refuse
from accelshare.agent.nri.messages import (
    PLUGIN_SERVICE,
    Adjustment,
    ConfigureRequest,
    ConfigureResponse,
    Container,
    ContainerRequest,
    CreateContainerResponse,
    Event,
    PodSandbox,
    StateChange,
    SynchronizeRequest,
    SynchronizeResponse,
    adjustment,
    mask,
)
from accelshare.agent.nri.plugin import NOT_OURS, Plugin
from accelshare.agent.nri.protobuf import decode, encode
from accelshare.agent.nri.ttrpc import Request

POD, CONTAINER = PodSandbox("p", "pod", "uid", "ml"), Container("c", "p", "train")
METHODS = ("Configure", "Synchronize", "CreateContainer", "StartContainer", "StateChange", *NOT_OURS)


class Handler:
    """Gives what the test says; a `start` that is an exception is raised."""

    def __init__(self, gives: Any = None, start: Exception | None = None) -> None:
        self.gives = gives if gives is not None else Adjustment()
        self.start = start
        self.lists: list[tuple[int, int]] = []

    def synchronize(self, pods: Sequence[PodSandbox], containers: Sequence[Container]) -> None:
        self.lists.append((len(pods), len(containers)))

    def create_container(self, pod: PodSandbox, container: Container) -> Adjustment:
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives  # also what is no Adjustment

    def start_container(self, pod: PodSandbox, container: Container) -> None:
        if self.start is not None:
            raise self.start


async def at_once(act: Callable[[], Any]) -> Any:
    return act()


async def never(_act: Callable[[], Any]) -> Any:
    await asyncio.Event().wait()


def plugin(handler: Handler | None = None) -> Plugin:
    return Plugin("accelshare", handler or Handler(), at_once)


async def call(plugin: Plugin, method: str, message: Any = None, *, timeout_ns: int = 0) -> bytes:
    payload = b"" if message is None else encode(message)
    return await asyncio.wait_for(plugin.answer(Request(PLUGIN_SERVICE, method, payload, timeout_ns)), 60.0)


async def test_only_what_a_pod_can_be_refused_for_is_wanted() -> None:
    """With the failure policy every wanted event fails while we are away, and a container must be free to end."""
    answer = decode(ConfigureResponse, await call(plugin(), "Configure", ConfigureRequest(runtime_name="containerd")))
    assert answer.events == mask([Event.CREATE_CONTAINER, Event.START_CONTAINER]) == 0b101000
    assert answer.failure_policy is not None
    assert answer.failure_policy.fail_request
    assert answer.failure_policy.keep_connected


async def test_a_list_in_parts_is_told_once() -> None:
    handler = Handler()
    one = plugin(handler)
    for part in (SynchronizeRequest((POD,), (), more=True), SynchronizeRequest((), (CONTAINER,) * 2, more=True)):
        assert decode(SynchronizeResponse, await call(one, "Synchronize", part)).more
        assert not one.synchronized.is_set()
    assert not decode(SynchronizeResponse, await call(one, "Synchronize", SynchronizeRequest((POD,), (CONTAINER,)))).more
    assert one.synchronized.is_set()
    assert handler.lists == [(2, 3)]


async def test_what_the_handler_gives_is_answered() -> None:
    given_ = adjustment(env={"CARD": "0"}, cdi_devices=["vendor/card=0"])
    raw = await call(plugin(Handler(given_)), "CreateContainer", ContainerRequest(POD, CONTAINER))
    assert decode(CreateContainerResponse, raw).adjust == given_


async def test_a_refusal_is_its_text() -> None:
    with pytest.raises(StatusError, match=r"^card 0 is not yours$") as refused:
        await call(plugin(Handler(Refuse("card 0 is not yours"))), "CreateContainer", ContainerRequest(POD, CONTAINER))
    assert refused.value.code == Code.UNKNOWN


async def test_a_handler_that_gives_nothing_by_mistake_is_an_error() -> None:
    """An empty answer would mean: make it as it is."""
    one = plugin()
    one._handler.gives = None  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="the handler answered None instead of an Adjustment"):
        await call(one, "CreateContainer", ContainerRequest(POD, CONTAINER))


@pytest.mark.parametrize("message", [ContainerRequest(POD), ContainerRequest(None, CONTAINER), None])
async def test_a_call_without_a_pod_or_container_is_an_error(message: ContainerRequest | None) -> None:
    for method in ("CreateContainer", "StartContainer"):
        with pytest.raises(StatusError, match=f"accelshare: {method} names no (pod|container)"):
            await call(plugin(), method, message)


async def test_a_start_is_refused_by_old_and_new_runtimes() -> None:
    one = plugin(Handler(start=Refuse("it has no card")))
    for method, message in (
        ("StartContainer", ContainerRequest(POD, CONTAINER)),
        ("StateChange", StateChange(Event.START_CONTAINER, POD, CONTAINER)),
    ):
        with pytest.raises(StatusError, match="it has no card"):
            await call(one, method, message)
    assert await call(one, "StateChange", StateChange(Event.STOP_CONTAINER, POD, CONTAINER)) == b""


@pytest.mark.parametrize("method", NOT_OURS)
async def test_other_calls_have_an_empty_answer(method: str) -> None:
    assert await call(plugin(), method, ContainerRequest(POD, CONTAINER)) == b""


async def test_an_unknown_call_is_unimplemented() -> None:
    """Runtimes then try the older way."""
    for service, method in ((PLUGIN_SERVICE, "Dance"), ("other.Service", "CreateContainer")):
        with pytest.raises(StatusError) as refused:
            await plugin().answer(Request(service, method))
        assert refused.value.code == Code.UNIMPLEMENTED


async def test_a_late_handler_is_an_error_before_the_runtime_gives_up() -> None:
    one = Plugin("accelshare", Handler(), never)
    await call(one, "Configure", ConfigureRequest(request_timeout_ms=40))
    with pytest.raises(StatusError, match=r"accelshare: CreateContainer: no answer within 0.03 s") as refused:
        await call(one, "CreateContainer", ContainerRequest(POD, CONTAINER))
    assert refused.value.code == Code.DEADLINE_EXCEEDED


async def test_a_call_that_has_less_time_left_is_answered_sooner() -> None:
    one = Plugin("accelshare", Handler(), never)
    with pytest.raises(StatusError, match=r"no answer within 0.015 s"):
        await call(one, "CreateContainer", ContainerRequest(POD, CONTAINER), timeout_ns=20_000_000)


@given(st.sampled_from(METHODS), st.binary(max_size=200))
def test_any_call_with_any_bytes_is_answered_or_refused(method: str, payload: bytes) -> None:
    try:
        asyncio.run(plugin().answer(Request(PLUGIN_SERVICE, method, payload)))
    except (StatusError, WireError):
        pass
