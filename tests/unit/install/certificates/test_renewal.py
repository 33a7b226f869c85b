"""When certificates are due, and a CA's whole life: at every moment both sides trust each other."""

import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from accelshare.install.certificates import renewal, x509
from accelshare.install.certificates.renewal import Lifetimes, Subject, Trust
from accelshare.install.certificates.x509 import Pair
from accelshare.install.errors import CertificateError

START = datetime(2026, 1, 1, tzinfo=UTC)
LIVES = Lifetimes(ca=timedelta(days=400), leaf=timedelta(days=90))
SERVER = Subject("server", "extender", frozenset({"extender", "10.96.0.10"}))
CLIENT = Subject("client", "kube-scheduler")
LATE = 28  # days; a third of a leaf's life is 30


def day(number: float) -> datetime:
    return START + timedelta(days=number)


def new_trust(at: datetime = START) -> Trust:
    return renewal.trust(None, [], now=at, lifetimes=LIVES)


def new_leaf(by: Trust, subject: Subject = SERVER, at: datetime = START) -> Pair:
    return renewal.leaf(None, subject, by, now=at, lifetimes=LIVES)


def test_a_certificate_is_due_with_a_third_of_its_life_left() -> None:
    pair = new_leaf(new_trust())
    assert not renewal.due(pair.certificate, day(59.9))
    assert renewal.due(pair.certificate, day(60.1))
    assert renewal.due(pair.certificate, day(1000))


def test_a_leaf_that_will_do_stays() -> None:
    trust = new_trust()
    pair = new_leaf(trust)
    assert renewal.leaf(pair, SERVER, trust, now=day(30), lifetimes=LIVES) is pair
    fewer = replace(SERVER, names=frozenset({"extender"}))
    assert renewal.leaf(pair, fewer, trust, now=day(30), lifetimes=LIVES) is pair


@pytest.mark.parametrize(
    ("what", "subject", "at"),
    [
        ("it is due", SERVER, 61),
        ("it has expired", SERVER, 91),
        ("it was made by a clock that was ahead", SERVER, -1),
        ("a name is missing", replace(SERVER, names=SERVER.names | {"10.96.0.11"}), 1),
    ],
)
def test_a_leaf_is_made_anew_if(what: str, subject: Subject, at: float) -> None:
    trust = new_trust()
    pair = new_leaf(trust)
    renewed = renewal.leaf(pair, subject, trust, now=day(at), lifetimes=LIVES)
    assert renewed.key != pair.key, what
    assert x509.facts(renewed.certificate).names >= subject.names


def test_a_leaf_of_a_ca_that_nobody_knows_is_made_anew() -> None:
    stranger = new_leaf(new_trust())
    assert renewal.leaf(stranger, SERVER, new_trust(), now=START, lifetimes=LIVES) is not stranger


def test_a_leaf_with_somebody_elses_key_is_made_anew() -> None:
    trust = new_trust()
    mixed = Pair(new_leaf(trust).certificate, new_leaf(trust).key)
    with pytest.raises(CertificateError, match="does not belong"):
        x509.check(mixed)
    assert renewal.leaf(mixed, SERVER, trust, now=START, lifetimes=LIVES) is not mixed


def test_a_leaf_never_outlives_its_ca() -> None:
    trust = new_trust()
    pair = new_leaf(trust, at=day(380))
    assert x509.facts(pair.certificate).until == x509.facts(trust.current.certificate).until


def test_a_ca_that_has_expired_is_replaced_at_once() -> None:
    trust = new_trust()
    assert renewal.trust(trust, [], now=day(399), lifetimes=LIVES).current == trust.current
    fresh = renewal.trust(trust, [], now=day(401), lifetimes=LIVES)
    assert fresh.current != trust.current
    assert fresh.previous is None


def test_a_ca_of_a_clock_that_was_ahead_is_replaced_at_once() -> None:
    """Nobody accepts it before its time comes. Clocks that differ by minutes are no reason."""
    trust = new_trust()
    assert renewal.trust(trust, [], now=day(-4 / 1440), lifetimes=LIVES) == trust
    assert renewal.trust(trust, [], now=day(-1), lifetimes=LIVES).current != trust.current


def test_a_ca_must_last_long_enough_for_its_leaves() -> None:
    with pytest.raises(CertificateError, match="at least 4 times"):
        Lifetimes(ca=timedelta(days=100), leaf=timedelta(days=90))


def test_both_sides_trust_each_other_through_a_cas_whole_life_and_the_next() -> None:
    """Every second day for three years. A side may be slow: it may have what was published up to LATE ago, or anything since."""
    trust = new_trust()
    leaves = {"server": new_leaf(trust), "client": new_leaf(trust, CLIENT)}
    published = [(frozenset(leaves.values()), trust.bundle)]
    seen_cas, changes = {trust.current.certificate}, 0
    for number in range(2, 1100, 2):
        after = renewal.trust(trust, [leaf.certificate for leaf in leaves.values()], now=day(number), lifetimes=LIVES)
        changes += after != trust
        trust = after
        seen_cas.add(trust.current.certificate)
        for role, subject in (("server", SERVER), ("client", CLIENT)):
            leaves[role] = renewal.leaf(leaves[role], subject, trust, now=day(number), lifetimes=LIVES)
        published = [*published[-LATE // 2 :], (frozenset(leaves.values()), trust.bundle)]
        for pair in {pair for pairs, _ in published for pair in pairs}:
            assert x509.facts(pair.certificate).until > day(number)
            for bundle in {bundle for _, bundle in published}:
                assert any(x509.signed_by(pair.certificate, each) for each in split(bundle)), f"day {number}"
        assert len(split(trust.bundle)) <= 2
    assert len(seen_cas) >= 4
    assert changes < 20  # and not every day


def split(bundle: str) -> list[str]:
    end = "-----END CERTIFICATE-----\n"
    return [part + end for part in bundle.split(end)[:-1]]


def test_openssl_reads_what_is_made() -> None:
    trust = new_trust(datetime.now(UTC))
    context = ssl.create_default_context(cadata=trust.bundle)
    assert len(context.get_ca_certs()) == 1
    facts = x509.facts(new_leaf(trust, at=datetime.now(UTC)).certificate)
    assert (facts.name, facts.names) == ("extender", SERVER.names)


def test_what_is_no_certificate_is_refused_with_a_message() -> None:
    with pytest.raises(CertificateError, match="the certificate cannot be read"):
        x509.facts("half a certificate")
    with pytest.raises(CertificateError, match="the key cannot be read"):
        x509.check(Pair(new_trust().current.certificate, "half a key"))


def test_a_key_is_not_printed() -> None:
    pair = x509.authority("x", now=START, life=timedelta(days=1))
    assert "PRIVATE" not in repr(pair)
    assert "PRIVATE" not in repr(Trust(pair))
