"""The reflector: list, watch, resume, list again."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from accelshare.kube.watch import Backoff, BinaryLists, Change, Gone, Interrupted, Malformed, Reflector, Seen, Synced
from accelshare.wire import kubernetes_pb2 as messages
from accelshare.wire.decoding import PROTOBUF_MAGIC, Decoder, UnreadableError
from accelshare.wire.protobuf import PODS
from tests.unit.kube.support import Naps, asking, hang_up, refusal


class Meta(msgspec.Struct, frozen=True):
    name: str
    uid: str


class Thing(msgspec.Struct, frozen=True):
    """The watched objects: red ones are relevant, others are not."""

    metadata: Meta
    color: str


THINGS = Decoder(Thing)


def decode(raw: msgspec.Raw) -> Thing | None:
    thing = THINGS.decode(raw)
    return thing if thing.color == "red" else None


def uid_of(thing: Thing) -> str:
    return thing.metadata.uid


def thing(name: str, color: Any = "red", *, version: int = 1) -> dict[str, Any]:
    metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "color": color}


def seen(name: str) -> Seen[Thing]:
    return Seen(Thing(Meta(name, f"uid-{name}"), "red"))


def listing(*things: dict[str, Any], version: int, more: str = "") -> web.Response:
    return web.json_response({"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(things)})


class Watch:
    """A watch with these events, which then ends, fails, or stays open."""

    def __init__(self, *events: tuple[str, dict[str, Any]], end: str = "close") -> None:
        self.events = events
        self.end = end

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for kind, obj in self.events:
            await response.write(json.dumps({"type": kind, "object": obj}).encode() + b"\n")
        if self.end == "stay":
            await asyncio.Event().wait()
        if self.end == "break":
            # Let the events out first: an abort would drop what is still in the buffer.
            await response.drain()
            assert request.transport is not None
            request.transport.close()
        return response


Answer = web.Response | Watch | Callable[[web.BaseRequest], web.Response]


class Api:
    """Returns the scripted responses in order and records the requests; after the last one, a watch that stays open."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        query = request.query
        if "watch" in query:
            self.asked.append(f"watch {query['resourceVersion']}")
        else:
            self.asked.append(f"list {query['continue']}" if "continue" in query else "list")
        answer = self.answers.pop(0) if self.answers else Watch(end="stay")
        if isinstance(answer, Watch):
            return await answer.serve(request)
        return answer if isinstance(answer, web.Response) else answer(request)


@asynccontextmanager
async def reflecting(api: Api, **options: Any) -> AsyncIterator[Reflector[Thing]]:
    async with asking(api) as client:
        yield Reflector(
            client,
            "/api/v1/things",
            **{"decode": decode, "identity": uid_of, "sleep": Naps(), "random": lambda: 1.0, **options},
        )


async def take(reflector: Reflector[Thing], count: int) -> list[Change[Thing]]:
    """The next changes, this many."""
    changes = reflector.changes()
    try:
        async with asyncio.timeout(60):
            return [await anext(changes) for _ in range(count)]
    finally:
        await changes.aclose()


# List and watch


async def test_a_list_then_its_changes() -> None:
    api = Api(
        listing(thing("a"), thing("b"), version=10),
        Watch(
            ("MODIFIED", thing("a", version=11)),
            ("ADDED", thing("c", version=12)),
            ("DELETED", thing("b", version=13)),
            end="stay",
        ),
    )
    async with reflecting(api) as reflector:
        changes = await take(reflector, 6)
    assert changes == [seen("a"), seen("b"), Synced(10), seen("a"), seen("c"), Gone("uid-b", 13)]
    assert api.asked == ["list", "watch 10"]


async def test_an_empty_list_is_synced_too() -> None:
    async with reflecting(Api(listing(version=3))) as reflector:
        assert await take(reflector, 1) == [Synced(3)]


