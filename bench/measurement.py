"""Runs a measurement from the command line: errors and signals, the page, and which goals were met.

Belongs here: what `bench`, `bench.load` and `bench.node` do alike. Never: a measurement, a goal.
"""

import compileall
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

from accelshare.kube.errors import KubeError
from bench.goals import Verdict
from bench.progress import Progress
from cluster.errors import ClusterError

ROOT: Final = Path(__file__).parents[1]
ENDED_BY_SIGNAL: Final = 130

Results = TypeVar("Results")


def python_version() -> str:
    """The version, and whose build it is. One without profile-guided optimization, as pyenv makes it, takes a sixth more CPU than
    those of distributions and of the official image, on which ours is based.
    """
    build = "the distribution's or official image's build" if sys.base_prefix in ("/usr", "/usr/local") else "built by hand"
    return f"{platform.python_version()}, {build}"


def run(
    measure: Callable[[Progress], Results],
    *,
    document: Callable[[Results], str],
    verdicts: Callable[[Results], Iterable[Verdict]],
    page: Path | None,
) -> int:
    """Measure and print the page, and write it to `page` if there is one.

    Returns 0 after measuring, also if goals were missed; 1 with an error if it could not measure; 130 if interrupted.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job begins with it ignored
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # so that both signals clean up
    # What is measured starts with bytecode, as in the image, whatever the shell says.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(ROOT / "src", quiet=2)
    progress = Progress()
    try:
        results = measure(progress)
    except (ClusterError, KubeError, RuntimeError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        progress.say("stopped")
        return ENDED_BY_SIGNAL
    text = document(results)
    print(f"\n{text}")
    for verdict in verdicts(results):
        progress.say(f"{'met' if verdict.met else 'NOT MET'}: {verdict.goal}: {verdict.measured}")
    if page is not None:
        page.write_text(text)
        progress.say(f"written to {page.relative_to(ROOT)}")
    return 0
