"""The time that containerd waits for its NRI plugins, from its own metrics.

Belongs here: reading its metrics page; pure. Never: fetching it.
"""

import re
from typing import Final

from bench.node.results import Latency

_LINE: Final = re.compile(r"^containerd_nri_plugin_latency_seconds_(sum|count)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


def latencies(page: str, plugin: str) -> dict[str, Latency]:
    """What the plugin's calls have taken since containerd started, by operation."""
    found: dict[str, dict[str, float]] = {}
    for part, labels, value in _LINE.findall(page):
        fields = dict(_LABEL.findall(labels))
        if fields.get("plugin", "").endswith(plugin):  # containerd writes the index before the name
            found.setdefault(fields["operation"], {})[part] = float(value)
    return {name: Latency(name, int(parts["count"]), parts["sum"]) for name, parts in found.items()}


def between(before: dict[str, Latency], after: dict[str, Latency]) -> tuple[Latency, ...]:
    """What came to it meanwhile."""
    grown = []
    for name, now in after.items():
        then = before.get(name, Latency(name, 0, 0.0))
        if now.calls > then.calls:
            grown.append(Latency(name, now.calls - then.calls, now.total_s - then.total_s))
    return tuple(sorted(grown, key=lambda latency: latency.operation))