async def test_a_long_list_is_read_in_pages_and_synced_once() -> None:
    """The watch starts at the first page's version: it may repeat a change, but cannot miss one."""
    api = Api(
        listing(thing("a"), version=10, more="x"), listing(thing("b"), version=11), Watch(("ADDED", thing("c")), end="stay")
    )
    async with reflecting(api) as reflector:
        assert await take(reflector, 4) == [seen("a"), seen("b"), Synced(10), seen("c")]
    assert api.asked == ["list", "list x", "watch 10"]


def binary_listing(*names: str, version: int, more: str = "", cut: int = 0) -> web.Response:
    """`cut`: without so many bytes at its end."""
    metadatas = [messages.ObjectMeta(namespace="ns", name=name, uid=f"uid-{name}") for name in names]
    items = [messages.Pod(metadata=metadata) for metadata in metadatas]
    listed = messages.PodList(metadata=messages.ListMeta(resource_version=str(version), continue_token=more), items=items)
    body = PROTOBUF_MAGIC + messages.PodListEnvelope(list=listed).SerializeToString()
    return web.Response(body=body[: len(body) - cut])


def thing_of(message: messages.Pod) -> Thing | None:
    if message.metadata.name == "bad":
        raise UnreadableError("it is bad")
    return Thing(Meta(message.metadata.name, message.metadata.uid), "red") if message.metadata.name != "green" else None


async def test_a_list_in_protobuf_is_read_as_one_in_json_and_watched_in_json() -> None:
    api = Api(
        binary_listing("a", "green", "bad", version=10),
        Watch(("ADDED", thing("b", version=11)), end="stay"),
    )
    async with reflecting(api, binary=BinaryLists(PODS, thing_of)) as reflector:
        changes = await take(reflector, 4)
    assert changes == [seen("a"), Malformed("ns/bad", "it is bad"), Synced(10), seen("b")]


async def test_a_list_that_begins_again_has_its_own_version_and_objects() -> None:
    """The response broke off after some objects, and one of them is deleted before the list is read in pages."""
    api = Api(
        binary_listing("a", version=10, more="next"),
        binary_listing("a", "deleted", "cut-off", version=10, cut=8),
        binary_listing("a", version=12, more="next"),
        binary_listing("b", version=12),
        Watch(end="stay"),
    )
    async with reflecting(api, binary=BinaryLists(PODS, thing_of)) as reflector:
        changes = await take(reflector, 6)
    assert changes == [seen("a"), seen("deleted"), seen("a"), seen("b"), Gone("uid-deleted", 12), Synced(12)]


async def test_a_malformed_message_keeps_the_last_state_of_its_object() -> None:
    api = Api(listing(thing("bad"), version=10), Watch(end="close"), refusal(410), binary_listing("bad", version=12))
    async with reflecting(api, binary=BinaryLists(PODS, thing_of)) as reflector:
        changes = await take(reflector, 6)
    assert [change for change in changes if not isinstance(change, Interrupted)] == [
        seen("bad"),
        Synced(10),
        Malformed("ns/bad", "it is bad"),
        Synced(12),
    ]


async def test_parameters_go_with_list_and_watch() -> None:
    asked: list[str] = []

    async def note(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.query["fieldSelector"])
        return await Watch(("ADDED", thing("a")), end="stay").serve(request) if "watch" in request.query else listing(version=1)

    async with asking(note) as client:
        reflector = Reflector(
            client, "/x", decode=decode, identity=uid_of, params={"fieldSelector": "spec.nodeName=n1"}, sleep=Naps()
        )
        await take(reflector, 2)
    assert asked == ["spec.nodeName=n1"] * 2


async def test_a_version_that_is_no_number_is_zero() -> None:
    odd = web.json_response({"metadata": {"resourceVersion": "v-abc"}, "items": []})
    api = Api(odd)
    async with reflecting(api) as reflector:
        assert await take(reflector, 1) == [Synced(0)]


# What does not matter


