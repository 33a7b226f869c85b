"""The real kube-scheduler's word on a configuration, before anything is written.

Belongs here: running it with --write-config-to, which reads the configuration strictly and ends. Never: writing outside a
temporary directory.
"""

import json
import re
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from accelshare.install.errors import Rejected
from accelshare.install.scheduler import documents
from accelshare.install.scheduler.arguments import flags
from accelshare.install.scheduler.plan import Plan
from accelshare.install.scheduler.release import PLAIN_PORT_ENDS, POLICY_TRAP, Release

_LIMIT_S: Final = 60.0
_KEPT: Final = ("feature-gates", "emulated-version", "master")  # they decide what a configuration may say


def checker(program: Path, release: Release) -> Callable[[Plan], None]:
    """A check that raises Rejected with the own words of this kube-scheduler, which is of this release."""

    def check(plan: Plan) -> None:
        with tempfile.TemporaryDirectory(prefix="accelshare-check-") as directory:
            file, out = Path(directory) / Path(plan.configuration.path).name, Path(directory) / "defaulted.yaml"
            given = flags(plan.words)
            policy = given.get("policy-config-file") == plan.configuration.path
            file.write_bytes(plan.configuration.content if policy else _elsewhere(plan, release))
            words = [str(program), f"--{'policy-config-file' if policy else 'config'}={file}", f"--write-config-to={out}"]
            # The ports are the running scheduler's.
            words += ["--secure-port=0", *(f"--{name}={given[name]}" for name in _KEPT if name in given)]
            if policy:
                words += _beside_a_policy(given, release, Path(directory) / "beside.yaml")
            try:
                done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S, check=False, cwd=directory)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise Rejected(f"{program} could not check the configuration: {error}") from error
            if done.returncode != 0 or not out.exists():
                said = _in_words(done.stderr.strip() or done.stdout.strip()).replace(str(file), "it")
                raise Rejected(f"{program} refuses the configuration: {said}")

    return check


def _elsewhere(plan: Plan, release: Release) -> bytes:
    """The configuration with its plain port moved: before 1.23 kube-scheduler listens there even to write its configuration."""
    if release.minor >= PLAIN_PORT_ENDS:
        return plan.configuration.content
    document = documents.read(plan.configuration.content, plan.configuration.path)
    for key in ("healthzBindAddress", "metricsBindAddress"):
        document.data[key] = _free_address()
    return document.content()


def _beside_a_policy(given: Mapping[str, str], release: Release, file: Path) -> list[str]:
    """The flags that a Policy is checked with."""
    if release.minor != POLICY_TRAP:
        return ["--port=0", *(f"--{name}={given[name]}" for name in ("kubeconfig",) if name in given)]
    # 1.22 cannot write a configuration that came from a Policy, unless as v1beta1.
    address = _free_address()
    content: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1beta1",
        "kind": "KubeSchedulerConfiguration",
        "healthzBindAddress": address,
        "metricsBindAddress": address,
    }
    if "kubeconfig" in given:
        content["clientConnection"] = {"kubeconfig": given["kubeconfig"]}
    file.write_text(documents.yaml_text(content))
    return [f"--config={file}"]


def _free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def _in_words(output: str) -> str:
    """The error in kube-scheduler's last line, without what its logger puts around it."""
    last = (output.splitlines() or ["without a word"])[-1]
    found = re.search(r'err=("(?:[^"\\]|\\.)*")', last)
    try:
        return str(json.loads(found[1])) if found else last
    except ValueError:
        return last
