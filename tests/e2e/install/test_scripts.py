"""deploy.sh, delete.sh and inspect.sh with the real helm and kubectl, on a real API server."""

import asyncio
import base64
import gzip
import json

import pytest

from deploy.render import MANIFESTS
from tests.e2e.install.cluster_admin import ClusterAdmin

pytestmark = pytest.mark.real


async def test_enter_means_all_nodes(admin: ClusterAdmin) -> None:
    """It lists the nodes, asks, and labels; a second time changes nothing; delete.sh takes away what it gave."""
    done = await admin.script("deploy.sh", "--preset", "gpushare", stdin="\n")
    assert done.returncode == 0, done.stderr
    assert "1. Nodes\n   n1\n   n2\n   n3\nNodes that share their cards" in done.stdout
    assert "sharing: n1,n2,n3" in done.stdout
    assert await admin.labelled() == ["n1", "n2", "n3"]

    again = await admin.script("deploy.sh", "--preset", "gpushare", "--all-nodes")
    assert again.returncode == 0, again.stderr
    assert admin.hook_runner.runs[-1].output == "unchanged\n"

    gone = await admin.script("delete.sh")
    assert gone.returncode == 0, gone.stderr
    assert await admin.labelled() == ["n1"]
    await admin.scheduling_cluster.until(lambda: admin.ours() == [], "nothing of ours is left")
    once_more = await admin.script("delete.sh")
    assert once_more.returncode == 0, once_more.stderr
    assert "there is no release accelshare in namespace kube-system" in once_more.stdout


async def test_nodes_are_named_by_an_answer_or_by_a_flag(admin: ClusterAdmin) -> None:
    done = await admin.script("deploy.sh", "--preset", "gpushare", "--image", "registry.example:5000/accelshare:9", stdin="n2\n")
    assert done.returncode == 0, done.stderr
    assert await admin.labelled() == ["n1", "n2"]
    (container,) = admin.read("deployment", "gpushare-schd-extender")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example:5000/accelshare:9"
    done = await admin.script("deploy.sh", "--preset", "gpushare", "--nodes", "n3", "--", "--set", "extender.policy=spread")
    assert done.returncode == 0, done.stderr
    assert await admin.labelled() == ["n1", "n3"]
    (container,) = admin.read("deployment", "gpushare-schd-extender")["spec"]["template"]["spec"]["containers"]
    assert "--policy=spread" in container["args"]


async def test_a_node_whose_name_is_a_number_is_a_node(admin: ClusterAdmin) -> None:
    """YAML and helm would both read 101 as a number."""
    await admin.scheduling_cluster.node("101", {})
    done = await admin.script("deploy.sh", "--preset", "gpushare", "--nodes", "101")
    assert done.returncode == 0, done.stderr
    assert await admin.labelled() == ["101", "n1"]


async def test_a_helm_that_was_killed_in_the_middle_is_told_of(admin: ClusterAdmin) -> None:
    """A lost connection is enough. helm then refuses for ever, so the same command would not go on by itself."""
    done = await admin.script("deploy.sh", "--preset", "gpushare", "--no-labels")
    assert done.returncode == 0, done.stderr
    secret = admin.read("secret", "sh.helm.release.v1.accelshare.v1")
    release = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"]))))
    release["info"]["status"] = "pending-upgrade"
    text = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode()))).decode()
    killed = {"data": {"release": text}, "metadata": {"labels": {"status": "pending-upgrade"}}}
    await admin.scheduling_cluster.patch("/api/v1/namespaces/kube-system/secrets/sh.helm.release.v1.accelshare.v1", killed)
    refused = await admin.script("deploy.sh", "--preset", "gpushare", "--no-labels")
    assert refused.returncode == 1
    assert "an earlier helm was ended in the middle of its work on accelshare" in refused.stderr
    assert "rollback accelshare --namespace kube-system" in refused.stderr


async def test_presets_side_by_side_are_read_in_their_order(admin: ClusterAdmin) -> None:
    """The last one names the parts, as with helm's own --values."""
    done = await admin.script("deploy.sh", "--preset", "xpushare", "--preset", "gpushare", "--no-labels")
    assert done.returncode == 0, done.stderr
    agent = admin.read("daemonset", "gpushare-device-plugin-ds")["spec"]["template"]["spec"]["containers"][0]
    assert [argument for argument in agent["args"] if "--vendor" in argument] == ["--vendor=kunlun", "--vendor=nvidia"]
    assert await admin.labelled() == ["n1"]


