"""Check a configuration before anything is written: our own rules, and the real kube-scheduler if its program is available.

Old versions of kube-scheduler check little with --write-config-to (1.18 does not even parse a Policy), and often no program is
available. Belongs here: kube-scheduler's rules for extenders, the files that the entry names, running kube-scheduler's own check
in a temporary directory. Never: settings of plugins of others.
"""

import json
import re
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from accelshare.install.errors import Rejected
from accelshare.install.host_files.disk import Disk
from accelshare.install.scheduler import documents
from accelshare.install.scheduler.arguments import flags
from accelshare.install.scheduler.desired_config import DesiredConfig, TlsFiles
from accelshare.install.scheduler.plan import SchedulerPlan
from accelshare.install.scheduler.release import PLAIN_PORT_ENDS, POLICY_TRAP, Release

_LIMIT_S: Final = 60.0
_KEPT: Final = ("feature-gates", "emulated-version", "master")  # they decide what a configuration may contain


def refuse_what_would_not_start(plan: SchedulerPlan, desired: DesiredConfig, disk: Disk) -> None:
    """Raise Rejected with every problem that would make kube-scheduler exit at its start."""
    data = documents.plain(documents.read(plan.configuration.content, plan.configuration.path).data)
    extenders = documents.mappings(data, "extenders", plan.configuration.path)
    problems = [*_problems_of_form(plan.configuration.content), *_problems_of_extenders(extenders)]
    if desired.tls is not None:
        problems += _problems_of_files(desired.tls, disk)
    if problems:
        raise Rejected("\n".join([f"kube-scheduler would not start with {plan.configuration.path}:", *problems]))


def _problems_of_form(content: bytes) -> Iterator[str]:
    if not content.lstrip().startswith(b"{"):
        return
    try:
        msgspec.json.decode(content)
    except msgspec.DecodeError as error:  # perhaps good YAML
        yield f"it begins with a brace, so kube-scheduler reads it as JSON, but it is not JSON: {error}"


def _problems_of_extenders(extenders: list[Mapping[str, Any]]) -> Iterator[str]:
    """The rules of Kubernetes' validation.go, which 1.18 applies only at its start."""
    binding: list[str] = []
    managed: dict[str, str] = {}
    for index, extender in enumerate(extenders):
        url = str(extender.get("urlPrefix") or "")
        name = url or f"extenders[{index}]"
        if not url:
            yield f"extenders[{index}] has no urlPrefix; it must be the extender's address"
        weight = extender.get("weight", 0)
        if extender.get("prioritizeVerb") and not (isinstance(weight, int) and weight > 0):
            yield f"the extender {name} has weight {weight!r}; with prioritizeVerb it must be a positive number"
        if extender.get("bindVerb"):
            binding.append(name)
        for resource in extender.get("managedResources") or []:
            title = str(resource.get("name") if isinstance(resource, Mapping) else resource)
            if title in managed:
                yield f"the resource {title} is managed by {managed[title]} and {name}; only one extender may manage it"
            managed[title] = name
    if len(binding) > 1:
        yield f"the extenders {', '.join(binding)} all have bindVerb; at most one may bind"


def _problems_of_files(tls: TlsFiles, disk: Disk) -> Iterator[str]:
    """The files have the same paths for kube-scheduler as on this host."""
    # Imported here because it is large, and planning does not need it.
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    contents = {file: disk.read(file) for file in tls.files}
    missing = [file for file, content in contents.items() if content is None]
    yield from (f"{file} does not exist, but the extender's entry names it" for file in missing)
    if missing:
        return
    try:
        x509.load_pem_x509_certificates(contents[tls.ca_file] or b"")
    except ValueError:
        yield f"{tls.ca_file} is not a PEM certificate; it must be the CA of the extender's certificate"
    if tls.cert_file is None or tls.key_file is None:
        return
    try:
        certificate = x509.load_pem_x509_certificate(contents[tls.cert_file] or b"")
        key = serialization.load_pem_private_key(contents[tls.key_file] or b"", password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        yield f"{tls.cert_file} and {tls.key_file} must be a PEM certificate and its PEM key without a password"
        return
    if certificate.public_key() != key.public_key():
        yield f"{tls.key_file} is not the key of the certificate {tls.cert_file}"


def checker(program: Path, release: Release) -> Callable[[SchedulerPlan], None]:
    """A check by this kube-scheduler program of this release; it raises Rejected with the program's error."""

    def check(plan: SchedulerPlan) -> None:
        with tempfile.TemporaryDirectory(prefix="accelshare-check-") as directory:
            file, out = Path(directory) / Path(plan.configuration.path).name, Path(directory) / "defaulted.yaml"
            flag_values = flags(plan.words)
            policy = flag_values.get("policy-config-file") == plan.configuration.path
            file.write_bytes(plan.configuration.content if policy else _with_free_ports(plan, release))
            words = [str(program), f"--{'policy-config-file' if policy else 'config'}={file}", f"--write-config-to={out}"]
            # The configured ports are in use by the running kube-scheduler.
            words += ["--secure-port=0", *(f"--{name}={flag_values[name]}" for name in _KEPT if name in flag_values)]
            if policy:
                words += _policy_flags(flag_values, release, Path(directory) / "beside.yaml")
            try:
                done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S, check=False, cwd=directory)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise Rejected(f"{program} could not check the configuration: {error}") from error
            if done.returncode != 0 or not out.exists():
                message = _error_message(done.stderr.strip() or done.stdout.strip()).replace(str(file), "it")
                raise Rejected(f"{program} refuses the configuration: {message}")

    return check


def _with_free_ports(plan: SchedulerPlan, release: Release) -> bytes:
    """The configuration with a free plain port: before 1.23 kube-scheduler listens there even to write its configuration."""
    if release.minor >= PLAIN_PORT_ENDS:
        return plan.configuration.content
    document = documents.read(plan.configuration.content, plan.configuration.path)
    for key in ("healthzBindAddress", "metricsBindAddress"):
        document.data[key] = _free_address()
    return document.content()


def _policy_flags(flag_values: Mapping[str, str], release: Release, file: Path) -> list[str]:
    """The flags with which a Policy is checked."""
    if release.minor != POLICY_TRAP:
        return ["--port=0", *(f"--{name}={flag_values[name]}" for name in ("kubeconfig",) if name in flag_values)]
    # 1.22 can write a configuration from a Policy only as v1beta1.
    address = _free_address()
    content: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1beta1",
        "kind": "KubeSchedulerConfiguration",
        "healthzBindAddress": address,
        "metricsBindAddress": address,
    }
    if "kubeconfig" in flag_values:
        content["clientConnection"] = {"kubeconfig": flag_values["kubeconfig"]}
    file.write_text(documents.yaml_text(content))
    return [f"--config={file}"]


def _free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def _error_message(output: str) -> str:
    """The error in kube-scheduler's last log line, without the logger's prefix."""
    last = (output.splitlines() or ["no output"])[-1]
    match = re.search(r'err=("(?:[^"\\]|\\.)*")', last)
    try:
        return str(json.loads(match[1])) if match else last
    except ValueError:
        return last
