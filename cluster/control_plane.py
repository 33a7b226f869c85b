"""A control plane on loopback: etcd, kube-apiserver, kube-controller-manager, and kube-schedulers on demand.

    with ControlPlane.start(directory) as plane:
        plane.kubectl("get", "nodes")

Fresh for each start, and complete in its end: data, certificates, ports and processes are its own, all files are below
its directory, and nothing survives it, not even its starter's SIGKILL. It needs no root. For nodes that are other machines, the
API server can be given another address.
"""

from __future__ import annotations

import base64
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import yaml

from cluster import components
from cluster.build import Binaries, binaries
from cluster.certificates import Authority, write_key
from cluster.components import DEFAULT_CONTROLLERS, HOST, Pki
from cluster.directory_lock import claim
from cluster.errors import ClusterError, KubectlError, ProcessError
from cluster.https import Https, free_port
from cluster.kubeconfig import Token, UserCertificate, write_kubeconfig
from cluster.process import Process

_NEEDED: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
_PORT_TRIES: Final = 5
_END_ORDER: Final = {"kube-apiserver": 1, "etcd": 2}  # all others are clients of these
_STOP_LIMIT_S: Final = 5.0
_KUBECTL_LIMIT_S: Final = 600.0


class ControlPlane:
    """A running control plane and the means to use it as its administrator."""

    directory: Path
    url: str
    token: str  # an administrator's, in system:masters
    ca_file: Path
    kubeconfig: Path  # the same administrator's

    def __init__(self, directory: Path, programs: Binaries, address: str, api_server_args: Sequence[str]) -> None:
        self.directory = directory.absolute()
        self._claim = claim(self.directory)
        self._programs = programs
        self._address = address
        self._api_server_args = tuple(api_server_args)
        self._processes: list[Process] = []  # in the order of their start
        self._schedulers = 0
        self._etcd: Process
        self._api_server: Process

        self._authority = Authority(self.directory / "pki")
        self.ca_file = self._authority.file
        self._pki = Pki(
            ca=self.ca_file,
            etcd=self._authority.serving_certificate("etcd"),
            etcd_client=self._authority.client_certificate("etcd-client"),
            serving=self._authority.serving_certificate("serving", address),
            kubelet_client=self._authority.client_certificate("kubelet-client", ["system:masters"]),
            service_account_key=write_key(self.directory / "pki" / "service-account.key"),
        )
        self.token = secrets.token_hex(16)
        self._tokens = self.directory / "tokens.csv"
        self._tokens.touch(mode=0o600)
        self._tokens.write_text(f'{self.token},admin,admin,"system:masters"\n')
        self._https = Https(self.ca_file, *self.client_certificate("cluster-starter", ["system:masters"]))

    @classmethod
    def start(
        cls,
        directory: Path,
        say: Callable[[str], None] = print,
        controllers: Sequence[str] | None = DEFAULT_CONTROLLERS,
        *,
        address: str = HOST,
        api_server_args: Sequence[str] = (),
    ) -> Self:
        """Build what is missing, start all but a scheduler, and return when it is ready. No controllers: no manager.

        `address` is where the API server listens, for nodes that are other machines; all else stays on loopback.
        """
        programs = binaries(_NEEDED, say)
        begun = time.monotonic()
        plane = cls(directory, programs, address, api_server_args)
        try:
            plane._bring_up(controllers or ())
        except BaseException:
            plane.stop()
            raise
        say(f"control plane ready at {plane.url} in {time.monotonic() - begun:.1f} s, files in {plane.directory}")
        return plane

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def processes(self) -> tuple[Process, ...]:
        """Every process it has started, also those that ended, in the order of their start."""
        return tuple(self._processes)

    def stop(self) -> None:
        """End every process: those that use the API server, the API server, etcd. Logs stay in the directory."""
        for process in sorted(self._processes, key=lambda process: _END_ORDER.get(process.name, 0)):
            process.stop(_STOP_LIMIT_S)
        self._claim.close()

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """The output of kubectl, as the administrator or with another kubeconfig; raises with its error text if it fails."""
        command: list[str | Path] = [self._programs["kubectl"], f"--kubeconfig={kubeconfig or self.kubeconfig}", *arguments]
        environment = {"HOME": str(self.directory), "PATH": os.environ.get("PATH", os.defpath)}
        shown = " ".join(["kubectl", *arguments])
        try:
            done = subprocess.run(
                command, input=stdin or "", env=environment, capture_output=True, text=True, check=False, timeout=_KUBECTL_LIMIT_S
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"{shown}: no answer within {_KUBECTL_LIMIT_S:g} s") from error
        if done.returncode != 0:
            raise KubectlError(shown, done.returncode, done.stderr)
        return done.stdout

    def client_certificate(self, user: str, groups: Sequence[str] = ()) -> tuple[Path, Path]:
        """Files of a new certificate and key that the API server takes as this user, in these groups."""
        return self._authority.client_certificate(user, groups)

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig of this user, with a client certificate inside."""
        certificate, key = self.client_certificate(user, groups)
        return write_kubeconfig(
            certificate.with_suffix(".kubeconfig"), url=self.url, ca_file=self.ca_file, user=UserCertificate(certificate, key)
        )

    def start_scheduler(
        self,
        config: Mapping[str, object] | None = None,
        *,
        args: Sequence[str] = (),
        program: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Process:
        """A kube-scheduler under its real identity, returned when it is ready; its `url` serves /metrics to the administrator.

        `config` is the content of a KubeSchedulerConfiguration; what it leaves out of clientConnection and leaderElection
        is filled in. `program`: another one than Kubernetes' own. `variables` are added to its environment.
        """
        self._schedulers += 1
        name = f"kube-scheduler-{self._schedulers}"
        kubeconfig = self.kubeconfig_for("system:kube-scheduler")
        file = self.directory / f"{name}.yaml"
        file.write_text(yaml.safe_dump(components.scheduler_configuration(kubeconfig, config or {}), sort_keys=False))

        def command(port: int) -> list[str]:
            return components.scheduler(program or self._programs["kube-scheduler"], port, kubeconfig, file, self._pki, args)

        return self._serve(name, command, lambda url: self._https.answers(f"{url}/readyz"), variables=variables)

    @property
    def api_server(self) -> Process:
        """The API server; killing it is an outage that `restart_api_server` ends."""
        return self._api_server

    @property
    def etcd(self) -> Process:
        """etcd; killing it is an outage that `restart_etcd` ends."""
        return self._etcd

    def restart_etcd(self) -> None:
        """A new etcd on the same port and data; the old one, if it runs, ends as in a crash."""
        self._etcd.kill()
        self._etcd = self._serve_etcd(int(self._etcd.url.rpartition(":")[2]))

    def restart_api_server(self) -> None:
        """A new API server on the same port and data; the old one, if it runs, ends as in a crash.

        Its watch cache begins at its start: a watch from any older resourceVersion gets an ERROR event with code 410.
        """
        self._api_server.kill()  # on SIGTERM it would first wait a minute for its clients to disconnect
        self._api_server = self._serve_api_server(int(self.url.rpartition(":")[2]))

    def compact(self) -> int:
        """Forget all history in etcd, as API servers do to each other every five minutes; returns the revision kept.

        What answers 410 afterwards: a list's continue token from before, but only once the API server has dropped its own
        snapshots, which takes it up to 15 s. A watch does not: it is served from the watch cache, however old its
        resourceVersion. `restart_api_server()` after this makes both expire at once.
        """
        key = base64.b64encode(b"compact_rev_key").decode()  # how API servers find each other
        revision = int(self._https.post(f"{self._etcd.url}/v3/kv/range", {"key": key})["header"]["revision"])
        value = base64.b64encode(str(revision).encode()).decode()
        self._https.post(f"{self._etcd.url}/v3/kv/put", {"key": key, "value": value})
        self._https.post(f"{self._etcd.url}/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def _bring_up(self, controllers: Sequence[str]) -> None:
        self._etcd = self._serve_etcd()
        self._api_server = self._serve_api_server()
        self.url = self._api_server.url
        self.kubeconfig = write_kubeconfig(
            self.directory / "kubeconfig", url=self.url, ca_file=self.ca_file, user=Token(self.token)
        )
        if controllers:
            self._serve_controller_manager(controllers)

    def _serve_etcd(self, port: int | None = None) -> Process:
        def command(port: int) -> list[str]:
            return components.etcd(self._programs["etcd"], port, self.directory / f"etcd-{port}", self._pki)

        return self._serve("etcd", command, lambda url: self._https.answers(f"{url}/health"), port)

    def _serve_api_server(self, port: int | None = None) -> Process:
        def command(port: int) -> list[str]:
            program = self._programs["kube-apiserver"]
            return components.api_server(
                program, self._address, port, self._etcd.url, self._tokens, self._pki, self._api_server_args
            )

        return self._serve("kube-apiserver", command, lambda url: self._https.answers(f"{url}/readyz"), port, self._address)

    def _serve_controller_manager(self, controllers: Sequence[str]) -> None:
        # system:masters, because each controller's own role would need each its own account and token.
        kubeconfig = self.kubeconfig_for("system:kube-controller-manager", ["system:masters"])
        # What the first pods of a test may rely on; made by a controller, so also the sign that controllers work.
        signs = {
            "serviceaccount-controller": "serviceaccounts/default",
            "root-ca-certificate-publisher-controller": "configmaps/kube-root-ca.crt",
        }
        expected = [f"{self.url}/api/v1/namespaces/default/{path}" for name, path in signs.items() if name in controllers]

        def command(port: int) -> list[str]:
            return components.controller_manager(
                self._programs["kube-controller-manager"], port, kubeconfig, self._pki, controllers
            )

        def ready(url: str) -> bool:
            return all(self._https.answers(address) for address in (f"{url}/healthz", *expected))

        self._serve("kube-controller-manager", command, ready)

    def _serve(
        self,
        name: str,
        command: Callable[[int], Sequence[str]],
        ready: Callable[[str], bool],
        fixed_port: int | None = None,
        address: str = HOST,
        variables: Mapping[str, str] | None = None,
    ) -> Process:
        """Start it on a free port, and again on another if that port was taken meanwhile."""
        for tries_left in reversed(range(_PORT_TRIES)):
            port = fixed_port or free_port()
            url = f"https://{address}:{port}"
            environment = {**os.environ, **(variables or {})}
            process = Process(name, command(port), self._new_log(name), environment=environment, url=url)
            self._processes.append(process)
            try:
                process.wait_ready(partial(ready, url))
            except ProcessError:
                process.stop()
                if not tries_left or "address already in use" not in process.log.read_text(errors="replace"):
                    raise
            else:
                return process
        raise AssertionError("the last try returns or raises")

    def _new_log(self, name: str) -> Path:
        """Every process has a log of its own, also the second of a name."""
        logs = self.directory / "logs"
        before = len(list(logs.glob(f"{name}*.log"))) if logs.exists() else 0
        return logs / (f"{name}.log" if before == 0 else f"{name}.{before}.log")
