"""`python -m demo`: the flags, the exit code, and an orderly end whatever happens."""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine
from typing import Any

BEGUN_S = time.perf_counter()
WHAT = "accelshare's main job on an embedded default: no cluster, no hardware, no root. Takes a few seconds, leaves nothing."


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description=WHAT)
    parser.add_argument("--keep", action="store_true", help="leave the API server and the extender running until Ctrl-C")
    options = parser.parse_args()

    # What is slow to load comes after the flags, so that --help does not wait for it.
    from accelshare.kube.errors import KubeError
    from accelshare.vendors.problems import VendorError
    from cluster.errors import ClusterError
    from demo.errors import DemoError
    from demo.page import Page
    from demo.story import tell

    page = Page.on(sys.stdout, os.environ)
    try:
        asyncio.run(_ended_by_sigterm_too(tell(page, keep=options.keep, begun_s=BEGUN_S)))
    except (DemoError, ClusterError, KubeError, VendorError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output has gone; nothing may be written there any more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        print("\ndemo: stopped, nothing is left running", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


async def _ended_by_sigterm_too(telling: Coroutine[Any, Any, None]) -> None:
    """Ctrl-C already ends a task in an orderly way; so shall a plain kill."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await telling


if __name__ == "__main__":
    sys.exit(main())
