"""Any profile file gives a profile or a list of problems: never a traceback, and never a delay."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from accelshare.vendors.command import as_json, as_table, as_toml
from accelshare.vendors.layers import ProfileFile, survey
from accelshare.vendors.validation import keys as profile_keys
from accelshare.vendors.validation import parse, sections, to_data
from tests.unit.vendors.builders import COMPLETE, SMALLEST

PATTERNS = ["a{99999999999999}", "(" * 200, "(?P<index>" * 40, "[[a]", "(?P<id>x)(?i)", "(?P<id>(a+)+)$", "\\", "(?P<index>\\d+)"]
PLACEHOLDERS = ["{index}", "{index!r}", "{index:>99999999999}", "{", "{}", "{0}", "{id.__class__}", "{node}", "/dev/x{index}"]
PATHS = ["/accelshare", "/metrics", "/healthz/", "/..", "//", "/a%2e", "/a/b", "/gpushare-scheduler", "/ok"]
numbers = st.integers(-(2**70), 2**70) | st.sampled_from([10**400, -(10**400), 2**63]) | st.floats()
words = st.text(max_size=8) | st.sampled_from([*PATTERNS, *PLACEHOLDERS, *PATHS, "\x1b[2J\n", "x" * 5000])
scalars = numbers | st.booleans() | words | st.just(date(2026, 1, 1)) | st.just(datetime(2026, 1, 1, tzinfo=UTC))


@dataclass(frozen=True)
class Made:
    """A value that is too large to be printed when an example fails: so many tables or lists within each other, or digits."""

    what: str
    size: int

    def value(self) -> Any:
        if self.what == "digits":
            return 16**self.size
        value: Any = {} if self.what == "tables" else []
        for _ in range(self.size):
            value = {"a": value} if self.what == "tables" else [value]
        return value


def built(tree: Any) -> Any:
    if isinstance(tree, Made):
        return tree.value()
    if isinstance(tree, dict):
        return {key: built(value) for key, value in tree.items()}
    return [built(value) for value in tree] if isinstance(tree, list) else tree


keys = st.sampled_from([*profile_keys(), *sections(), "extends.x", "nothing", "driver.static.cards.x"]).flatmap(
    lambda key: st.just(key) | st.text(max_size=4).map(lambda word: f"{key}.{word}")
)
names = st.text(max_size=6) | st.sampled_from(
    ["index", "id", "count", "env", "requires", "pattern", "at_least", "command", "a.b"]
)
trees = st.recursive(
    scalars | st.builds(Made, st.sampled_from(["tables", "lists", "digits"]), st.sampled_from([2, 40, 5000])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


def graft(base: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    data = table = dict(base)
    *path, last = key.split(".")
    for name in path:
        under = table.get(name)
        table[name] = table = dict(under) if isinstance(under, dict) else {}
    table[last] = value
    return data


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([COMPLETE, SMALLEST, {}, {"extends": "acme"}]), st.lists(st.tuples(keys, trees), max_size=4))
@example(COMPLETE, [("http.prefix", "/accelshare")])
@example(COMPLETE, [("unit.mib", {"GiB": 10**400})])
@example(SMALLEST, [("driver.timeout_s", Made("digits", 5000))])
@example(COMPLETE, [("driver.static.pattern", "a{99999999999999}")])
@example({"extends": "acme"}, [("container.env", Made("tables", 5000))])
@example(COMPLETE, [("container.env.A", Made("lists", 5000))])
def test_any_tree_is_a_profile_or_a_list_of_problems(base: dict[str, Any], changes: list[tuple[str, Any]]) -> None:
    data: dict[str, Any] = dict(base)
    for key, value in changes:
        data = graft(data, key, built(value))
    found = survey([[ProfileFile("acme.toml", COMPLETE)], [ProfileFile("own.toml", data)]])
    for problem in found.problems:
        assert str(problem).isprintable()
        assert len(str(problem)) < 2000
    assert found.problems or len(found.profiles) >= 1
    if not found.problems:
        for profile in found.profiles:
            assert parse(to_data(profile), file="again") == profile
            assert as_toml(profile)
            assert as_json(profile)
        assert as_table(found.profiles)