async def test_irrelevant_objects_are_not_yielded() -> None:
    api = Api(
        listing(thing("a", "blue"), thing("b"), version=10),
        Watch(("ADDED", thing("c", "blue")), ("DELETED", thing("c", "blue")), ("ADDED", thing("d")), end="stay"),
    )
    async with reflecting(api) as reflector:
        assert await take(reflector, 3) == [seen("b"), Synced(10), seen("d")]


async def test_what_does_not_matter_any_more_is_gone() -> None:
    """A pod that has ended still exists, but holds nothing."""
    api = Api(listing(thing("a"), version=10), Watch(("MODIFIED", thing("a", "blue", version=11)), end="stay"))
    async with reflecting(api) as reflector:
        assert await take(reflector, 3) == [seen("a"), Synced(10), Gone("uid-a", 11)]


async def test_a_deleted_object_is_yielded_as_gone_once() -> None:
    api = Api(
        listing(thing("a"), version=10),
        Watch(
            ("MODIFIED", thing("a", "blue", version=11)),
            ("DELETED", thing("a", "blue", version=12)),
            ("ADDED", thing("b")),
            end="stay",
        ),
    )
    async with reflecting(api) as reflector:
        assert await take(reflector, 4) == [seen("a"), Synced(10), Gone("uid-a", 11), seen("b")]


@pytest.mark.parametrize(
    ("identity", "identified_by", "gone"),
    [
        (lambda each: each.metadata.uid, "uid", "uid-a"),
        (lambda each: each.metadata.name, "name", "a"),
    ],
)
async def test_an_identity_may_be_the_uid_or_the_name(identity: Callable[[Thing], str], identified_by: str, gone: str) -> None:
    """Both can be read from an object that cannot be decoded."""
    api = Api(listing(thing("a"), version=10), Watch(("DELETED", thing("a", 7, version=11)), end="stay"))
    async with reflecting(api, identity=identity, identified_by=identified_by) as reflector:
        assert (await take(reflector, 3))[-1] == Gone(gone, 11)


# What cannot be read


async def test_a_malformed_object_does_not_fail_its_neighbours() -> None:
    api = Api(
        listing(thing("a", 7), thing("b"), version=10),
        Watch(("ADDED", thing("c", 7)), ("ADDED", thing("d")), end="stay"),
    )
    async with reflecting(api) as reflector:
        changes = await take(reflector, 5)
    assert changes[1:3] == [seen("b"), Synced(10)]
    assert changes[4] == seen("d")
    for change, name in ((changes[0], "ns/a"), (changes[3], "ns/c")):
        assert isinstance(change, Malformed)
        assert change.name == name
        assert "Expected `str`, got `int` - at `$.color`" in change.problem


async def test_a_malformed_object_keeps_its_last_state() -> None:
    """Seen, then unreadable, then listed unreadable: it is still there, so it is not reported gone."""
    api = Api(
        listing(thing("a"), thing("b"), version=10),
        Watch(("MODIFIED", thing("a", 7, version=11))),
        refusal(410, "Expired"),
        listing(thing("a", 7), version=12),
        Watch(("DELETED", thing("a", 7, version=13)), end="stay"),
    )
    async with reflecting(api) as reflector:
        changes = await take(reflector, 9)
    assert [type(change) for change in changes] == [Seen, Seen, Synced, Malformed, Interrupted, Malformed, Gone, Synced, Gone]
    assert changes[6] == Gone("uid-b", 12)
    assert changes[8] == Gone("uid-a", 13), "deleted is deleted, readable or not"


@pytest.mark.parametrize(
    ("obj", "name"),
    [
        ({"metadata": {"name": 7, "namespace": "ns"}, "color": "red"}, "ns/"),
        ({"metadata": {"name": "a"}}, "a"),
        ({"metadata": "x"}, "(no name)"),
        ({}, "(no name)"),
    ],
)
async def test_the_name_of_a_malformed_object_is_dug_out_as_well_as_possible(obj: dict[str, Any], name: str) -> None:
    async with reflecting(Api(listing(obj, version=1))) as reflector:
        change, _ = await take(reflector, 2)
    assert isinstance(change, Malformed)
    assert change.name == name


