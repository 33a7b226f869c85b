"""What the chart says about itself is what docs/reference/chart.md says."""

import json
from collections.abc import Iterator
from typing import Any

from deploy.chart_pages import SCHEMA, made
from tests.contract.chart.test_values_page import VALUES, flat


def test_readme_and_schema_are_current() -> None:
    """`make manifests` writes them anew."""
    assert [path.name for path, text in made().items() if path.read_text() != text] == []


def undescribed(schema: dict[str, Any]) -> Iterator[str]:
    for name, _ in flat({key: value for key, value in VALUES.items() if key != "vendors"}):
        place = schema
        for part in name.split("."):
            place = place["properties"][part]
        if not place.get("description"):
            yield name
    for vendor, content in schema["properties"]["vendors"]["properties"].items():
        yield from (f"vendors.{vendor}.{key}" for key, value in content["properties"].items() if not value.get("description"))


def test_every_value_has_a_description_in_the_schema() -> None:
    """Editors and ArtifactHub show it."""
    assert list(undescribed(json.loads(SCHEMA.read_text()))) == []
