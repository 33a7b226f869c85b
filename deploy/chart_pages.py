"""`make manifests`: writes the chart's README and the texts of its schema from docs/reference/chart.md.

Belongs here: reading the tables of that page, and writing them again elsewhere. Never: texts about values; those are the page's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[1]
CHART: Final = ROOT / "deploy" / "chart" / "accelshare"
PAGE: Final = ROOT / "docs" / "reference" / "chart.md"
README: Final = CHART / "README.md"
SCHEMA: Final = CHART / "values.schema.json"
_TO_DOCS: Final = "../../../docs/"  # from the chart's directory
_HEAD: Final = """# accelshare

{description}.

```console
$ helm install accelshare deploy/chart/accelshare --namespace kube-system --values deploy/chart/accelshare/presets/gpushare.yaml
```

[How to install, upgrade and uninstall]({docs}how-to/install.md) · [security model]({docs}explanation/security.md) ·
[all docs]({docs}README.md)

<!-- Made from docs/reference/chart.md by `make manifests`; change it there. -->

"""


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def plain(markdown: str) -> str:
    """Without links and marks, for a schema that editors show as text."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "")


def texts(page: str) -> tuple[dict[str, str], dict[str, str]]:
    """What the page says about each value: by its whole name, and of the values of a vendor by their own."""
    values: dict[str, str] = {}
    of_vendors: dict[str, str] = {}
    for line in page.splitlines():
        row = cells(line) if line.startswith("| `") else []
        if len(row) == 3 and row[1]:
            values[row[0].strip("`")] = plain(row[1])
        elif len(row) == 6 and row[1] and "." not in row[0]:
            of_vendors.setdefault(row[0].strip("`"), plain(row[1]))
    return values, of_vendors


def described(schema: dict[str, Any], values: Mapping[str, str], of_vendors: Mapping[str, str]) -> dict[str, Any]:
    """The schema with a description at every value that the page explains."""
    for name, text in values.items():
        place = schema
        for part in name.split("."):
            place = place["properties"][part]
        place["description"] = text
    vendors = schema["properties"]["vendors"]
    for vendor in (*vendors["properties"].values(), *vendors["patternProperties"].values()):
        for key, text in of_vendors.items():
            if key in vendor["properties"]:
                vendor["properties"][key]["description"] = text
    return schema


def readme(page: str, description: str) -> str:
    """The page's sections below its own head, with links that work from the chart's directory."""
    _, _, sections = page.partition("\n## ")

    def moved(link: re.Match[str]) -> str:
        target = link[1]
        if target.startswith(("http", "#")):
            return link[0]
        return f"]({_TO_DOCS}{target.removeprefix('../')})" if target.startswith("../") else f"]({_TO_DOCS}reference/{target})"

    body = re.sub(r"\]\(([^)]*)\)", moved, "## " + sections)
    return _HEAD.format(description=description, docs=_TO_DOCS) + body


def made() -> dict[Path, str]:
    """Every file that comes from the page, with its content."""
    page = PAGE.read_text()
    description = yaml.safe_load((CHART / "Chart.yaml").read_text())["description"]
    schema = described(json.loads(SCHEMA.read_text()), *texts(page))
    return {README: readme(page, description), SCHEMA: json.dumps(schema, indent=2, ensure_ascii=False) + "\n"}


def write() -> None:
    for path, text in made().items():
        path.write_text(text)
        print(path)


if __name__ == "__main__":
    write()