async def test_any_value_error_of_decode_is_a_malformed_object() -> None:
    def refuse(raw: msgspec.Raw) -> Thing | None:
        raise ValueError("annotation 'x' is '-1'; it must be positive")

    async with reflecting(Api(listing(thing("a"), version=1)), decode=refuse) as reflector:
        assert (await take(reflector, 1))[0] == Malformed("ns/a", "annotation 'x' is '-1'; it must be positive")


# Identity


def named(name: str, uid: str, color: Any = "red", *, version: int = 1) -> dict[str, Any]:
    made = thing(name, color, version=version)
    return {**made, "metadata": {**made["metadata"], "uid": uid}}


@pytest.mark.parametrize(
    "news",
    [
        ("DELETED", named("uid-a", "another", version=11)),
        ("MODIFIED", named("uid-a", "another", "blue", version=11)),
        ("DELETED", {"metadata": {"name": "a", "namespace": "uid-a", "uid": "another"}}),
        ("DELETED", {"metadata": {"name": "uid-a", "uid": 7}}),
    ],
    ids=["deleted", "of no interest", "namespace", "no uid"],
)
async def test_an_object_named_like_the_uid_of_another_is_not_that_other(news: tuple[str, dict[str, Any]]) -> None:
    api = Api(listing(thing("a"), version=10), Watch(news, ("ADDED", thing("b", version=12)), end="stay"))
    async with reflecting(api) as reflector:
        assert await take(reflector, 3) == [seen("a"), Synced(10), seen("b")]
        assert reflector.knows("uid-a")


async def test_a_malformed_object_named_like_the_uid_of_another_does_not_keep_that_other_alive() -> None:
    api = Api(
        listing(thing("a"), version=10), Watch(), refusal(410, "Expired"), listing(named("uid-a", "other", color=7), version=12)
    )
    async with reflecting(api) as reflector:
        changes = await take(reflector, 7)
    assert changes[-2:] == [Gone("uid-a", 12), Synced(12)]


async def test_an_object_identified_by_name_is_not_matched_by_uid() -> None:
    api = Api(
        listing(thing("a"), version=10),
        Watch(("DELETED", named("other", "a")), ("DELETED", named("a", "x", version=12)), end="stay"),
    )
    async with reflecting(api, identity=lambda thing: thing.metadata.name, identified_by="name") as reflector:
        assert await take(reflector, 3) == [seen("a"), Synced(10), Gone("a", 12)]


async def test_an_object_without_an_identity_is_malformed() -> None:
    async with reflecting(Api(listing(named("a", ""), version=10))) as reflector:
        first, _ = await take(reflector, 2)
        assert isinstance(first, Malformed)
        assert not reflector.knows("")


# Depth


def deep(levels: int = 30_000) -> str:
    return "[" * levels + "]" * levels


class Text:
    """The API server's bytes, which json cannot write."""

    def __init__(self, text: str, *, stay: bool = False) -> None:
        self.text, self.stay = text, stay

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(self.text.encode())
        if self.stay:
            await asyncio.Event().wait()
        return response


async def test_a_deeply_nested_object_affects_only_itself() -> None:
    """In a field that is not decoded it has no effect; in one that is, the object is malformed and named."""
    metadata = '"metadata": {"namespace": "ns", "name": "%s", "uid": "uid-%s", "resourceVersion": "11"%s}'
    quiet = "{" + metadata % ("a", "a", f', "managedFields": {deep()}') + ', "color": "red"}'
    loud = "{" + metadata % ("b", "b", "") + f', "color": {deep()}}}'
    nowhere = f'{{"metadata": {deep()}}}'
    items = ",".join((quiet, loud, nowhere, json.dumps(thing("c"))))
    events = "".join(f'{{"type": "ADDED", "object": {obj}}}\n' for obj in (quiet, loud, nowhere, json.dumps(thing("c"))))

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" in request.query:
            return await Text(events, stay=True).serve(request)
        return await Text(f'{{"metadata": {{"resourceVersion": "10"}}, "items": [{items}]}}').serve(request)

    async with asking(serve) as client:
        changes = await take(Reflector(client, "/x", decode=decode, identity=uid_of, sleep=Naps()), 9)
    names = [change.name if isinstance(change, Malformed) else change for change in changes]
    each = [seen("a"), "ns/b", "(no name)", seen("c")]
    assert names == [*each, Synced(10), *each]


