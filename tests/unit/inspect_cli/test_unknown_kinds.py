"""Cards of a vendor without a known profile are reported."""

from accelshare.inspect_cli.cluster_reader import unknown_kinds
from accelshare.vendors.catalog import load
from accelshare.wire.inventory import CardEntry, KindEntry

ENTRY = KindEntry([CardEntry(0, 16)])


def test_kinds_without_a_profile_are_named_with_their_nodes() -> None:
    inventories = {"n1": {"acme": ENTRY, "nvidia": ENTRY}, "n2": {"acme": ENTRY}, "n3": {"nvidia": ENTRY}}
    (message,) = unknown_kinds(inventories, load(), "there is no ConfigMap")
    assert "profile acme" in message
    assert "n1, n2" in message
    assert "n3" not in message
    assert "--profiles" in message


def test_known_kinds_need_no_message() -> None:
    assert list(unknown_kinds({"n1": {"nvidia": ENTRY}}, load(), "there is no ConfigMap")) == []


def test_messages_stay_short() -> None:
    inventories = {f"n{number:03}": {"x" * 5000: ENTRY} for number in range(500)}
    (message,) = unknown_kinds(inventories, load(), "there is no ConfigMap")
    assert len(message) < 500
    assert "497 more" in message
