"""The preset of fake cards: its profiles are correct, its cards are healthy on any host, and a container sees which it has."""

import time
from pathlib import Path

import pytest
import yaml

from accelshare.ledger.nouns import Slice
from accelshare.vendors import catalog
from accelshare.vendors.container_edits import CardShare, DeviceNode, edits, shown_cards
from accelshare.vendors.drivers.driver import Options, Roots
from accelshare.vendors.drivers.static import StaticDriver
from accelshare.vendors.profile import Profile
from accelshare.wire import assignment
from tests.contract.agent.fake_node import NODE, open_fake_node

PRESET = Path(__file__).parents[2] / "deploy/chart/accelshare/presets/fake.yaml"
VALUES = yaml.safe_load(PRESET.read_text())
FILES = {"nvidia": "/dev/nvidia{}", "kunlun": "/dev/xpu{}", "enflame": "/dev/gcu{}", "stream": "/dev/stc{}"}


@pytest.fixture
def profiles(tmp_path: Path) -> dict[str, Profile]:
    for name, text in VALUES["profiles"].items():
        (tmp_path / name).write_text(text)
    return {name: catalog.load([tmp_path])[name] for name in VALUES["vendors"]}


def test_every_vendor_of_the_preset_has_a_profile_that_says_fake(profiles: dict[str, Profile]) -> None:
    assert set(profiles) == set(FILES)
    for name, profile in profiles.items():
        assert profile.driver is not None
        assert profile.driver.static is not None
        assert all("fake" in card.model and "fake" in (card.id or "") for card in profile.driver.static.cards), name
        values = VALUES["vendors"][name]
        assert (values["enabled"], values["nodeLabel"], values.get("privileged", False)) == (True, "", False)


@pytest.mark.parametrize("name", FILES)
async def test_its_cards_are_healthy_on_a_host_without_hardware(name: str, profiles: dict[str, Profile], tmp_path: Path) -> None:
    dev = tmp_path / "dev"
    dev.mkdir()
    (dev / "null").touch()
    profile = profiles[name]
    assert profile.driver is not None
    assert profile.driver.static is not None
    driver = StaticDriver(Options(roots=Roots(dev=dev)), profile.driver.static, profile.hardware.device_nodes)
    cards = await driver.discover()
    assert [(card.index, card.healthy) for card in cards] == [(index, True) for index in range(4)]


@pytest.mark.parametrize("name", FILES)
def test_a_container_shows_the_card_that_it_has(name: str, profiles: dict[str, Profile]) -> None:
    profile = profiles[name]
    share = CardShare(index=2, minor=2, id="X-fake-2", units=1, card_units=16, unit_mib=1024, whole=name == "stream")
    got = edits(profile, cards=[share], container_units=1, pod_units=1, exists=lambda _: False)
    path = FILES[name].format(2)
    assert got.device_nodes == (DeviceNode("/dev/null", path, "rw"),)
    devices = [node.container_path for node in got.device_nodes]
    others = [CardShare(index=n, minor=n, id=f"X-fake-{n}", units=1, card_units=16, unit_mib=1024) for n in range(4)]
    assert shown_cards(profile, others, env=got.env, devices=devices, mounts=()) == {2}


async def test_the_agent_publishes_and_delivers_them_through_kubelet(tmp_path: Path) -> None:
    """On a host with no device file but /dev/null: the process that the chart starts, over kubelet's gRPC."""
    async with open_fake_node(tmp_path) as fake_node:
        fake_node.cards(1)  # of another vendor, for which the helper waits
        (fake_node.dev / "null").symlink_to("/dev/null")
        for name, text in VALUES["profiles"].items():
            (fake_node.profiles / name).write_text(text)
        profiles = {profile.name: profile for profile in catalog.load([fake_node.profiles])}
        async with fake_node.kubelet() as kubelet:
            await fake_node.start_agent(*(f"--vendor={name}" for name in FILES))
            await fake_node.until(lambda: all(fake_node.entry(name).cards for name in FILES), "all cards are published")
            for name in FILES:
                cards = fake_node.entry(name).cards
                assert [(card.index, card.healthy) for card in cards] == [(index, True) for index in range(4)]
            await fake_node.until(lambda: fake_node.capacity().get("aliyun.com/gpu-mem") == "64", "64 GiB are shown")
            uid = fake_node.pod("a", {"aliyun.com/gpu-mem": 4})
            written = assignment.write(
                (Slice("nvidia", 1, 4, False, "GPU-fake-1"),), profiles=profiles, sizes={("nvidia", 1): 16}, now_ns=time.time_ns()
            )
            fake_node.api.store.bind("a", {"metadata": {"name": "a", "annotations": written}, "target": {"name": NODE}})
            await fake_node.until(lambda: uid in kubelet.admitted, "kubelet has admitted the pod")
            assert list(kubelet.admitted[uid].devices("c0")) == ["/dev/nvidia1"]
            assert kubelet.admitted[uid].env("c0")["NVIDIA_VISIBLE_DEVICES"] == "GPU-fake-1"
