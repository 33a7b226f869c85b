"""The original systems' workloads on a node: what each container must see, with either delivery."""

from tests.e2e.node.real_node import RealNode, annotations, names

# Together eight pods; gcushare's own are in kube-system.
OTHERS = ("kunlun/xpu_pod", "nvidia/app", "nvidia/downward-api", "stream/example", "kunlun/xpu_pod_two_cards")


async def gcushare_pods_see_their_cards(real_node: RealNode) -> None:
    for number in (1, 2, 3):
        real_node.apply(f"examples/enflame/gcushare-pod-{number}.json", namespace="kube-system")
        await real_node.running(f"gcushare-pod-{number}", namespace="kube-system")
    where = [await real_node.sees(f"gcushare-pod-{number}", "pod-gcu-example", "kube-system") for number in (1, 2, 3)]
    assert where == [["gcu0"], ["gcu0"], ["gcu1"]]
    real_node.apply("examples/enflame/gcushare-pod-4.json", namespace="kube-system")
    await real_node.until(lambda: _waits(real_node), "the fourth asks more than a card has and waits, with the reason")


async def _waits(real_node: RealNode) -> bool:
    status = (await real_node.pods("kube-system"))["gcushare-pod-4"]["status"]
    messages = [condition.get("message", "") for condition in status.get("conditions", [])]
    return status["phase"] == "Pending" and any("insufficient GCU" in message for message in messages)


async def the_other_seeds_pods_see_their_cards(real_node: RealNode) -> list[str]:
    """All pods' names, for more questions."""
    for file in OTHERS:
        real_node.apply(f"examples/{file}.yaml")

    async def all_there() -> list[str] | None:
        pods = list(await real_node.pods())
        return pods if len(pods) == 8 else None

    pods: list[str] = await real_node.until(all_there, "eight pods are created")
    found = await real_node.running(*pods)
    xpus = [name for name in pods if name.startswith("xpu-pod-")]
    assert sorted([await real_node.sees(name, "xpu-pod") for name in xpus]) == [["xpu0"], ["xpu1"]]
    assert await real_node.sees("xpu-two-cards", "xpu-two-cards") == ["xpu2", "xpu3"]
    assert await real_node.sees("stc-example-pod", "stc-example-ctr") == ["stc0"]
    for name in names("binpack-1-", range(3)):
        env = await real_node.env(name, "binpack-1")
        assert (env["NVIDIA_VISIBLE_DEVICES"], env["ALIYUN_COM_GPU_MEM_IDX"]) == ("GPU-0", "0")
        memory = [env[f"ALIYUN_COM_GPU_MEM_{what}"] for what in ("POD", "CONTAINER", "DEV")]
        assert memory == ["3", "3", "15"]
        assert annotations(found[name])["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
    return pods