# Resume


async def test_a_watch_that_ended_is_resumed_where_it_was() -> None:
    api = Api(
        listing(version=10),
        Watch(("ADDED", thing("a", version=11))),
        Watch(("ADDED", thing("b", version=12)), end="stay"),
    )
    async with reflecting(api) as reflector:
        assert await take(reflector, 3) == [Synced(10), seen("a"), seen("b")]
        assert (reflector.relists, reflector.resumes, reflector.events) == (0, 1, 2)
    assert api.asked == ["list", "watch 10", "watch 11"]


async def test_bookmarks_count() -> None:
    """On a resource without changes only they keep the version recent enough to resume from."""
    api = Api(listing(version=10), Watch(("BOOKMARK", thing("", version=99))), Watch(("ADDED", thing("a")), end="stay"))
    async with reflecting(api) as reflector:
        assert await take(reflector, 2) == [Synced(10), seen("a")]
    assert api.asked == ["list", "watch 10", "watch 99"]


async def test_a_broken_connection_is_resumed_without_a_list() -> None:
    api = Api(
        listing(version=10),
        Watch(("ADDED", thing("a", version=11)), end="break"),
        hang_up,
        Watch(("ADDED", thing("b", version=12)), end="stay"),
    )
    async with reflecting(api) as reflector:
        changes = [change for change in await take(reflector, 4) if not isinstance(change, Interrupted)]
    assert changes == [Synced(10), seen("a"), seen("b")]
    assert "list" not in api.asked[1:]
    assert set(api.asked[2:]) == {"watch 11"}


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_a_refusal_that_may_pass_is_resumed(status: int) -> None:
    faults: list[Answer] = [
        refusal(status) for _ in range(2 if status == 401 else 1)
    ]  # a 401 is tried again at once with new credentials
    api = Api(listing(version=10), *faults, Watch(("ADDED", thing("a")), end="stay"))
    async with reflecting(api) as reflector:
        changes = await take(reflector, 3)
    assert isinstance(changes[1], Interrupted)
    assert changes[2] == seen("a")
    assert set(api.asked[1:]) == {"watch 10"}


# List again


