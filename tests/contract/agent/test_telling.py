"""What the agent says of its cards beside their number: who enforces shares, what people marked ill, which unit is too fine."""

from pathlib import Path

import pytest

from accelshare.wire.inventory import CardEntry
from tests.contract.agent.village import MEMORY, NODE, PROFILE, WHOLE, Village

# A runtime that must be new enough, else a daemon that is there if its pipe is, else nobody.
ENFORCED = """
[enforcement]
order = ["runtime", "daemon", "watch"]
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


def cards(village: Village) -> list[CardEntry]:
    told = village.told()
    return list(told.cards) if told is not None else []


@pytest.mark.parametrize(
    ("there", "way", "variable", "mounts"),
    [
        ((), "watch", None, []),
        (("usr/bin/zpu-runtime",), "watch", None, []),
        (("usr/bin/zpu-runtime", "etc/zpu/runtime.conf"), "runtime", ("ZPU_LIMIT", "4096"), []),
        (("etc/zpu/runtime.conf", "tmp/zpu/control"), "daemon", ("ZPU_DAEMON_LIMIT", "0=4096M"), ["/tmp/zpu"]),
    ],
)
async def test_who_enforces_shares_is_looked_for_below_the_hosts_root(
    village: Village, tmp_path: Path, there: tuple[str, ...], way: str, variable: tuple[str, str] | None, mounts: list[str]
) -> None:
    """In a container the host is below --host-root; the way that works is told with each card, and containers get it."""
    host = tmp_path / "host"
    for name in there:
        (host / name).parent.mkdir(parents=True, exist_ok=True)
        (host / name).write_text("#!/bin/sh\necho zpu-runtime 2.1.0\n")
        (host / name).chmod(0o755)
    (village.profiles / "acme.toml").write_text(PROFILE + ENFORCED)
    village.cards(2)
    async with village.kubelet() as kubelet:
        await village.start_agent(f"--host-root={host}")
        assert [card.enforced_by for card in cards(village)] == [way, way]
        village.pod("share", {MEMORY: 4})
        village.bind("share", 0, units=4)
        village.pod("whole", {WHOLE: 1})
        village.bind("whole", 1, whole=True)
        await village.settled("share", "whole")
        share, whole = (kubelet.admitted[village.read(name)["metadata"]["uid"]] for name in ("share", "whole"))
        limits = {name: value for name, value in share.env("c0").items() if name.endswith("LIMIT")}
        assert limits == (dict([variable]) if variable else {})
        (given,) = share.given["c0"]
        assert [(mount.host_path, mount.container_path, mount.read_only) for mount in given.mounts] == [
            (path, path, False) for path in mounts
        ]
        assert not any(name.endswith("LIMIT") for name in whole.env("c0")), "a whole card needs no limit"


async def test_cards_that_people_mark_in_the_configmap_are_ill_until_they_are_not_marked(village: Village) -> None:
    """gpushare's `unhealthy-gpu-<node>`: from kubelet and from the cluster; an unreadable list marks nothing, in words."""
    (village.profiles / "acme.toml").write_text(PROFILE + MARKED)
    village.cards(3)
    name = f"unhealthy-gpu-{NODE}"

    def say(text: str) -> None:
        village.api.store.patch(
            "configmaps", name, {"data": {"gpus": text}}, content_type="application/merge-patch+json", namespace="kube-system"
        )

    async with village.kubelet():
        process = await village.start_agent()
        village.api.store.create("configmaps", {"metadata": {"name": name}, "data": {"gpus": "0,2"}}, namespace="kube-system")
        await village.until(lambda: [card.healthy for card in cards(village)] == [False, True, False], "two cards are ill")
        assert cards(village)[2].problem == f"marked in ConfigMap {name}"
        await village.until(lambda: village.capacity().get(MEMORY) == "16", "kubelet sees one card")
        say("card two")
        await village.until(lambda: all(card.healthy for card in cards(village)), "all cards are well")
        assert "it must be card indexes joined by commas, so no card is marked" in process.last_lines()
        say("1")
        await village.until(lambda: village.capacity().get(MEMORY) == "32", "kubelet sees two cards")
        village.api.store.delete("configmaps", name, namespace="kube-system")
        await village.until(lambda: village.capacity().get(MEMORY) == "48", "kubelet sees all cards")
        assert all(card.healthy for card in cards(village))


async def test_a_unit_so_fine_that_pods_would_outgrow_etcd_is_warned_of_at_the_start(village: Village) -> None:
    """kubelet 1.36 lists each id in the pod's status: numbers, and the unit that avoids it."""
    (village.profiles / "acme.toml").write_text(PROFILE.replace("16384", "24576"))
    village.cards(1)
    async with village.kubelet():
        process = await village.start_agent("--memory-unit=MiB")
        said = process.last_lines(100)
        assert "a pod that takes a whole card in units of MiB has some 1081344 bytes of status on kubelet 1.36" in said
        assert "unit 'GiB' avoids it" in said
