"""Users who take what is not theirs, on a real kubelet and containerd, with the rights that the edit role really gives.

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
from tests.e2e.node.farm import Farm, Object, annotations, recorded

pytestmark = pytest.mark.real

GCU, GCUS, GPU = "enflame.com/gcu-memory", "enflame.com/gcu", "aliyun.com/gpu-mem"
OURS, INDEX = "accelshare.io/assignment", "enflame.com/gcu-device-id"
MERGE = "application/merge-patch+json"
WAITS = "until [ -e /tmp/go ]; do sleep 0.1; done"


@contextlib.asynccontextmanager
async def editor(farm: Farm) -> AsyncIterator[Client]:
    """A user of the default namespace with the ClusterRole edit, and nothing else."""

    async def kubectl(*arguments: str) -> str:
        return await asyncio.to_thread(lambda: farm.local.kubectl(*arguments))

    await kubectl("create", "serviceaccount", "editor")
    try:
        await kubectl("create", "rolebinding", "editor", "--clusterrole=edit", "--serviceaccount=default:editor")
        token = (await kubectl("create", "token", "editor")).strip()
        content = yaml.safe_load(farm.local.kubeconfig.read_text())
        for user in content["users"]:
            user["user"] = {"token": token}
        file = farm.directory / "editor.kubeconfig"
        file.write_text(yaml.safe_dump(content))
        async with Client(config.load(file), user_agent="editor") as client:
            yield client
    finally:
        await kubectl("delete", "--ignore-not-found", "serviceaccount/editor", "rolebinding/editor")


async def rewrite(user: Client, pod: str, **values: Any) -> None:
    body = msgspec.json.encode({"metadata": {"annotations": values}})
    await user.request("PATCH", f"/api/v1/namespaces/default/pods/{pod}", body=body, content_type=MERGE)


async def another(farm: Farm, card: int) -> dict[str, str]:
    """A record that is right but for being another card's."""
    (found,) = [entry for entry in (await farm.told("enflame")).cards if entry.index == card]
    return {OURS: json.dumps({"enflame": [{"index": card, "id": found.id, "units": 4}]}), INDEX: str(card)}


async def bound(farm: Farm, name: str) -> Object:
    async def has_a_node() -> Object | None:
        pod = (await farm.pods())[name]
        return pod if pod["spec"].get("nodeName") else None

    found: Object = await farm.until(has_a_node, f"{name} is bound")
    return found


async def restored(farm: Farm, name: str, cards: list[int]) -> bool:
    pod = (await farm.pods())[name]
    return recorded(pod, "enflame") == cards and annotations(pod).get(INDEX) == ",".join(map(str, cards))


async def event(farm: Farm, name: str, words: str, namespace: str = "default") -> bool:
    params = {"fieldSelector": f"involvedObject.name={name}"}
    return words in (await farm.client.request("GET", f"/api/v1/namespaces/{namespace}/events", params=params)).decode()


async def test_a_user_with_the_edit_role_moves_no_container_to_another_card(by_runtime: Farm) -> None:
    """Between bind and container start, and between two containers: each has the card of the bind, and the record comes back."""
    farm = by_runtime
    async with editor(farm) as user:
        await farm.until(partial(_shows, farm), "kubelet has told the scheduler of the cards")
        await asyncio.to_thread(farm.local.kill_kubelet)
        try:
            inits = [farm.container("init", {GCU: 4}, command=["sh", "-c", f"ls /dev | grep '^gcu[0-9]'; {WAITS}"])]
            await farm.pod("victim", {GCU: 4}, initContainers=inits)
            cards = recorded(await bound(farm, "victim"), "enflame")
            await farm.until(lambda: _waits(farm), "the agent knows the pod")
            await rewrite(user, "victim", **await another(farm, (cards[0] + 3) % 8))
        finally:
            await asyncio.to_thread(farm.local.start_kubelet)
        seen = await farm.until(partial(_log, farm, "victim", "init"), "the init container has looked")
        assert seen == f"gcu{cards[0]}\n"
        await farm.until(partial(restored, farm, "victim", cards), "the record is as the bind wrote it")
        await farm.until(partial(event, farm, "victim", "AcceleratorRecordRewritten"), "it is told")
        await rewrite(user, "victim", **{OURS: None, INDEX: str((cards[0] + 5) % 8)})
        await asyncio.to_thread(farm.local.kubectl, "exec", "victim", "-c", "init", "--", "touch", "/tmp/go")
        await farm.running("victim")
        assert await farm.sees("victim") == [f"gcu{cards[0]}"]
        await farm.until(partial(restored, farm, "victim", cards), "the record is restored again")


