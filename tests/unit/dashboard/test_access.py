"""Who may read the dashboard."""

from pathlib import Path

import pytest

from accelshare.dashboard.access import AccessError, HostNames, TokenFile, is_loopback
from accelshare.dashboard.serving import DashboardSettings

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:12348", "127.0.0.1:1", "[::1]:12348", "10.1.2.3", "LOCALHOST:8", "[fd00::1]"]
)
def test_addresses_and_localhost_cannot_be_pointed_elsewhere(host: str) -> None:
    assert HostNames().allows(host)


@pytest.mark.parametrize(
    "host", ["", "evil.example:12348", "127.0.0.1.evil.example", "localhost.evil.example", "[evil]", "cards.corp"]
)
def test_a_name_of_another_site_is_refused(host: str) -> None:
    """DNS rebinding: the browser thinks that we are that site, and lets its page read our answers."""
    assert not HostNames().allows(host)
    assert HostNames(["Cards.corp"]).allows("cards.CORP:443")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("::", False),
    ],
)
def test_only_loopback_is_served_without_a_token(host: str, loopback: bool, tmp_path: Path) -> None:
    assert is_loopback(host) is loopback
    settings = DashboardSettings(host, 1)
    if loopback:
        settings.check()
    else:
        with pytest.raises(AccessError, match="token file"):
            settings.check()
    DashboardSettings(host, 1, token_file=tmp_path / "token").check()
    DashboardSettings(host, 1, api_server_users=True).check()


async def test_a_token_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    tokens = TokenFile(file)
    assert await tokens.allows(TOKEN)
    for wrong in ("", TOKEN[:-1], f"{TOKEN}0", "é" * 16):
        assert not await tokens.allows(wrong)
    file.write_text("fedcba9876543210fedcba")
    assert not await tokens.allows(TOKEN)
    assert await tokens.allows("fedcba9876543210fedcba")
    file.write_text("")
    assert await tokens.allows("fedcba9876543210fedcba"), "a broken file keeps the last token"


@pytest.mark.parametrize("content", ["", "short", "ä" * 40, f"{TOKEN}\n{TOKEN}"])
def test_a_token_that_is_none_is_refused_at_the_start(content: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(AccessError, match="16"):
        TokenFile(file)
