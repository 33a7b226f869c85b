"""The agent on a node where an original device plugin ran before: its pods run on, and kubelet still lists its ids."""

from accelshare.testing.fake_kubelet import Admitted
from tests.contract.agent.fake_node import MEMORY, NODE, WHOLE, FakeNode

RECORD = {"acme.example/index": "1", "acme.example/size": "16", "acme.example/units": "6", "acme.example/assigned": "true"}


async def test_pods_of_an_original_plugin_keep_their_cards_and_new_ones_are_served(fake_node: FakeNode) -> None:
    """Ids of the original plugin are not of our form: then the pod's own record names its card."""
    fake_node.cards(2)
    kubelet = fake_node.kubelet()
    theirs = {"shared": {MEMORY: [f"GPU-368a683d-_-{unit}" for unit in range(6)]}, "whole": {WHOLE: ["GPU-368a683d-e5c1"]}}
    for name, ids in theirs.items():
        ((resource, held),) = ids.items()
        uid = fake_node.pod(name, {resource: len(held)})
        record = RECORD if resource == MEMORY else {}
        fake_node.api.store.bind(name, {"metadata": {"name": name, "annotations": record}, "target": {"name": NODE}})
        fake_node.api.store.patch(
            "pods", name, {"status": {"phase": "Running"}}, content_type="application/merge-patch+json", subresource="status"
        )
        kubelet.admitted[uid] = Admitted(uid, f"default/{name}", ids={"c0": ids})
    before = {name: fake_node.read(name)["metadata"]["annotations"] for name in theirs if name == "shared"}
    async with kubelet:
        await fake_node.start_agent()
        await fake_node.place("new", 1, units=4)
        assert kubelet.rejected == {}
        assert sorted(kubelet.admitted[fake_node.read("new")["metadata"]["uid"]].devices("c0")) == ["/dev/zpu1"]
        assert {name: fake_node.read(name)["metadata"]["annotations"] for name in before} == before
        assert [fake_node.phase(name) for name in theirs] == ["Running", "Running"]
        assert await fake_node.metric("accelshare_drift_total") == 0
        assert fake_node.agent is not None
        assert fake_node.agent.running
