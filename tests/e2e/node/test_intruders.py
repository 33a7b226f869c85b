"""Users who try to take cards that are not theirs, on a real kubelet and containerd, with the permissions of the edit role.

There is no admission policy here: what holds is the agent's.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
import pytest
import yaml

from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.wire.quantity import whole_number
from tests.e2e.node.real_node import RealNode, annotations, recorded
from tests.e2e.scheduling_cluster import Object

pytestmark = pytest.mark.real

GCU, GCUS, GPU = "enflame.com/gcu-memory", "enflame.com/gcu", "aliyun.com/gpu-mem"
OURS, INDEX = "accelshare.io/assignment", "enflame.com/gcu-device-id"
MERGE = "application/merge-patch+json"
WAITS = "until [ -e /tmp/go ]; do sleep 0.1; done"


@contextlib.asynccontextmanager
async def editor(real_node: RealNode) -> AsyncIterator[Client]:
    """A user of the default namespace with the ClusterRole edit, and nothing else."""

    async def kubectl(*arguments: str) -> str:
        return await asyncio.to_thread(lambda: real_node.local.kubectl(*arguments))

    await kubectl("create", "serviceaccount", "editor")
    try:
        await kubectl("create", "rolebinding", "editor", "--clusterrole=edit", "--serviceaccount=default:editor")
        token = (await kubectl("create", "token", "editor")).strip()
        content = yaml.safe_load(real_node.local.kubeconfig.read_text())
        for user in content["users"]:
            user["user"] = {"token": token}
        file = real_node.directory / "editor.kubeconfig"
        file.write_text(yaml.safe_dump(content))
        async with Client(config.load(file), user_agent="editor") as client:
            yield client
    finally:
        await kubectl("delete", "--ignore-not-found", "serviceaccount/editor", "rolebinding/editor")


async def rewrite(user: Client, pod: str, **values: Any) -> None:
    body = msgspec.json.encode({"metadata": {"annotations": values}})
    await user.request("PATCH", f"/api/v1/namespaces/default/pods/{pod}", body=body, content_type=MERGE)


async def another(real_node: RealNode, card: int) -> dict[str, str]:
    """A record that is right but for being another card's."""
    (found,) = [entry for entry in (await real_node.inventory_entry("enflame")).cards if entry.index == card]
    return {OURS: json.dumps({"enflame": [{"index": card, "id": found.id, "units": 4}]}), INDEX: str(card)}


async def bound(real_node: RealNode, name: str) -> Object:
    async def has_a_node() -> Object | None:
        pod = (await real_node.pods())[name]
        return pod if pod["spec"].get("nodeName") else None

    found: Object = await real_node.until(has_a_node, f"{name} is bound")
    return found


async def restored(real_node: RealNode, name: str, cards: list[int]) -> bool:
    pod = (await real_node.pods())[name]
    return recorded(pod, "enflame") == cards and annotations(pod).get(INDEX) == ",".join(map(str, cards))


async def event(real_node: RealNode, name: str, words: str, namespace: str = "default") -> bool:
    params = {"fieldSelector": f"involvedObject.name={name}"}
    return words in (await real_node.client.request("GET", f"/api/v1/namespaces/{namespace}/events", params=params)).decode()


async def not_started(real_node: RealNode, name: str) -> None:
    """The only container of the pod waits. kubelet writes the pod's status beside its events, and perhaps later."""

    async def statuses() -> list[Object]:
        found: list[Object] = (await real_node.pods())[name]["status"].get("containerStatuses", [])
        return found

    (status,) = await real_node.until(statuses, f"kubelet shows the container of {name}")
    assert "waiting" in status["state"], status


async def test_a_user_with_the_edit_role_moves_no_container_to_another_card(by_runtime: RealNode) -> None:
    """Between bind and container start, and between two containers: each has the card of the bind, and the record comes back."""
    real_node = by_runtime
    async with editor(real_node) as user:
        await real_node.until(partial(_shows, real_node), "the scheduler sees the cards")
        await asyncio.to_thread(real_node.local.kill_kubelet)
        try:
            inits = [real_node.container("init", {GCU: 4}, command=["sh", "-c", f"ls /dev | grep '^gcu[0-9]'; {WAITS}"])]
            await real_node.pod("victim", {GCU: 4}, initContainers=inits)
            cards = recorded(await bound(real_node, "victim"), "enflame")
            await real_node.until(lambda: _waits(real_node), "the agent knows the pod")
            await rewrite(user, "victim", **await another(real_node, (cards[0] + 3) % 8))
        finally:
            await asyncio.to_thread(real_node.local.start_kubelet)
        seen = await real_node.until(partial(_log, real_node, "victim", "init"), "the init container has looked")
        assert seen == f"gcu{cards[0]}\n"
        await real_node.until(partial(restored, real_node, "victim", cards), "the record is as the bind wrote it")
        await real_node.until(partial(event, real_node, "victim", "AcceleratorRecordRewritten"), "the event exists")
        await rewrite(user, "victim", **{OURS: None, INDEX: str((cards[0] + 5) % 8)})
        await asyncio.to_thread(real_node.local.kubectl, "exec", "victim", "-c", "init", "--", "touch", "/tmp/go")
        await real_node.running("victim")
        assert await real_node.sees("victim") == [f"gcu{cards[0]}"]
        await real_node.until(partial(restored, real_node, "victim", cards), "the record is restored again")


