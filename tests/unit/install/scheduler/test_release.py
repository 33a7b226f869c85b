"""Which configuration each version reads."""

import re

import pytest

from accelshare.install.errors import NotUnderstood
from accelshare.install.scheduler.release import POLICY, configurations, dialect, parse


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ("1.18", ["v1alpha2"]),
        ("1.19", ["v1beta1"]),
        ("1.21", ["v1beta1"]),
        ("1.22", ["v1beta1", "v1beta2"]),
        ("1.23", ["v1beta2", "v1beta3"]),
        ("1.24", ["v1beta2", "v1beta3"]),
        ("1.25", ["v1beta2", "v1beta3", "v1"]),
        ("1.27", ["v1beta2", "v1beta3", "v1"]),
        ("1.28", ["v1beta3", "v1"]),
        ("1.29", ["v1"]),
        ("1.36", ["v1"]),
    ],
)
def test_the_table_is_kubernetes_own(version: str, accepted: list[str]) -> None:
    assert [found.api_version for found in configurations(parse(version))] == [
        f"kubescheduler.config.k8s.io/{name}" for name in accepted
    ]


@pytest.mark.parametrize("text", ["1.36", "v1.36.4", "v1.20.4-aliyun.1", "1.27.3+rke2r1", " v1.36.4 "])
def test_versions_are_read_as_people_and_clusters_write_them(text: str) -> None:
    assert parse(text).minor in (20, 27, 36)


@pytest.mark.parametrize("text", ["", "36", "2.1", "latest", "1.x"])
def test_what_is_no_version_is_refused_with_a_message(text: str) -> None:
    with pytest.raises(NotUnderstood):
        parse(text)


def test_a_policy_is_the_default_below_122_and_is_gone_from_123_on() -> None:
    assert dialect(parse("1.21")) == POLICY
    assert dialect(parse("1.23")).kind == "configuration"
    with pytest.raises(NotUnderstood, match="has no Policy"):
        dialect(parse("1.23"), "policy")


def test_122_gets_no_new_policy_because_any_policy_ends_it_at_v2() -> None:
    assert dialect(parse("1.22")).api_version == "kubescheduler.config.k8s.io/v1beta2"
    with pytest.raises(NotUnderstood, match=r"v1\.22.*Policy.*--v=2"):
        dialect(parse("1.22"), "policy")


def test_spellings_that_strict_decoding_tells_apart() -> None:
    assert (POLICY.https_key, POLICY.timeout_in_nanoseconds) == ("enableHttps", True)
    old, new = dialect(parse("1.18"), "configuration"), dialect(parse("1.19"), "configuration")
    assert (old.https_key, old.timeout_in_nanoseconds) == ("enableHttps", True)
    assert (new.https_key, new.timeout_in_nanoseconds) == ("enableHTTPS", False)


@pytest.mark.parametrize("version", ["1.10", "1.17", "v1.17.17", "1.37", "v1.41.0-vendor.1"])
def test_versions_whose_sources_were_not_read_are_refused(version: str) -> None:
    with pytest.raises(NotUnderstood, match=rf"{re.escape(version)} .*1\.18 to 1\.36"):
        parse(version)


@pytest.mark.parametrize("minor", range(18, 37))
def test_every_supported_version_has_a_configuration(minor: int) -> None:
    assert dialect(parse(f"1.{minor}"), "configuration") in configurations(parse(f"1.{minor}"))