def expired() -> Watch:
    return Watch(("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}))


def bad() -> Watch:
    return Watch(("PARTY", thing("x")))


@pytest.mark.parametrize("loss", [refusal(410, "Expired"), expired(), bad(), refusal(400), refusal(504)])
async def test_a_version_that_is_too_old_means_a_new_list_and_its_difference(loss: Answer) -> None:
    api = Api(
        listing(thing("a"), thing("b"), version=10),
        loss,
        listing(thing("b"), thing("c"), version=20),
        Watch(("ADDED", thing("d")), end="stay"),
    )
    async with reflecting(api) as reflector:
        changes = await take(reflector, 9)
        assert (reflector.relists, reflector.resumes) == (1, 0)
    assert isinstance(changes[3], Interrupted)
    assert changes[4:] == [seen("b"), seen("c"), Gone("uid-a", 20), Synced(20), seen("d")]
    assert api.asked == ["list", "watch 10", "list", "watch 20"]


async def test_a_new_list_leaves_the_identities_in_memory_that_consumers_have() -> None:
    api = Api(listing(thing("a"), thing("b"), version=10), refusal(410, "Expired"), listing(thing("a"), thing("b"), version=11))
    async with reflecting(api) as reflector:
        changes = await take(reflector, 7)
        assert [type(change) for change in changes] == [Seen, Seen, Synced, Interrupted, Seen, Seen, Synced]
        first = {id(change.obj.metadata.uid) for change in changes[:2] if isinstance(change, Seen)}
        assert {id(identity) for identity in reflector._known} == first


async def test_what_came_with_the_watch_is_missed_by_the_next_list_too() -> None:
    api = Api(
        listing(version=10),
        Watch(("ADDED", thing("a", version=11)), ("ADDED", thing("b", version=12)), ("DELETED", thing("b", version=13))),
        refusal(410),
        listing(version=20),
    )
    async with reflecting(api) as reflector:
        changes = await take(reflector, 7)
    assert changes[-2:] == [Gone("uid-a", 20), Synced(20)]


async def test_a_list_that_fails_halfway_reports_nothing_gone() -> None:
    """b is on the page that failed."""
    api = Api(
        listing(thing("a"), thing("b"), version=10),
        refusal(410),
        listing(thing("c"), version=20, more="x"),
        refusal(410, "Expired"),
        listing(thing("b"), version=30),
    )
    async with reflecting(api) as reflector:
        changes = await take(reflector, 10)
    assert [type(change) for change in changes[3:7]] == [Interrupted, Seen, Interrupted, Seen]
    assert changes[6:] == [seen("b"), Gone("uid-a", 30), Gone("uid-c", 30), Synced(30)]


# Waiting


async def test_failures_are_yielded_and_back_off() -> None:
    naps = Naps()
    api = Api(*(refusal(500, "InternalError", "etcd is away") for _ in range(10)), listing(version=1))
    async with reflecting(api, sleep=naps) as reflector:
        changes = await take(reflector, 11)
    assert naps.taken == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0])
    assert [change.retry_in_s for change in changes if isinstance(change, Interrupted)] == naps.taken
    assert isinstance(changes[0], Interrupted)
    assert "etcd is away" in changes[0].problem


async def test_success_starts_the_waiting_over() -> None:
    naps = Naps()
    api = Api(
        *(refusal(500) for _ in range(3)),
        listing(version=1),
        Watch(("ADDED", thing("a", version=2))),
        refusal(500),
        Watch(("ADDED", thing("b")), end="stay"),
    )
    async with reflecting(api, sleep=naps) as reflector:
        await take(reflector, 7)
    assert naps.taken == pytest.approx([0.2, 0.4, 0.8, 0.2])


async def test_a_list_alone_is_not_success() -> None:
    """Listing again at once after each refused watch would overload the API server."""
    naps = Naps()
    api = Api(*(answer for _ in range(3) for answer in (listing(version=1), refusal(410))), listing(version=1))
    async with reflecting(api, sleep=naps) as reflector:
        await take(reflector, 7)
    assert naps.taken == pytest.approx([0.2, 0.4, 0.8])


async def test_a_watch_that_ends_at_once_is_a_failure_and_one_that_lasted_is_not() -> None:
    now = [0.0]

    def after(seconds: float) -> Callable[[web.BaseRequest], web.Response]:
        def answer(request: web.BaseRequest) -> web.Response:
            now[0] += seconds
            return web.Response()

        return answer

    naps = Naps()
    api = Api(listing(version=1), after(0), after(0), after(400), after(0), Watch(("ADDED", thing("a")), end="stay"))
    async with reflecting(api, sleep=naps, clock=lambda: now[0]) as reflector:
        changes = await take(reflector, 5)
    assert naps.taken == pytest.approx([0.2, 0.4, 0.2])
    assert isinstance(changes[1], Interrupted)
    assert "ended at once" in changes[1].problem


async def test_the_server_may_ask_for_a_longer_wait() -> None:
    naps = Naps()
    api = Api(*(refusal(429, Retry_After="7") for _ in range(4)), listing(version=1))  # the client itself asks four times
    async with reflecting(api, sleep=naps) as reflector:
        await take(reflector, 2)
    assert naps.taken == [7.0]


def test_waits_are_spread() -> None:
    assert Backoff().delay_s(1, lambda: 0.0) == pytest.approx(0.1)
    assert Backoff(first_s=1, longest_s=5).delay_s(1000, lambda: 1.0) == 5


