"""docs/reference/chart.md has every value with its default, and no other, in both languages."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.render import CHART, ROOT
from tests.contract.test_docs import rows

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
PAGES = [ROOT / "docs/reference/chart.md", ROOT / "docs/zh/reference/chart.md"]
# The columns of the first and of the second table.
VENDORS = (("nvidia", "kunlun", "enflame", "stream"), ("amd", "intel", "mthreads", "ascend"))
# Values that are one thing, whatever is in them.
WHOLE = frozenset({"resources", "nodeSelector", "podDisruptionBudget", "seLinuxOptions", "dashboardLabels"})


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in WHOLE:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def shown(value: object) -> str:
    return "" if value == "" else f"`{value if isinstance(value, str) else json.dumps(value)}`"


def default(cell: str) -> str:
    return cell if cell.startswith("`") else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.parent.name)
def test_every_value_is_explained_with_its_default(page: Path) -> None:
    table = {
        cells[0].strip("`"): default(cells[-1]) for cells in rows(page.read_text()) if len(cells) == 3 and cells[0][0] == "`"
    }
    rest = {key: value for key, value in VALUES.items() if key != "vendors"}
    assert table == {name: shown(value) for name, value in flat(rest)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.parent.name)
def test_every_value_of_a_vendor_is_explained_with_its_default(page: Path) -> None:
    keys = {key for vendor in VALUES["vendors"].values() for key in vendor}
    assert {vendor for table in VENDORS for vendor in table} == set(VALUES["vendors"])
    found = [(cells[0].strip("`"), cells[2:]) for cells in rows(page.read_text()) if cells[0].strip("`") in keys]
    for place, vendors in enumerate(VENDORS):
        table = dict(found[place * len(keys) : (place + 1) * len(keys)])
        assert set(table) == keys
        for key, cells in table.items():
            assert [default(cell) for cell in cells] == [shown(VALUES["vendors"][name].get(key, "")) for name in vendors], key
