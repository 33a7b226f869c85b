"""`inspect --quota`: what each namespace may request of cards, and what it does."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from accelshare.testing.api_server import FakeApiServer
from tests.contract.test_inspect import InspectedCluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InspectedCluster]:
    async with FakeApiServer() as api:
        yield InspectedCluster(api, tmp_path)


def quota(cluster: InspectedCluster, name: str, namespace: str, hard: dict[str, str], used: dict[str, str]) -> None:
    if namespace != "default":
        cluster.api.store.create("namespaces", {"metadata": {"name": namespace}})
    content = {"metadata": {"name": name}, "status": {"hard": hard, "used": used}}
    cluster.api.store.create("resourcequotas", content, namespace=namespace)


def example(cluster: InspectedCluster) -> None:
    memory, whole = "requests.aliyun.com/gpu-mem", "requests.streamcomputing.com/npu"
    quota(cluster, "cards", "team-b", {memory: "64", whole: "2", "pods": "10"}, {memory: "12", whole: "2", "pods": "5"})
    quota(cluster, "lowered", "default", {memory: "4"}, {memory: "8"})


async def test_the_table_has_one_line_for_each_resource_of_cards(cluster: InspectedCluster) -> None:
    example(cluster)
    code, out, err = await cluster.accelshare("inspect", "--quota")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["NAMESPACE", "QUOTA", "RESOURCE", "USED", "HARD", "LEFT"],
        ["default", "lowered", "aliyun.com/gpu-mem", "8", "4", "0"],
        ["team-b", "cards", "aliyun.com/gpu-mem", "12", "64", "52"],
        ["team-b", "cards", "streamcomputing.com/npu", "2", "2", "0"],
    ]


async def test_one_namespace_one_vendor_and_json(cluster: InspectedCluster) -> None:
    example(cluster)
    _, out, _ = await cluster.accelshare("inspect", "--quota", "-n", "team-b", "--vendor", "nvidia", "-o", "json")
    row = {"namespace": "team-b", "quota": "cards", "vendor": "nvidia", "resource": "aliyun.com/gpu-mem"}
    assert json.loads(out) == {"quotas": [{**row, "used": 12, "hard": 64, "left": 52}]}


async def test_no_quota_is_said_and_a_namespace_that_is_not_there_is_an_error(cluster: InspectedCluster) -> None:
    code, out, err = await cluster.accelshare("inspect", "--quota")
    assert (code, len(out.splitlines()), err) == (0, 1, "no ResourceQuota limits resources of cards\n")
    code, _, err = await cluster.accelshare("inspect", "--quota", "-n", "nowhere")
    assert code == 1
    assert "nowhere" in err


@pytest.mark.parametrize("others", [["minikube"], ["--details"], ["--watch"], ["--idle"], ["-o", "bars"]])
async def test_what_lists_nodes_cannot_be_combined_with_it(cluster: InspectedCluster, others: list[str]) -> None:
    code, _, err = await cluster.accelshare("inspect", "--quota", *others)
    assert code == 2
    assert "--quota lists namespaces and cannot be combined with" in err


async def test_who_may_not_read_quotas_is_told(cluster: InspectedCluster) -> None:
    cluster.api.faults.answer(403, path="/api/v1/resourcequotas", times=10)
    code, out, err = await cluster.accelshare("inspect", "--quota")
    assert (code, out) == (1, "")
    assert "resourcequotas" in err
