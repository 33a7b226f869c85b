"""The values, records and profiles of the migration pages are true; docs/test_migration.py runs their commands."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from accelshare.ledger.nouns import Ask
from accelshare.vendors import catalog, originals
from accelshare.wire import assignment
from tests.contract.docs.pages import commands

ROOT = Path(__file__).parents[2]
SYSTEMS = originals.load().systems
PAGES = {system.name: ROOT / system.page for system in SYSTEMS}


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: str(system.name))
def test_every_value_given_to_the_chart_is_one_of_its_own(system: originals.Original) -> None:
    values = yaml.safe_load((ROOT / "deploy/chart/accelshare/values.yaml").read_text())
    (install,) = [command.words for command in commands(system.page) if command.words.startswith("helm install")]
    given = dict(re.findall(r"--set(?:-string|-json)? '?([\w.]+)=(\S+?)'?(?= |$)", install))
    assert given[f"vendors.{system.profile}.enabled"] == "true"
    for path in given:
        place = values
        for word in path.split("."):
            assert word in place, f"{path} is no value of the chart"
            place = place[word]
    if "scheduler.replace" in given:
        (url,) = json.loads(given["scheduler.replace"])
        assert not system.urls or url in system.urls
    unit = given.get(f"vendors.{system.profile}.memoryUnit")
    assert unit is None or unit in catalog.load()[system.profile].unit.mib


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_a_record_written_by_hand_is_believed(page: Path) -> None:
    """Of a pod that asks for one slice or one whole card of that vendor."""
    profiles = {profile.name: profile for profile in catalog.load()}
    for record in re.findall(r"accelshare\.io/assignment='(.+?)'", page.read_text()):
        ((kind, (entry,)),) = json.loads(record).items()
        whole = entry.get("whole", False)
        ask = Ask(kind, cards=1, share=0 if whole else 4500, whole=whole)
        slices, problems = assignment.read({assignment.OURS: record}, (ask,), profiles)
        assert ([slice_.index for slice_ in slices], problems) == ([entry["index"]], ())


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_a_profile_to_lay_over_ours_is_one(page: Path, tmp_path: Path) -> None:
    for number, text in enumerate(re.findall(r"^```toml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)):
        (tmp_path / f"{number}.toml").write_text(text)
        profile = tomllib.loads(text)
        assert catalog.load([tmp_path])[profile["extends"]].annotations.index == profile["annotations"]["index"]
