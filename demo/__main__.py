"""`python -m demo`: parses the flags, runs the demo, and ends it cleanly on errors and signals."""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

STARTED_S = time.perf_counter()
WHAT = "accelshare's main job without a cluster, hardware or root. Takes a few seconds and leaves nothing behind."


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code. `arguments` default to those of the program."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=WHAT)
    parser.add_argument("--keep", action="store_true", help="keep API server, extender and agents running until Ctrl-C")
    parser.add_argument("--profiles", type=Path, metavar="DIR", help="play the vendors of your own profiles in this directory")
    options = parser.parse_args(arguments)

    # Slow imports come after the flags, so that --help is fast.
    from accelshare.kube.errors import KubeError
    from accelshare.vendors.problems import VendorError
    from cluster.errors import ClusterError
    from demo.output import DemoOutput
    from demo.run import run
    from demo.scenario import DemoError

    output = DemoOutput.on(sys.stdout, os.environ)
    try:
        asyncio.run(_cancelled_by_sigterm(run(output, keep=options.keep, started_s=STARTED_S, profiles=options.profiles)))
    except (DemoError, ClusterError, KubeError, VendorError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output is gone; nothing may be written to it any more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        print("\ndemo: stopped, nothing is left running", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


async def _cancelled_by_sigterm(work: Coroutine[Any, Any, None]) -> None:
    """Cancel the work on SIGTERM, as asyncio.run does on Ctrl-C."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await work


if __name__ == "__main__":
    sys.exit(main())
