"""The fake API server answers as the real one: every case runs on both.

A case is a function in `api_cases/` that takes a raw HTTP client; its name is the promise. When the two servers differ, the
in-memory one is wrong.
"""

import asyncio
import importlib
import inspect
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from accelshare.testing.api_server import FakeApiServer
from tests.contract.api_cases import TOPICS
from tests.contract.api_cases.client import Api

Case = Callable[[Api], None]


def _cases() -> Iterator[Any]:
    for topic in TOPICS:
        module = importlib.import_module(f"tests.contract.api_cases.{topic}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and [*inspect.signature(function).parameters] == ["api"]:
                yield pytest.param(function, id=f"{topic}-{name}")


@pytest.fixture(scope="module")
def memory_server() -> Iterator[FakeApiServer]:
    """A server in a loop of its own, because the cases block."""
    started, loop = threading.Event(), asyncio.new_event_loop()
    server, stopped = FakeApiServer(token="secret"), asyncio.Event()

    async def serve() -> None:
        async with server:
            started.set()
            await stopped.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(timeout=120)
    yield server
    loop.call_soon_threadsafe(stopped.set)
    thread.join(timeout=120)
    loop.close()


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.real)])
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    if request.param == "memory":
        server = request.getfixturevalue("memory_server")
        found = Api(server.url, server.token, compact=server.store.compact)
    else:
        plane = request.getfixturevalue("control_plane")
        tls = ssl.create_default_context(cafile=str(plane.ca_file))
        found = Api(plane.url, plane.token, tls, compact=plane.compact)
    yield found
    found.clean()


@pytest.mark.parametrize("case", [*_cases()])
def test_api_server(case: Case, api: Api) -> None:
    case(api)
