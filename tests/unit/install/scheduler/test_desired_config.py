"""Which desired configurations are valid."""

import pytest

from accelshare.install.errors import Clash
from accelshare.install.scheduler.desired_config import DesiredConfig, TlsFiles, is_loopback, is_service_name, managed
from accelshare.vendors import catalog
from tests.unit.install.scheduler.builders import RESOURCES, TLS, URL


@pytest.mark.parametrize(
    ("url", "tls", "words"),
    [
        ("127.0.0.1:12345", None, "must look like https://"),
        ("ftp://127.0.0.1/", None, "must look like"),
        ("http://127.0.0.1:port/", None, "must look like"),
        ("http://127.0.0.1/a?b=c", None, "must look like"),
        ("https://127.0.0.1/a", None, "no CA file"),
        ("http://127.0.0.1/a", TLS, "is http"),
        ("https://127.0.0.1/a", TlsFiles("/ca", "/cert"), "needs its key"),
        ("https://127.0.0.1/a", TlsFiles("ca.crt"), "absolute path"),
    ],
)
def test_what_kube_scheduler_would_refuse_or_do_wrong_is_refused_here(url: str, tls: TlsFiles | None, words: str) -> None:
    with pytest.raises(Clash, match=words):
        DesiredConfig(url, RESOURCES, tls)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(Clash) as refused:
        DesiredConfig("x", (), None, weight=0, timeout_ms=0)
    assert len(str(refused.value).splitlines()) == 4


def test_memory_and_whole_cards_of_every_profile_are_managed() -> None:
    profiles = catalog.load()
    names = managed(profiles)
    assert len(names) == len(set(names))
    assert set(names) == {
        name for profile in profiles for name in (profile.resources.memory, profile.resources.whole) if name is not None
    }


@pytest.mark.parametrize(
    ("host", "is_one"), [("accelshare", True), ("a.b.svc", True), ("a.example.com", False), ("10.0.0.1", False)]
)
def test_names_that_only_the_cluster_knows(host: str, is_one: bool) -> None:
    assert is_service_name(host) is is_one


def test_loopback() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "::1")))
    assert not is_loopback("10.96.0.10")
    assert DesiredConfig(URL, RESOURCES).host == "127.0.0.1"
