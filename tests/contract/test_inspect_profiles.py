"""`inspect` and `explain` without --profiles take a profile of the cluster's own from the ConfigMap of the chart."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from accelshare.testing.api_server import FakeApiServer
from tests.contract.test_inspect_usage import UsedCluster
from tests.unit.vendors.builders import COMPLETE, as_file

ACME = as_file(COMPLETE)
INVENTORY = {"acme": {"unit": "GiB", "cards": [{"index": 0, "size": 16}, {"index": 1, "size": 16}]}}
PATH = "/configmaps/"


class ClusterOfAcme(UsedCluster):
    """A node with two cards of a vendor that only the cluster knows, and a pod on each."""

    def __init__(self, api: FakeApiServer, directory: Path) -> None:
        super().__init__(api, directory)
        annotations = {"accelshare.io/inventory": json.dumps(INVENTORY)}
        api.store.create("nodes", {"metadata": {"name": "zpu-node", "annotations": annotations}})
        self.pod("has", {"acme.example/zpu-mem": 5}, on="zpu-node acme/1")
        self.pod("waits", {"acme.example/zpu-mem": 20})
        self.port = 9000

    def profiles(self, namespace: str = "kube-system", **texts: str) -> None:
        if namespace not in self.namespaces():
            self.api.store.create("namespaces", {"metadata": {"name": namespace}})
        data = {f"{name}.toml": text for name, text in texts.items()}
        self.api.store.create("configmaps", {"metadata": {"name": "accelshare-profiles"}, "data": data}, namespace=namespace)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClusterOfAcme]:
    async with FakeApiServer() as api:
        yield ClusterOfAcme(api, tmp_path)


async def test_cards_are_shown_by_the_profile_of_the_cluster(cluster: ClusterOfAcme) -> None:
    cluster.profiles(acme=ACME)
    code, out, err = await cluster.accelshare("inspect")
    assert (code, err) == (0, "")
    assert "ZPU0(Allocated/Total)  ZPU1(Allocated/Total)" in out
    assert "0/16                   5/16" in out


async def test_a_pod_is_explained_by_the_profile_of_the_cluster(cluster: ClusterOfAcme) -> None:
    cluster.profiles(acme=ACME)
    code, out, err = await cluster.accelshare("explain", "waits")
    assert (code, err) == (0, "")
    assert "acme.example/zpu-mem: 20" in out
    assert "the largest has 16" in out


async def test_bars_and_the_list_of_waiting_pods_use_the_profile_of_the_cluster(cluster: ClusterOfAcme) -> None:
    cluster.profiles(acme=ACME)
    code, out, err = await cluster.accelshare("inspect", "-o", "bars", "--no-usage")
    assert (code, err) == (0, "")
    assert "ZPU1" in out
    assert "5/16 GiB" in out
    assert "default/waits" in out
    code, out, err = await cluster.accelshare("explain", "-o", "json")
    assert (code, err) == (0, "")
    (pod,) = json.loads(out)["waiting"]
    assert (pod["name"], pod["requests"], pod["kinds"]) == ("waits", "20 GiB ZPU", ["acme"])


async def test_the_vendor_and_the_plugin_of_the_cluster_can_be_named(cluster: ClusterOfAcme) -> None:
    cluster.profiles(acme=ACME)
    for words in (("--vendor", "acme"), ("--vendor", "acme", "-o", "json", "--no-usage")):
        code, out, err = await cluster.accelshare("inspect", *words)
        assert (code, err) == (0, "")
        assert "16" in out
    code, out, err = await cluster.run(cluster.plugin("zpushare"))
    assert (code, err) == (0, "")
    assert "5/16" in out


async def test_the_profiles_are_sought_where_the_agents_are(cluster: ClusterOfAcme) -> None:
    cluster.agent("agent-1", "zpu-node", namespace="accelerators")
    cluster.profiles("accelerators", acme=ACME)
    assert "5/16" in (await cluster.accelshare("inspect"))[1]
    assert "5/16" in (await cluster.accelshare("inspect", "--vendor", "acme"))[1]


async def test_pods_that_pretend_to_be_agents_bring_no_profile(cluster: ClusterOfAcme) -> None:
    cluster.agent("agent-1", "zpu-node")
    cluster.agent("mine", "zpu-node", namespace="somebody")
    cluster.profiles("somebody", acme=ACME)
    code, out, err = await cluster.accelshare("inspect")
    assert (code, "ZPU" in out) == (0, False)
    assert "several namespaces" in err


async def test_nothing_is_read_that_is_not_needed(cluster: ClusterOfAcme, tmp_path: Path) -> None:
    """A profile that the user gave comes first; a cluster of known vendors is asked for none."""
    cluster.profiles(acme=ACME)
    asked = cluster.api.faults.answer(500, path=PATH, times=100)
    given = tmp_path / "given"
    given.mkdir()
    (given / "acme.toml").write_text(ACME.replace('noun = "ZPU"', 'noun = "QPU"'))
    assert "QPU0(Allocated/Total)" in (await cluster.accelshare("inspect", "--profiles", str(given)))[1]
    assert asked.hits == 0


async def test_a_user_without_the_permission_learns_what_is_missing(cluster: ClusterOfAcme) -> None:
    cluster.profiles(acme=ACME)
    cluster.api.faults.answer(403, path=PATH, times=100)
    for words in (("inspect",), ("explain", "waits")):
        code, _, err = await cluster.accelshare(*words)
        assert code == 0
        assert "no profile acme is known here" in err
        assert "You may not get the ConfigMap kube-system/accelshare-profiles" in err
        assert "--profiles" in err


HOSTILE = {
    "no TOML": "= [",
    "nested": "a = " + "[" * 3000,
    "a long line": "a" + ".a" * 100_000 + " = 1",
    "digits": "a = 1" + "0" * 4000,
    "control characters": 'name = "acme"\ntitle = "\\u001b[2J\\u001b[31mACME"\nnoun = "Z\\u0007"\n',
    "a name that leads elsewhere": 'name = "../../etc/passwd"\n',
    "another profile's resource": ACME.replace("acme.example/zpu-mem", "aliyun.com/gpu-mem"),
    "a circle": 'name = "acme"\nextends = "acme"\n',
    "wrong types": 'name = ["acme"]\nresources = 3\n',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_profile_is_a_message_and_hides_no_other_cards(cluster: ClusterOfAcme, text: str) -> None:
    cluster.xpu_pods()
    cluster.profiles(acme=text)
    code, out, err = await cluster.accelshare("inspect")
    assert code == 0
    assert "9000/32256" in out
    assert "ConfigMap kube-system/accelshare-profiles, acme.toml" in err
    assert "no profile acme is known here" in err
    assert "Traceback" not in err
    assert "\x1b" not in out + err
    assert len(err) < 4000


async def test_a_broken_profile_of_a_known_vendor_leaves_that_of_the_program(cluster: ClusterOfAcme) -> None:
    cluster.xpu_pods()
    cluster.profiles(acme=ACME, kunlun='extends = "kunlun"\nnoun = 3\n')
    code, out, err = await cluster.accelshare("inspect")
    assert code == 0
    assert "9000/32256" in out
    assert "5/16" in out
    assert "kunlun.toml: noun" in err


@pytest.mark.parametrize("code", [404, 500])
async def test_an_error_of_the_api_server_is_a_message(cluster: ClusterOfAcme, code: int) -> None:
    cluster.api.faults.answer(code, path=PATH, times=100)
    code, _, err = await cluster.accelshare("inspect")
    assert code == 0
    assert "no profile acme is known here" in err
    assert "ConfigMap kube-system/accelshare-profiles" in err