async def test_whether_a_watch_is_open_can_be_seen() -> None:
    """After an interruption there may be no event for long; readiness must not wait for one."""
    api = Api(listing(version=1), hang_up, hang_up, Watch(("ADDED", thing("a")), end="stay"))
    async with reflecting(api) as reflector:
        assert not reflector.watching
        changes = reflector.changes()
        states = [(type(await anext(changes)), reflector.watching) for _ in range(3)]
        assert states == [(Synced, False), (Interrupted, False), (Seen, True)]
        await changes.aclose()
        assert not reflector.watching


async def test_shown_waits_until_the_consumer_has_every_change_up_to_a_version() -> None:
    """Also if the object of that version is not relevant."""
    events = [("ADDED", thing("a", version=6)), ("MODIFIED", thing("b", "blue", version=8))]
    async with reflecting(Api(listing(version=5), Watch(*events, end="stay"))) as reflector:
        got: list[Change[Thing]] = []

        async def consume() -> None:
            async for change in reflector.changes():
                got.append(change)

        consuming = asyncio.ensure_future(consume())
        async with asyncio.timeout(60):
            await reflector.wait_for_version(8)
        assert got == [Synced(5), seen("a")]
        async with asyncio.timeout(60):
            await reflector.wait_for_version(7)  # taken before this call
        later = asyncio.ensure_future(reflector.wait_for_version(9))
        await asyncio.sleep(0)
        assert not later.done()
        for task in (consuming, later):
            task.cancel()
        await asyncio.gather(consuming, later, return_exceptions=True)


async def test_a_watch_that_stands_still_while_a_version_is_awaited_is_opened_again() -> None:
    """Its connection lives, and nothing comes: a takeover would wait until the watch's own end, minutes later."""
    api = Api(
        listing(thing("a"), version=5),
        Watch(("ADDED", thing("b", version=6)), end="stay"),
        Watch(("ADDED", thing("c", version=8)), end="stay"),
    )
    async with reflecting(api) as reflector:
        changes: list[Change[Thing]] = []

        async def follow() -> None:
            async for change in reflector.changes():
                changes.append(change)

        following = asyncio.create_task(follow())
        assert await asyncio.wait_for(reflector.wait_for_version(8, patience_s=0.05), 30)
        following.cancel()
    assert changes[:3] == [seen("a"), Synced(5), seen("b")]
    assert isinstance(changes[3], Interrupted)
    assert "8" in changes[3].problem
    assert changes[4:] == [seen("c")]
    assert api.asked == ["list", "watch 5", "watch 6"]


async def test_a_watch_that_shows_the_awaited_version_stays_open() -> None:
    api = Api(listing(version=5), Watch(("ADDED", thing("b", version=6)), end="stay"))
    async with reflecting(api) as reflector:

        async def follow() -> None:
            async for _ in reflector.changes():
                pass

        following = asyncio.create_task(follow())
        assert not await asyncio.wait_for(reflector.wait_for_version(6, patience_s=20), 30)
        assert not await reflector.wait_for_version(6)
        following.cancel()
    assert api.asked == ["list", "watch 5"]


async def test_an_awaited_version_ends_the_wait_after_a_failure() -> None:
    """The API server has just answered whoever waits for it."""
    api = Api(listing(version=5), hang_up, hang_up, Watch(("ADDED", thing("b", version=6)), end="stay"))
    async with asking(api) as client:
        backoff = Backoff(first_s=600.0, longest_s=600.0)
        reflector: Reflector[Thing] = Reflector(client, "/api/v1/things", decode=decode, identity=uid_of, backoff=backoff)
        interrupted = asyncio.Event()

        async def follow() -> None:
            async for change in reflector.changes():
                if isinstance(change, Interrupted):
                    interrupted.set()

        following = asyncio.create_task(follow())
        try:
            async with asyncio.timeout(60.0):
                await interrupted.wait()
                await reflector.wait_for_version(6)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
