"""Credentials from a program that the kubeconfig names: client.authentication.k8s.io v1 and v1beta1.

Belongs here: running the program, reading its ExecCredential, keeping it until it expires or is refused.
Never: which cluster it is for; that is handed in as JSON when the kubeconfig asks for it.
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
    """What the kubeconfig says about the plugin. `cluster` is what it gets to know about the cluster, if anything."""

    command: str
    args: tuple[str, ...]
    environ: Mapping[str, str]
    api_version: str
    folder: Path
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None


class ExecPlugin:
    """Runs the program when there is nothing usable in memory: at first, after expiry, after a 401."""

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
        found = self._find()
        try:
            process = subprocess.Popen(
                [found, *program.args],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**program.environ, "KUBERNETES_EXEC_INFO": self._question()},
                start_new_session=True,  # so that its children can be ended with it
            )
        except OSError as error:
            raise self._problem(f"cannot be started: {error}") from error
        with process:
            try:
                output, complaint = process.communicate(timeout=self._timeout_s)
            except subprocess.TimeoutExpired as error:
                os.killpg(process.pid, signal.SIGKILL)  # with its children; it was not waited for, so the id is still its own
                raise self._problem(f"gave no answer within {self._timeout_s:g} s") from error
        if process.returncode != 0:
            said = complaint.decode("utf-8", "replace").strip()[-400:] or "nothing on stderr"
            raise self._problem(f"ended with exit code {process.returncode}: {said}")
        return output

    def _find(self) -> str:
        """A command with a slash is a file beside the kubeconfig, any other is looked for on PATH, as kubectl does."""
        command = self._program.command
        if "/" in command:
            return str(self._program.folder / command)
        found = shutil.which(command, path=self._program.environ.get("PATH", os.defpath))
        if found is None:
            raise self._problem("not found on PATH")
        return found

    def _question(self) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self._program.cluster is not None:
            spec["cluster"] = dict(self._program.cluster)
        question = {"apiVersion": self._program.api_version, "kind": "ExecCredential", "spec": spec}
        return msgspec.json.encode(question).decode()

    def _read(self, output: bytes) -> tuple[Presented, float | None]:
        try:
            answer = _exec_credentials.decode(output)
        except ValueError as error:  # the output itself stays out of the message: it may hold half a token
            raise self._problem(f"printed {len(output)} bytes that are no ExecCredential: {error}") from error
        if answer.kind != "ExecCredential" or answer.api_version != self._program.api_version:
            raise self._problem(
                f"answered with {answer.kind!r} of {answer.api_version!r};"
                f" it must be ExecCredential of {self._program.api_version!r}, as the kubeconfig says"
            )
        status = answer.status
        if status is None or not (status.token or status.certificate):
            raise self._problem("answered without status.token and without status.clientCertificateData")
        if bool(status.certificate) != bool(status.key):
            raise self._problem("answered with one of clientCertificateData and clientKeyData; it must be both or none")
        certificate = Certificate(status.certificate.encode(), status.key.encode()) if status.certificate and status.key else None
        authorization = self._bearer(status.token).authorization if status.token else None
        return Presented(authorization, certificate), self._expiry(status.expires)

    def _bearer(self, token: str) -> Presented:
        try:
            return bearer(token)
        except ConfigError as error:
            raise self._problem(f"answered badly: {error}") from error

    def _expiry(self, text: str | None) -> float | None:
        if not text:
            return None
        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError as error:
            raise self._problem(f"status.expirationTimestamp is {text!r}; it must be like 2026-01-31T12:00:00Z") from error

    def _problem(self, words: str) -> ConfigError:
        hint = f"\n{self._program.install_hint.strip()}" if self._program.install_hint else ""
        return ConfigError(f"exec plugin {self._program.command!r}: {words}{hint}")


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
