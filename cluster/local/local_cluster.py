"""The local cluster: bring it up or find it running, use it, break parts of it, take it down.

    with LocalCluster.up() as local:
        local.kubectl("get", "nodes")

It outlives the process that started it, unless that process leaves the `with` block. A cluster that was up before is used
as it is and stays up.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cluster import audit
from cluster.cache import cache_directory
from cluster.components import extender_entry
from cluster.errors import ClusterError, KubectlError
from cluster.local import bring_up, devices, scheduler, teardown
from cluster.local.configuration import Nri
from cluster.local.conflicts import refuse_conflicts, refuse_other_systems
from cluster.local.daemon import Daemon
from cluster.local.journal import Journal
from cluster.local.layout import MOST_NODES, TEST_IMAGE, Layout
from cluster.local.local_node import LocalNode

_DAEMONS: Final = ("namespace", "containerd", "kubelet", "kube-proxy")
_KUBECTL_LIMIT_S: Final = 600.0


class LocalCluster(LocalNode):
    """A running cluster, and the means to use it as its administrator. It is its first node too, which is this machine.

    What listens on 127.0.0.1 or on the first node's address is reached by kube-scheduler and by tests alike.
    """

    test_image: Final = TEST_IMAGE  # busybox, for pods that pull IfNotPresent or Never

    def __init__(self, layout: Layout, *, owned: bool) -> None:
        super().__init__(layout)
        self._owned = owned  # by the `with` block
        self.kubeconfig = layout.kubeconfig
        self.bin = layout.bin  # for PATH
        self.audit_log = audit.log_file(layout.audit)  # there if the cluster was started with an audit
        self.further_nodes = [LocalNode(node) for node in _further_nodes(layout)]
        self.nodes: list[LocalNode] = [self, *self.further_nodes]

    @classmethod
    def up(
        cls,
        say: Callable[[str], None] = print,
        *,
        fake_cards: bool = False,
        nri: Nri = "validated",
        audited: bool = False,
        nodes: int = 1,
    ) -> Self:
        """Build what is missing, bring it up, and return when it takes pods; one that is up already is returned as it is.

        `audited`: its API server writes down what ServiceAccounts ask for. `nodes`: so many of them, or more if it is up already.
        """
        refuse_other_systems()
        if not 1 <= nodes <= MOST_NODES:
            raise ClusterError(f"the local cluster cannot have {nodes} nodes; it has 1 to {MOST_NODES}")
        layout = Layout()
        programs = bring_up.provide(say)
        with _alone():
            if cls._is_up(layout):
                found = cls(layout, owned=False)
                if len(found.nodes) < nodes:
                    raise ClusterError(f"a local cluster with {len(found.nodes)} of {nodes} nodes is up; `make down` first")
                say(f"it is up already, files in {layout.state}")
                return found
            if teardown.anything_left(layout):
                say(f"removing what an earlier start left in {layout.state}")
                teardown.tear_down(layout)
            refuse_conflicts(nodes)
            try:
                bring_up.bring_up(layout, programs, say, fake_cards=fake_cards, nri=nri, audited=audited, nodes=nodes)
            except ClusterError as error:
                kept = cache_directory() / "logs" / "local"
                teardown.save_logs(layout, kept)
                teardown.tear_down(layout)
                raise ClusterError(_moved(str(error), layout, kept)) from error
            except BaseException:
                teardown.tear_down(layout)
                raise
        return cls(layout, owned=True)

    @classmethod
    def attach(cls) -> Self:
        """The one that is up; leaving its `with` block leaves it up."""
        layout = Layout()
        if not cls._is_up(layout):
            raise ClusterError("no local cluster is up: `make up` starts one")
        return cls(layout, owned=False)

    @classmethod
    def take_down(cls, say: Callable[[str], None] = print) -> None:
        """End whatever there is of one, also after a start that was killed."""
        refuse_other_systems()
        layout = Layout()
        with _alone():
            if not teardown.anything_left(layout):
                say("no local cluster is up")
                return
            teardown.tear_down(layout)
            say("down: nothing is left of it but the cache of built programs")

    @staticmethod
    def parts() -> dict[str, int | None]:
        """The daemons and the ids of those that run."""
        found = {name: Daemon(Layout(), name).identity for name in _DAEMONS}
        for node in _further_nodes(Layout()):
            found |= {f"{name} of {node.node_name}": Daemon(node, name).identity for name in _DAEMONS}
        return {name: identity.pid if identity else None for name, identity in found.items()}

    @staticmethod
    def _is_up(layout: Layout) -> bool:
        return layout.ready.exists() and all(Daemon(layout, name).running for name in _DAEMONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._owned:
            self.down()

    def down(self) -> None:
        with _alone():
            teardown.tear_down(self._layout)

    # Talking to it.

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """The output of kubectl, as the administrator or with another kubeconfig; raises with its error text if it fails."""
        command: list[str | Path] = [self.bin / "kubectl", f"--kubeconfig={kubeconfig or self.kubeconfig}", *arguments]
        shown = " ".join(["kubectl", *arguments])
        surroundings = {"HOME": str(self.state), "PATH": os.environ.get("PATH", os.defpath)}
        try:
            done = subprocess.run(
                command,
                input=stdin or "",
                env=surroundings,
                capture_output=True,
                text=True,
                check=False,
                timeout=_KUBECTL_LIMIT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"{shown}: no answer within {_KUBECTL_LIMIT_S:g} s") from error
        if done.returncode != 0:
            raise KubectlError(shown, done.returncode, done.stderr)
        return done.stdout

    def exec(self, pod: str, *command: str, namespace: str = "default", container: str | None = None) -> str:
        """What the command prints inside the pod's container."""
        which = [f"--container={container}"] if container else []
        return self.kubectl("exec", f"--namespace={namespace}", pod, *which, "--", *command)

    # Hardware that is not there.

    def make_device_node(self, path: str) -> None:
        """A node that behaves like /dev/null; a path that exists is refused. Gone at the latest with the cluster."""
        devices.make_node(Path(path), Journal(self._layout.journal))

    def remove_device_node(self, path: str) -> None:
        """One that `make_device_node` or fake cards made; anything else stays."""
        devices.remove_made(Path(path), Journal(self._layout.journal))

    # Its kube-scheduler.

    def scheduler_config(
        self, url: str, resources: Sequence[str] = (), *, wanted: Mapping[str, object] | None = None, **changes: object
    ) -> None:
        """Make kube-scheduler ask this extender; returns when it does. Keyword arguments change the extender's entry.

        The extender is called with the verbs filter, prioritize, preempt and bind below the URL, from the machine's own network.
        """
        scheduler.configure(self._layout, [extender_entry(url, resources, **changes)], wanted or {})

    def restore_scheduler(self) -> None:
        """kube-scheduler as kubeadm made it."""
        scheduler.restore(self._layout)


@contextmanager
def _alone() -> Iterator[None]:
    """One start or end at a time. The lock is a name that the kernel forgets with its holder, so no file stays behind."""
    with socket.socket(socket.AF_UNIX) as lock:
        try:
            lock.bind("\0accelshare-local")
        except OSError as error:
            raise ClusterError("another process is just bringing the local cluster up or down; wait for it") from error
        yield


def _further_nodes(layout: Layout) -> list[Layout]:
    """Those that have joined."""
    return [node for number in range(2, MOST_NODES + 1) if (node := layout.node(number)).ready.exists()]


def _moved(words: str, layout: Layout, kept: Path) -> str:
    """The same message, with the current paths of the logs."""
    for before, now in teardown.saved_logs(layout, kept).items():
        words = words.replace(str(before), str(now))
    return f"{words}\nall logs are in {kept}"
