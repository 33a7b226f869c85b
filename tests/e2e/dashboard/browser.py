"""A real Chromium without a window, driven by its DevTools protocol over a WebSocket.

Belongs here: starting it, tabs, keys, screenshots, what a page did wrong. Never: the dashboard.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp

from cluster.process import Process
from cluster.waiting import wait_until, wait_until_async

LIMIT_S = 120.0
MOST_BYTES = 256 << 20  # of one message: a screenshot
FLAGS = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    # No name but localhost is looked up, so that a page that asks another host cannot pass.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
)
# Runs before the page's own code in every document.
OBSERVE = """
window.observed = { violations: [], hacked: false };
document.addEventListener("securitypolicyviolation", (event) => {
  observed.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
window.alert = () => { observed.hacked = true; };
"""
# Keys that move the focus or act: name → (code, key code, text).
KEYS = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "/": ("Slash", 191, "/"),
}


class Browser:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}
        self._reading = asyncio.create_task(self._read())

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        async for message in self._socket:
            content = json.loads(message.data)
            if "id" in content:
                answer = self._answers.pop(content["id"])
                if not answer.done():
                    answer.set_result(content)
            elif (tab := self._tabs.get(content.get("sessionId", ""))) is not None:
                tab.observe(content["method"], content["params"])

    async def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json(
            {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        )
        content = await asyncio.wait_for(answer, LIMIT_S)
        assert "error" not in content, (method, content["error"])
        result: dict[str, Any] = content["result"]
        return result

    @contextlib.asynccontextmanager
    async def tab(
        self, *, language: str = "en-US", width: int = 1280, height: int = 900, dark: bool = False
    ) -> "AsyncIterator[Tab]":
        """An empty tab with storage of its own."""
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        target = (await self.call("Target.createTarget", url="about:blank", browserContextId=context))["targetId"]
        session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        tab = self._tabs[session] = Tab(self, session)
        try:
            for domain in ("Page", "Runtime", "Log", "Network"):
                await tab.call(f"{domain}.enable")
            await tab.call("Page.addScriptToEvaluateOnNewDocument", source=OBSERVE)
            await tab.call("Network.setUserAgentOverride", userAgent="accelshare-test", acceptLanguage=language)
            await tab.resize(width, height)
            scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
            await tab.call("Emulation.setEmulatedMedia", features=scheme)
            yield tab
        finally:
            del self._tabs[session]
            await self.call("Target.disposeBrowserContext", browserContextId=context)


class Tab:
    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.requests: list[str] = []
        self.errors: list[str] = []

    def observe(self, event: str, params: dict[str, Any]) -> None:
        match event:
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description", details["text"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.errors.append(f"{params['entry']['source']}: {params['entry']['text']}")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        return await self._browser.call(method, self._session, **params)

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        await self.until('document.readyState === "complete"', f"{url} is loaded")

    async def evaluate(self, expression: str) -> Any:
        """The value of this JavaScript in the page."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, (expression, result["exceptionDetails"])
        return result["result"].get("value")

    async def until(self, expression: str, what: str) -> Any:
        """The first true value of this JavaScript."""

        async def value() -> Any:
            return await self.evaluate(expression)

        return await wait_until_async(value, what, LIMIT_S, 0.05, evidence=lambda: "\n".join(self.errors))

    async def press(self, key: str, *, shift: bool = False) -> None:
        code, number, text = KEYS[key]
        common = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": 8 if shift else 0}
        await self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def write(self, text: str) -> None:
        """Into what has the focus."""
        await self.call("Input.insertText", text=text)

    async def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    async def screenshot(self) -> bytes:
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False))["data"])

    async def accessible(self) -> list[tuple[str, str]]:
        """Role and name of everything that a screen reader finds."""
        await self.call("Accessibility.enable")
        nodes = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        shown = [node for node in nodes if not node["ignored"]]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in shown]


@contextlib.contextmanager
def start_chromium(program: Path, directory: Path) -> Iterator[str]:
    """The address of its protocol."""
    profile = directory / "profile"
    # Chromium's sandbox does not work for root, and the only page that it opens here is ours.
    sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
    process = Process("chromium", [program, *FLAGS, *sandbox, f"--user-data-dir={profile}"], directory / "chromium.log")
    try:
        port_file = profile / "DevToolsActivePort"

        def address() -> str:
            assert process.running, process.last_lines()
            lines = port_file.read_text().splitlines() if port_file.exists() else []
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}" if len(lines) == 2 else ""

        yield wait_until(address, "Chromium listens", LIMIT_S, evidence=process.last_lines)
    finally:
        process.stop()


@contextlib.asynccontextmanager
async def open_browser(address: str) -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=MOST_BYTES) as socket:
        browser = Browser(socket)
        try:
            yield browser
        finally:
            await browser.close()
