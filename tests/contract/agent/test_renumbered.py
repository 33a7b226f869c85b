"""A card is unplugged, the driver counts the others anew, and the agent restarts: every card is still itself."""

import shlex

import pytest

from accelshare.vendors.catalog import load
from tests.contract.agent.village import MEMORY, PROFILE, Village


class Cards:
    """What the vendor's tool says: a line for each card, whose place is its index."""

    def __init__(self, village: Village) -> None:
        self._file = village.directory / "cards"
        command = ", ".join(f'"{word}"' for word in shlex.split(f"cat {self._file}"))
        by_tool = f"command = [{command}]\npattern = '(?P<id>\\S+) (?P<minor>\\d+)'\n"
        (village.profiles / "acme.toml").write_text(PROFILE.replace('glob = "/dev/zpu[0-9]*"\n', by_tool))
        village.catalog = load([village.profiles])

    def are(self, **minors: int) -> None:
        self._file.write_text("".join(f"{id} {minor}\n" for id, minor in minors.items()))


@pytest.fixture
def cards(village: Village) -> Cards:
    village.cards(4)
    return Cards(village)


async def test_a_pod_bound_to_a_free_card_gets_it_and_no_full_one(village: Village, cards: Cards) -> None:
    cards.are(zpu0=0, zpu1=1, zpu2=2)
    async with village.kubelet() as kubelet:
        agent = await village.start_agent()
        village.pod("full", {MEMORY: 16})
        village.bind("full", 1, units=16)
        await village.settled("full")
        agent.kill()
        cards.are(zpu1=1, zpu2=2)
        await village.start_agent()
        new = village.pod("new", {MEMORY: 8})
        village.bind("new", 2, units=8)
        await village.settled("new")
        assert village.phase("new") == "Running", kubelet.rejected
        assert kubelet.admitted[new].devices("c0") == ["/dev/zpu2"]
        assert village.recorded("full") == [1]
        assert await village.metric("accelshare_drift_total") == 0


async def test_a_card_that_comes_back_has_its_own_ids_again(village: Village, cards: Cards) -> None:
    cards.are(zpu0=0, zpu1=1, zpu2=2)
    async with village.kubelet() as kubelet:
        for turn, minors in enumerate(({"zpu0": 0, "zpu1": 1}, {"zpu1": 1}, {"zpu1": 1, "zpu2": 2}, {"zpu0": 0, "zpu1": 1})):
            cards.are(**minors)
            agent = await village.start_agent()
            last = max(minors.values())
            uid = village.pod(f"p{turn}", {MEMORY: 4})
            village.bind(f"p{turn}", last, units=4)
            await village.settled(f"p{turn}")
            assert kubelet.admitted[uid].devices("c0") == [f"/dev/zpu{last}"], kubelet.rejected
            assert kubelet.admitted[uid].ids["c0"][MEMORY][0].startswith(f"{last}-")
            agent.kill()