async def _shows(real_node: RealNode) -> bool:
    return whole_number((await real_node.node())["status"]["allocatable"].get(GCU)) == 128


async def _waits(real_node: RealNode) -> bool:
    return await real_node.metric("accelshare_waiting_pods") >= 1


async def _log(real_node: RealNode, pod: str, container: str) -> str:
    path = f"/api/v1/namespaces/default/pods/{pod}/log"
    with contextlib.suppress(Exception):  # the container is not there yet
        return (await real_node.client.request("GET", path, params={"container": container})).decode()
    return ""


async def test_the_annotation_that_makes_the_runtime_insist_cannot_be_shadowed(by_runtime: RealNode) -> None:
    """The agent is away, and pods say that no plugin is required: their containers are not made until the agent is back."""
    real_node = by_runtime
    scopes = {"shadows-pod": "pod", "shadows-container": "container.c0"}
    assert real_node.agent is not None
    real_node.agent.kill()
    try:
        for name, scope in scopes.items():
            await real_node.pod(name, {GCU: 4}, annotations={f"required-plugins.noderesource.dev/{scope}": "[]"})
        for name in scopes:
            rejected = partial(event, real_node, name, "rejected container adjustment")
            await real_node.until(rejected, "the runtime requires the agent")
            await not_started(real_node, name)
    finally:
        await real_node.start_agent()
    found = await real_node.running(*scopes)
    for name in scopes:
        assert await real_node.sees(name) == [f"gcu{index}" for index in recorded(found[name], "enflame")]


async def test_each_container_has_its_own_whole_card(by_runtime: RealNode) -> None:
    real_node = by_runtime
    inits = [real_node.container("beside", {GCUS: 1}, restartPolicy="Always")]
    await real_node.pod("three", {GCUS: 1}, {GCUS: 1}, {}, initContainers=inits)
    found = await real_node.running("three")
    seen = [await real_node.sees("three", container) for container in ("beside", "c0", "c1")]
    assert [len(cards) for cards in seen] == [1, 1, 1]
    assert sorted(card for cards in seen for card in cards) == [f"gcu{index}" for index in recorded(found["three"], "enflame")]
    assert await real_node.sees("three", "c2") == []


async def test_containers_that_ask_for_no_card_see_none(by_runtime: RealNode) -> None:
    """An image that says `all`, a sidecar, an init container, kubectl debug; and who brings a card by the vendor's annotation."""
    real_node = by_runtime
    every = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    inits = [real_node.container("init", {}, env=every, command=["sh", "-c", 'test "$NVIDIA_VISIBLE_DEVICES" = void'])]
    containers = [real_node.container("c0", {GPU: 2}, env=every), real_node.container("c1", {}, env=every)]
    await real_node.pod("cards", containers=containers, initContainers=inits)
    await real_node.pod("image", containers=[real_node.container("c0", {}, env=every)])
    privileged = real_node.container("c0", {}, env=every, securityContext={"privileged": True})
    await real_node.pod("privileged", containers=[privileged])
    found = await real_node.running("cards", "image", "privileged")
    assert (await real_node.env("cards"))["NVIDIA_VISIBLE_DEVICES"] == f"GPU-{recorded(found['cards'], 'nvidia')[0]}"
    assert (await real_node.env("cards", "c1"))["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert (await real_node.env("image"))["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert (await real_node.env("privileged"))["NVIDIA_VISIBLE_DEVICES"] == "all"
    await real_node.until(partial(event, real_node, "image", "AcceleratorWithheld"), "the event exists")
    debugger = {**real_node.container("debugger", {}, env=every), "targetContainerName": "c0"}
    del debugger["resources"]
    body = msgspec.json.encode({"spec": {"ephemeralContainers": [debugger]}})
    await real_node.client.request(
        "PATCH",
        "/api/v1/namespaces/default/pods/cards/ephemeralcontainers",
        body=body,
        content_type="application/strategic-merge-patch+json",
    )
    await real_node.until(partial(_debugs, real_node, "cards"), "the debugger runs")
    assert (await real_node.env("cards", "debugger"))["NVIDIA_VISIBLE_DEVICES"] == "void"
    await real_node.pod("brings", {}, annotations={"nvidia.cdi.k8s.io/container.c0": "nvidia.com/gpu=all"})
    await real_node.until(partial(event, real_node, "brings", "AcceleratorNotRequested"), "it is refused, with an event")
    await not_started(real_node, "brings")


async def _debugs(real_node: RealNode, pod: str) -> bool:
    statuses = (await real_node.pods())[pod]["status"].get("ephemeralContainerStatuses") or ()
    return any("running" in status["state"] for status in statuses)


async def test_a_pod_that_names_its_node_and_its_card_gets_no_card_when_it_is_seen_late(by_runtime: RealNode) -> None:
    """The agent first sees it with kubelet's start time on it, still knows that nobody bound it, and believes no record of it."""
    real_node, name = by_runtime, "names-its-node"
    forged = {**await another(real_node, 2), "required-plugins.noderesource.dev": '["accelshare"]'}
    assert real_node.agent is not None
    real_node.agent.kill()
    try:
        await real_node.pod(name, {GCU: 4}, nodeName=real_node.local.node_name, annotations=forged)
        await real_node.until(partial(event, real_node, name, "rejected container adjustment"), "kubelet has begun with it")
    finally:
        await real_node.start_agent()
    await real_node.until(partial(event, real_node, name, "names its node itself"), "the agent refuses it by name")
    await not_started(real_node, name)
