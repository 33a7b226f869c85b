"""Whatever objects contain, the doctor answers: objects are read or refused by one decoder, and checks do not raise."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelshare.doctor.checks import examine
from accelshare.doctor.findings import as_json, as_text
from accelshare.doctor.objects import LiveLease, LiveNode, LivePod, time_of
from accelshare.doctor.reading import series_of
from accelshare.install.preflight.snapshot import Service, Workload
from accelshare.wire.decoding import Decoder, UnreadableError
from tests.unit.doctor.builders import Objects, asking, lease

VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
TREES = st.recursive(
    VALUES | st.sampled_from(["9" * 5000, "containerd://" + "9" * 5000 + ".1", "\x1b[2J", "0001-01-01T00:00:00+23:59"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=5,
)
KINDS: dict[str, type[Any]] = {
    "nodes": LiveNode,
    "pods": LivePod,
    "services": Service,
    "deployments": Workload,
    "daemon_sets": Workload,
    "leases": LiveLease,
}


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in paths_of(each, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_change_of_any_object_gives_findings_or_an_unreadable_object(data: st.DataObject) -> None:
    objects = Objects()
    objects.pods += [asking("waits"), asking("train", on="n1")]
    for _ in range(data.draw(st.integers(1, 3))):
        part = data.draw(st.sampled_from(sorted(KINDS)))
        chosen = data.draw(st.sampled_from(getattr(objects, part)))
        places = [path for path in paths_of(chosen) if path]
        if places:
            put(chosen, data.draw(st.sampled_from(places)), data.draw(TREES))
    for part, kind in KINDS.items():
        readable = []
        for each in getattr(objects, part):
            try:
                Decoder(kind).decode(json.dumps(each))
            except UnreadableError:
                continue
            readable.append(each)
        setattr(objects, part, readable)
    findings = examine(objects.live())
    text = as_text(findings, {"a": "\x1b"}, "all")
    assert all(line.isprintable() for line in text.splitlines())
    assert len(json.loads(as_json(findings, {}))["findings"]) == len(findings)


@given(st.text(max_size=70) | st.sampled_from(["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]))
def test_any_text_is_a_time_or_none(text: str) -> None:
    time = time_of(text)
    assert time is None or time.tzinfo is not None
    raw = lease("n1", renewed=text, written="2026-05-01T11:00:00Z")
    assert isinstance(Decoder(LiveLease).decode(json.dumps(raw)).skew_s, float | None)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_page_of_metrics(page: bytes) -> None:
    assert isinstance(series_of(page), dict)


@pytest.mark.parametrize("value", ["0", "1e", "nan", "-", "1.0"])
def test_only_samples_of_our_series_are_kept(value: str) -> None:
    page = f'# HELP x\nother 1\naccelshare_watch_up{{what="pods"}} {value}\n'.encode()
    assert series_of(page) == ({'accelshare_watch_up{what="pods"}': float(value)} if value in ("0", "1.0") else {})
