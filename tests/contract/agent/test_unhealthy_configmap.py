"""What the inventory shows of cards: who enforces shares, and marks of people; and units that are too small."""

from pathlib import Path

import pytest

from tests.contract.agent.fake_node import MEMORY, NODE, PROFILE, WHOLE, FakeNode

# A runtime that must be new enough, else a daemon that is there if its pipe is, else nobody.
ENFORCED = """
[enforcement]
order = ["runtime", "daemon", "nobody"]
[enforcement.ways.runtime]
env = { ZPU_LIMIT = "{share_mib}" }
requires = [{ command = ["zpu-runtime", "--version"], at_least = "2.1" }, { file = "/etc/zpu/runtime.conf" }]
[enforcement.ways.daemon]
env = { ZPU_DAEMON_LIMIT = "{ordinal}={share_mib}M" }
mounts = ["/tmp/zpu"]
requires = [{ file = "/tmp/zpu/control" }]
"""
MARKED = """
[unhealthy]
name = "unhealthy-gpu-{node}"
key = "gpus"
"""


@pytest.mark.parametrize(
    ("there", "way", "variable", "mounts"),
    [
        ((), "nobody", None, []),
        (("usr/bin/zpu-runtime",), "nobody", None, []),
        (("usr/bin/zpu-runtime", "etc/zpu/runtime.conf"), "runtime", ("ZPU_LIMIT", "4096"), []),
        (("etc/zpu/runtime.conf", "tmp/zpu/control"), "daemon", ("ZPU_DAEMON_LIMIT", "0=4096M"), ["/tmp/zpu"]),
    ],
)
async def test_enforcement_is_probed_below_the_hosts_root(
    fake_node: FakeNode, tmp_path: Path, there: tuple[str, ...], way: str, variable: tuple[str, str] | None, mounts: list[str]
) -> None:
    """In a container the host is below --host-root; the enforcement that works is published with each card and applied."""
    host = tmp_path / "host"
    for name in there:
        (host / name).parent.mkdir(parents=True, exist_ok=True)
        (host / name).write_text("#!/bin/sh\necho zpu-runtime 2.1.0\n")
        (host / name).chmod(0o755)
    (fake_node.profiles / "acme.toml").write_text(PROFILE + ENFORCED)
    fake_node.cards(2)
    async with fake_node.kubelet() as kubelet:
        await fake_node.start_agent(f"--host-root={host}")
        assert [card.enforced_by for card in fake_node.entry().cards] == [way, way]
        fake_node.pod("share", {MEMORY: 4})
        fake_node.bind("share", 0, units=4)
        fake_node.pod("whole", {WHOLE: 1})
        fake_node.bind("whole", 1, whole=True)
        await fake_node.settled("share", "whole")
        share, whole = (kubelet.admitted[fake_node.read(name)["metadata"]["uid"]] for name in ("share", "whole"))
        limits = {name: value for name, value in share.env("c0").items() if name.endswith("LIMIT")}
        assert limits == (dict([variable]) if variable else {})
        (given,) = share.responses["c0"]
        assert [(mount.host_path, mount.container_path, mount.read_only) for mount in given.mounts] == [
            (path, path, False) for path in mounts
        ]
        assert not any(name.endswith("LIMIT") for name in whole.env("c0")), "a whole card needs no limit"


async def test_cards_that_people_mark_in_the_configmap_are_unhealthy(fake_node: FakeNode) -> None:
    """gpushare's `unhealthy-gpu-<node>`: kubelet and the Node show the marks; an unreadable list marks nothing and is logged."""
    (fake_node.profiles / "acme.toml").write_text(PROFILE + MARKED)
    fake_node.cards(3)
    name = f"unhealthy-gpu-{NODE}"

    def mark(text: str) -> None:
        fake_node.api.store.patch(
            "configmaps", name, {"data": {"gpus": text}}, content_type="application/merge-patch+json", namespace="kube-system"
        )

    async with fake_node.kubelet():
        process = await fake_node.start_agent()
        fake_node.api.store.create("configmaps", {"metadata": {"name": name}, "data": {"gpus": "0,2"}}, namespace="kube-system")
        await fake_node.until(
            lambda: [card.healthy for card in fake_node.entry().cards] == [False, True, False], "two cards are ill"
        )
        assert fake_node.entry().cards[2].problem == f"marked in ConfigMap {name}"
        await fake_node.until(lambda: fake_node.capacity().get(MEMORY) == "16", "kubelet sees one card")
        mark("card two")
        await fake_node.until(lambda: all(card.healthy for card in fake_node.entry().cards), "all cards are well")
        assert "no card is marked" in process.last_lines()
        mark("1")
        await fake_node.until(lambda: fake_node.capacity().get(MEMORY) == "32", "kubelet sees two cards")
        fake_node.api.store.delete("configmaps", name, namespace="kube-system")
        await fake_node.until(lambda: fake_node.capacity().get(MEMORY) == "48", "kubelet sees all cards")
        assert all(card.healthy for card in fake_node.entry().cards)


async def test_a_unit_that_makes_pod_status_too_large_is_logged(fake_node: FakeNode) -> None:
    """kubelet 1.36 lists each id in the pod's status; the log has the size and the unit that avoids it."""
    (fake_node.profiles / "acme.toml").write_text(PROFILE.replace("16384", "24576"))
    fake_node.cards(1)
    async with fake_node.kubelet():
        process = await fake_node.start_agent("--memory-unit=MiB")
        logged = process.last_lines(100)
        assert "a pod that takes a whole card in units of MiB has some 1081344 bytes of status on kubelet 1.36" in logged
        assert "unit 'GiB' avoids it" in logged