REFUSED = (
    ((), "", ("which cards? give --preset", "there are: fake gcushare gpushare stc xpushare")),
    (("--preset", "gpu"), "", ("there is no preset gpu",)),
    (("--preset",), "", ("--preset needs a value",)),
    (("--preset", "stc", "--force"), "", ("there is no flag --force",)),
    (("--preset", "stc"), "", ("nobody answers", '--nodes "A B", --all-nodes or --no-labels')),
    (("--preset", "stc"), "n2 n4\n", ("the cluster has no node n4", "choose among those above")),
    (("--preset", "stc", "--all-nodes", "--image", "host:5000/accelshare"), "", ("host:5000/accelshare has no tag",)),
)


async def test_the_first_error_stops_it_with_what_to_do(admin: ClusterAdmin) -> None:
    for arguments, stdin, words in REFUSED:
        done = await admin.script("deploy.sh", *arguments, stdin=stdin)
        assert done.returncode == 1
        assert [word for word in words if word not in done.stderr] == []
        assert admin.ours() == []
    done = await admin.script("inspect.sh")
    assert done.returncode == 1
    assert "there is no extender in this cluster" in done.stderr


async def test_a_refused_uninstall_says_where_to_look(admin: ClusterAdmin) -> None:
    done = await admin.script("deploy.sh", "--preset", "gpushare", "--no-labels")
    assert done.returncode == 0, done.stderr
    admin.hook_runner.refuses = ("restore-schedulers",)
    refused = await admin.script("delete.sh", "--timeout", "60s")
    assert refused.returncode == 1
    assert "nothing was deleted" in refused.stderr
    assert "job/accelshare-uninstall" in refused.stderr
    assert any(name.startswith("deployment.apps/") for name in admin.ours())


async def test_an_uninstall_in_the_wrong_place_touches_nothing(admin: ClusterAdmin) -> None:
    """A forgotten --namespace, a mistyped --release, a helm that cannot be asked: the living installation keeps its rights."""
    done = await admin.script("deploy.sh", "--preset", "gpushare", "--no-labels")
    assert done.returncode == 0, done.stderr
    there = await admin.settled()
    elsewhere = await admin.script("delete.sh", "--namespace", "default")
    assert elsewhere.returncode == 1
    assert "accelshare is in namespace kube-system" in elsewhere.stderr
    await admin.until_there_is(there)
    blind = await admin.script("delete.sh", helm="/bin/false")
    assert blind.returncode == 1
    assert "helm cannot say whether there is a release accelshare in namespace kube-system" in blind.stderr
    await admin.until_there_is(there)


async def test_what_kubectl_applied_is_left_to_kubectl(admin: ClusterAdmin) -> None:
    """The plain manifests make no release: their rights are not what a failed Job left behind."""
    await admin.apply(MANIFESTS / "nvidia")
    there = admin.ours()
    done = await admin.script("delete.sh")
    await admin.take_back(MANIFESTS / "nvidia")
    assert done.returncode == 1
    assert "accelshare is in namespace kube-system, but helm did not put it there" in done.stderr
    assert [name for name in there if "role" in name] != []


async def test_inspect_asks_the_extender_over_its_own_certificates(admin: ClusterAdmin) -> None:
    """The certificates of the install, a real extender that insists on them, and the script that fetches the client's."""
    scheduling_cluster = admin.scheduling_cluster
    await scheduling_cluster.example_node("nvidia")
    done = await admin.script("deploy.sh", "--preset", "gpushare", "--no-labels")
    assert done.returncode == 0, done.stderr
    secret = admin.read("secret", "accelshare-extender-tls")["data"]
    files = {name: scheduling_cluster.directory / name for name in ("tls.crt", "tls.key", "ca.crt")}
    for name, path in files.items():
        path.write_bytes(base64.b64decode(secret[name]))
    scheduling_cluster.plane.kubectl("apply", "-f", "deploy/extender-rbac.yaml")
    scheduling_cluster.begin_extender(
        f"--tls-cert={files['tls.crt']}", f"--tls-key={files['tls.key']}", f"--client-ca={files['ca.crt']}"
    )

    async def reached() -> str:
        done = await admin.script("inspect.sh", "--preset", "gpushare", "--address", f"127.0.0.1:{scheduling_cluster.port}")
        return done.stdout if "totalGPU" in done.stdout else ""

    head, _, rest = str(await scheduling_cluster.until(reached, "the extender has seen the node")).partition("\n")
    assert head == "inspect GPU usage of all nodes from scheduler cache"
    assert json.loads(rest)["nodes"][0]["totalGPU"] > 0
    bare = await asyncio.create_subprocess_exec(
        "curl", "--silent", "--insecure", f"https://127.0.0.1:{scheduling_cluster.port}/gpushare-scheduler/inspect", stdout=-1
    )
    assert await bare.wait() != 0
