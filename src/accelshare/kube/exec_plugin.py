"""Credentials from a program that the kubeconfig names: client.authentication.k8s.io v1 and v1beta1.

Belongs here: running the program, reading its ExecCredential, keeping it until it expires or is refused.
Never: which cluster it is for.
"""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from accelshare.kube.credentials import Certificate, Presented, bearer
from accelshare.kube.errors import ConfigError
from accelshare.wire.decoding import Decoder

API_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Program:
    """The kubeconfig's entry of the plugin. `cluster` is what is passed to it about the cluster, if anything."""

    command: str
    args: tuple[str, ...]
    environ: Mapping[str, str]
    api_version: str
    folder: Path
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None


class ExecPlugin:
    """Runs the program for the first request, after expiry and after a 401."""

    def __init__(self, program: Program, *, timeout_s: float = TIMEOUT_S, clock: Callable[[], float] = time.time) -> None:
        self._program = program
        self._timeout_s = timeout_s
        self._clock = clock
        self._running = threading.Lock()
        self._presented: Presented | None = None
        self._expires: float | None = None

    @property
    def at_hand(self) -> bool:
        return self._presented is not None and (self._expires is None or self._clock() < self._expires)

    def present(self) -> Presented:
        with self._running:
            if self._presented is None or not self.at_hand:
                self._presented, self._expires = None, None
                self._presented, self._expires = self._read(self._run())
            return self._presented

    def refused(self, presented: Presented) -> None:
        # Several requests may be refused at once; only the first of them needs a new run.
        if presented == self._presented:
            self._presented = None

    def _run(self) -> bytes:
        program = self._program
        path = self._path()
        try:
            process = subprocess.Popen(
                [path, *program.args],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**program.environ, "KUBERNETES_EXEC_INFO": self._exec_info()},
                start_new_session=True,  # so that its children can be ended with it
            )
        except (OSError, ValueError, RecursionError) as error:  # a zero byte in a word, or an extension that contains itself
            raise self._problem(f"cannot be started: {error}") from error
        with process:
            try:
                output, errors = process.communicate(timeout=self._timeout_s)
            except subprocess.TimeoutExpired as error:
                os.killpg(process.pid, signal.SIGKILL)  # with its children; not waited for yet, so the id is not reused
                raise self._problem(f"no output within {self._timeout_s:g} s") from error
        if process.returncode != 0:
            message = errors.decode("utf-8", "replace").strip()[-400:] or "nothing on stderr"
            raise self._problem(f"ended with exit code {process.returncode}: {message}")
        return output

    def _path(self) -> str:
        """As kubectl: a command with a slash is relative to the kubeconfig, any other is on PATH."""
        command = self._program.command
        if "/" in command:
            return str(self._program.folder / command)
        path = shutil.which(command, path=self._program.environ.get("PATH", os.defpath))
        if path is None:
            raise self._problem("not found on PATH")
        return path

    def _exec_info(self) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self._program.cluster is not None:
            spec["cluster"] = dict(self._program.cluster)
        return msgspec.json.encode({"apiVersion": self._program.api_version, "kind": "ExecCredential", "spec": spec}).decode()

    def _read(self, output: bytes) -> tuple[Presented, float | None]:
        try:
            credential = _exec_credentials.decode(output)
        except ValueError as error:  # the message does not contain the output, which may contain a token
            raise self._problem(f"printed {len(output)} bytes that are not an ExecCredential: {error}") from error
        if credential.kind != "ExecCredential" or credential.api_version != self._program.api_version:
            raise self._problem(
                f"printed {credential.kind!r} of {credential.api_version!r};"
                f" it must be ExecCredential of {self._program.api_version!r}, as in the kubeconfig"
            )
        status = credential.status
        if status is None or not (status.token or status.certificate):
            raise self._problem("printed neither status.token nor status.clientCertificateData")
        if bool(status.certificate) != bool(status.key):
            raise self._problem("printed only one of clientCertificateData and clientKeyData; it must be both or none")
        certificate = Certificate(status.certificate.encode(), status.key.encode()) if status.certificate and status.key else None
        try:
            authorization = bearer(status.token).authorization if status.token else None
        except ConfigError as error:
            raise self._problem(f"printed an invalid token: {error}") from error
        return Presented(authorization, certificate), self._expiry(status.expires)

    def _expiry(self, text: str | None) -> float | None:
        if not text:
            return None
        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError as error:
            raise self._problem(f"status.expirationTimestamp is {text!r}; it must be like 2026-01-31T12:00:00Z") from error

    def _problem(self, text: str) -> ConfigError:
        hint = f"\n{self._program.install_hint.strip()}" if self._program.install_hint else ""
        return ConfigError(f"exec plugin {self._program.command!r}: {text}{hint}")


class _ExecStatus(
    msgspec.Struct,
    rename={"certificate": "clientCertificateData", "key": "clientKeyData", "expires": "expirationTimestamp"},
):
    token: str | None = None
    certificate: str | None = None
    key: str | None = None
    expires: str | None = None


class _ExecCredential(msgspec.Struct, rename={"api_version": "apiVersion"}):
    api_version: str = ""
    kind: str = ""
    status: _ExecStatus | None = None


_exec_credentials = Decoder(_ExecCredential)