async def _shows(farm: Farm) -> bool:
    return whole_number((await farm.node())["status"]["allocatable"].get(GCU)) == 128


async def _waits(farm: Farm) -> bool:
    return await farm.metric("accelshare_waiting_pods") >= 1


async def _log(farm: Farm, pod: str, container: str) -> str:
    path = f"/api/v1/namespaces/default/pods/{pod}/log"
    with contextlib.suppress(Exception):  # the container is not there yet
        return (await farm.client.request("GET", path, params={"container": container})).decode()
    return ""


@pytest.mark.parametrize("scope", ["pod", "container.c0"])
async def test_the_annotation_that_makes_the_runtime_insist_cannot_be_shadowed(by_runtime: Farm, scope: str) -> None:
    """The agent is away, and the pod says that no plugin is required: its container is not made until the agent is back."""
    farm, name = by_runtime, f"shadows-{scope}".replace(".", "-")
    assert farm.agent is not None
    farm.agent.kill()
    try:
        await farm.pod(name, {GCU: 4}, annotations={f"required-plugins.noderesource.dev/{scope}": "[]"})
        await farm.until(partial(event, farm, name, "rejected container adjustment"), "the runtime insists on the agent")
        (status,) = (await farm.pods())[name]["status"]["containerStatuses"]
        assert "waiting" in status["state"], status
    finally:
        await farm.start_agent()
    found = await farm.running(name)
    assert await farm.sees(name) == [f"gcu{index}" for index in recorded(found[name], "enflame")]


async def test_each_container_has_its_own_whole_card(by_runtime: Farm) -> None:
    farm = by_runtime
    inits = [farm.container("beside", {GCUS: 1}, restartPolicy="Always")]
    await farm.pod("three", {GCUS: 1}, {GCUS: 1}, {}, initContainers=inits)
    found = await farm.running("three")
    seen = [await farm.sees("three", container) for container in ("beside", "c0", "c1")]
    assert [len(cards) for cards in seen] == [1, 1, 1]
    assert sorted(card for cards in seen for card in cards) == [f"gcu{index}" for index in recorded(found["three"], "enflame")]
    assert await farm.sees("three", "c2") == []


async def test_containers_that_ask_for_no_card_see_none(by_runtime: Farm) -> None:
    """An image that says `all`, a sidecar, an init container, kubectl debug; and who brings a card by the vendor's annotation."""
    farm = by_runtime
    every = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    inits = [farm.container("init", {}, env=every, command=["sh", "-c", 'test "$NVIDIA_VISIBLE_DEVICES" = void'])]
    containers = [farm.container("c0", {GPU: 2}, env=every), farm.container("c1", {}, env=every)]
    await farm.pod("cards", containers=containers, initContainers=inits)
    await farm.pod("image", containers=[farm.container("c0", {}, env=every)])
    privileged = farm.container("c0", {}, env=every, securityContext={"privileged": True})
    await farm.pod("privileged", containers=[privileged])
    found = await farm.running("cards", "image", "privileged")
    assert (await farm.env("cards"))["NVIDIA_VISIBLE_DEVICES"] == f"GPU-{recorded(found['cards'], 'nvidia')[0]}"
    assert (await farm.env("cards", "c1"))["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert (await farm.env("image"))["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert (await farm.env("privileged"))["NVIDIA_VISIBLE_DEVICES"] == "all"
    await farm.until(partial(event, farm, "image", "AcceleratorWithheld"), "it is told")
    debugger = {**farm.container("debugger", {}, env=every), "targetContainerName": "c0"}
    del debugger["resources"]
    body = msgspec.json.encode({"spec": {"ephemeralContainers": [debugger]}})
    await farm.client.request(
        "PATCH",
        "/api/v1/namespaces/default/pods/cards/ephemeralcontainers",
        body=body,
        content_type="application/strategic-merge-patch+json",
    )
    await farm.until(partial(_debugs, farm, "cards"), "the debugger runs")
    assert (await farm.env("cards", "debugger"))["NVIDIA_VISIBLE_DEVICES"] == "void"
    await farm.pod("brings", {}, annotations={"nvidia.cdi.k8s.io/container.c0": "nvidia.com/gpu=all"})
    await farm.until(partial(event, farm, "brings", "AcceleratorNotRequested"), "it is refused, and told")
    assert "waiting" in (await farm.pods())["brings"]["status"]["containerStatuses"][0]["state"]


async def _debugs(farm: Farm, pod: str) -> bool:
    statuses = (await farm.pods())[pod]["status"].get("ephemeralContainerStatuses") or ()
    return any("running" in status["state"] for status in statuses)
