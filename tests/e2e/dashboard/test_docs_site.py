"""The docs site in a real browser: its search finds pages in both languages, and nothing comes from another host."""

import functools
import http.server
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import site
from tests.e2e.dashboard.browser import Browser

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]
MKDOCS = Path(sys.prefix) / "site/bin/mkdocs"
FOUND = '[...document.querySelectorAll(".md-search-result__link")].map((link) => new URL(link.href).pathname)'


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the built site is served."""
    if not MKDOCS.exists():
        pytest.skip("MkDocs is not installed: make site installs it")
    built = site.build(MKDOCS, tmp_path_factory.mktemp("site"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(built)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("page", "words", "found"),
    [
        ("index.html", "uninstall", "/docs/how-to/install.html"),
        ("index.html", "UnexpectedAdmissionError", "/docs/how-to/troubleshooting.html"),
        ("README.zh.html", "卸载", "/docs/zh/how-to/install.html"),
        ("README.zh.html", "故障排查", "/docs/zh/how-to/troubleshooting.html"),
    ],
)
async def test_the_search_knows_both_languages(browser: Browser, address: str, page: str, words: str, found: str) -> None:
    async with browser.tab() as tab:
        await tab.open(f"{address}/{page}")
        await tab.evaluate('document.querySelector("[data-md-component=search-query]").focus()')
        await tab.write(words)
        await tab.until(f"{FOUND}.slice(0, 10).includes({found!r})", f"{words} leads to {found}")
        assert [request for request in tab.requests if not request.startswith((address, "data:", "blob:"))] == []
        assert tab.errors == []
