"""Who may read the dashboard."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from accelshare.dashboard.access import (
    MOST_REVIEWS,
    AccessError,
    ApiServerUsers,
    HostNames,
    SharedToken,
    UncheckedError,
    is_loopback,
)
from accelshare.dashboard.routes import DashboardRoutes
from accelshare.dashboard.serving import DashboardSettings
from accelshare.dashboard.updates import Updates
from accelshare.http.messages import HttpRequest
from accelshare.kube.errors import Unreachable

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
    tokens = SharedToken(file)
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
        SharedToken(file)


class Reviewer:
    """The API server: it knows every token that begins with `good`."""

    def __init__(self) -> None:
        self.answers = True
        self.at_once = 0
        self.most_at_once = 0

    async def request(self, _method: str, path: str, *, body: bytes) -> bytes:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if not self.answers:
            raise Unreachable("it does not answer")
        if not path.endswith("tokenreviews"):
            return b'{"status": {"allowed": true}}'
        token = json.loads(body)["spec"]["token"]
        return json.dumps({"status": {"authenticated": token.startswith("good"), "user": {"username": token}}}).encode()


async def test_readers_that_come_together_wait_for_their_reviews() -> None:
    """As browsers do that were connected to a process that has ended."""
    reviewer = Reviewer()
    users = ApiServerUsers(cast("Any", reviewer))
    tokens = [*(f"good-{number}" for number in range(3 * MOST_REVIEWS)), "bad", "good-0"]
    assert await asyncio.gather(*map(users.allows, tokens)) == [token != "bad" for token in tokens]
    assert reviewer.most_at_once <= MOST_REVIEWS


async def test_a_token_that_cannot_be_checked_now_is_not_called_wrong() -> None:
    """At a 401 the page asks its reader for another token; later the same one is accepted."""
    reviewer = Reviewer()
    users = ApiServerUsers(cast("Any", reviewer))
    routes = DashboardRoutes(Updates("g"), cast("Any", None), HostNames(), users)
    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer good")]

    async def status() -> int:
        answer = routes.handle(HttpRequest("GET", "/api/snapshot", b"", headers))
        return (await answer).status if not hasattr(answer, "status") else answer.status

    reviewer.answers = False
    assert await status() == 503
    with pytest.raises(UncheckedError):
        await users.allows("good")
    reviewer.answers = True
    assert await users.allows("good")
