"""The agent on a node where an original device plugin was before: its pods run on, and kubelet's books still name its ids."""

from accelshare.agent.memory_kubelet import Admitted
from tests.contract.agent.village import MEMORY, NODE, WHOLE, Village

RECORD = {"acme.example/index": "1", "acme.example/size": "16", "acme.example/units": "6", "acme.example/assigned": "true"}


async def test_pods_of_an_original_plugin_keep_their_cards_and_new_ones_are_served(village: Village) -> None:
    """Ids of the original are no ids of ours: then the pod's own record says which card it has."""
    village.cards(2)
    kubelet = village.kubelet()
    theirs = {"shared": {MEMORY: [f"GPU-368a683d-_-{unit}" for unit in range(6)]}, "whole": {WHOLE: ["GPU-368a683d-e5c1"]}}
    for name, ids in theirs.items():
        ((resource, held),) = ids.items()
        uid = village.pod(name, {resource: len(held)})
        record = RECORD if resource == MEMORY else {}
        village.api.store.bind(name, {"metadata": {"name": name, "annotations": record}, "target": {"name": NODE}})
        village.api.store.patch(
            "pods", name, {"status": {"phase": "Running"}}, content_type="application/merge-patch+json", subresource="status"
        )
        kubelet.admitted[uid] = Admitted(uid, f"default/{name}", ids={"c0": ids})
    before = {name: village.read(name)["metadata"]["annotations"] for name in theirs if name == "shared"}
    async with kubelet:
        await village.start_agent()
        village.pod("new", {MEMORY: 4})
        village.bind("new", 1, units=4)
        await village.settled("new")
        assert kubelet.rejected == {}
        assert sorted(kubelet.admitted[village.read("new")["metadata"]["uid"]].devices("c0")) == ["/dev/zpu1"]
        assert {name: village.read(name)["metadata"]["annotations"] for name in before} == before
        assert [village.phase(name) for name in theirs] == ["Running", "Running"]
        assert await village.metric("accelshare_drift_total") == 0
        assert village.agent is not None
        assert village.agent.running
