"""A profile written out: complete, readable, and readable again."""

import json
import tomllib

import pytest

from accelshare.vendors.catalog import load
from accelshare.vendors.profile import Profile
from accelshare.vendors.rendering import as_json, as_table, as_toml
from accelshare.vendors.validation import parse
from tests.unit.vendors.builders import SMALLEST, profile

EVERY = (*load(), profile(), profile(title='quotes " and \\ and 昆仑'), parse(SMALLEST, file="tiny.toml"))


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.title)
def test_toml_written_out_and_read_again_is_the_same_profile(one: Profile) -> None:
    assert parse(tomllib.loads(as_toml(one)), file="again.toml") == one


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.title)
def test_json_written_out_and_read_again_is_the_same_profile(one: Profile) -> None:
    assert parse(json.loads(as_json(one)), file="again.json") == one


def test_a_value_in_doubt_is_marked_and_no_other() -> None:
    lines = as_toml(profile()).splitlines()
    marked = [line for line in lines if line.endswith("# unverified")]
    assert marked == [
        'count = "acme.example/zpu-count"  # unverified',
        "GiB = 1024  # unverified",
        'no-cards = "nothing here"  # unverified',
        'ACME_VISIBLE = "{index}"  # unverified',
    ]


def test_a_whole_table_in_doubt_is_marked_at_its_head_even_if_empty() -> None:
    text = as_toml(profile(container={"env": {}}, unverified=["container.env", "title"]))
    assert "[container.env]  # unverified" in text
    assert 'title = "Acme ZPU (zpushare)"  # unverified' in text


def test_the_table_has_a_row_per_profile_and_a_dash_for_nothing() -> None:
    assert as_table([profile(), parse(SMALLEST, file="tiny.toml")]).splitlines() == [
        "NAME  NOUN  MEMORY                WHOLE             URL PREFIX           TITLE",
        "acme  ZPU   acme.example/zpu-mem  acme.example/zpu  /zpushare-scheduler  Acme ZPU (zpushare)",
        "tiny  TPU   -                     tiny.example/tpu  -                    Tiny",
    ]
