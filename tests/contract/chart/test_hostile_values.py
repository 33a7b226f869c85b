"""Damaged values of the chart: helm refuses them with a message, or renders objects that can be read. The real helm."""

import json
from pathlib import Path
from random import Random

import pytest
import yaml

from deploy.render import CHART, HelmError
from tests.contract.chart.rendered_objects import objects, preset
from tests.fuzz.mutations import damaged_tree

CASES = 25  # helm takes a tenth of a second for each
VALUES = json.dumps(yaml.safe_load((CHART / "values.yaml").read_text())).encode()
# What a crash of helm or of its template engine looks like.
CRASHES = ("panic", "goroutine", "nil pointer", "runtime error", "interface conversion")


@pytest.mark.parametrize("number", range(CASES))
def test_damaged_values_are_refused_or_rendered(number: int, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_bytes(damaged_tree(Random(f"chart/{number}"), VALUES))
    refusal, made = "", []
    try:
        made = objects(*preset("gpushare"), f"--values={file}")
    except HelmError as error:
        refusal = str(error)
    assert [word for word in CRASHES if word in refusal] == []
    assert refusal or made
    assert all(thing["kind"] and thing["metadata"]["name"] for thing in made)
