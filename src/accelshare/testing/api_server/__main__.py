"""`python -m accelshare.testing.api_server`: runs a fake API server in the foreground, until Ctrl-C or SIGTERM."""

import argparse
import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

from accelshare.testing.api_server.server import FakeApiServer


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m accelshare.testing.api_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; by default a free one")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig that leads to the server")
    parser.add_argument("--token", default="", help="bearer token that clients must send; by default none")
    options = parser.parse_args(arguments)
    asyncio.run(_serve(options.port, options.kubeconfig, options.token))


async def _serve(port: int, kubeconfig: Path | None, token: str) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with FakeApiServer(port=port, token=token) as api:
        if kubeconfig is not None:
            api.write_kubeconfig(kubeconfig)
        print(api.url, flush=True)
        await stopped.wait()


if __name__ == "__main__":
    main()
