"""What would end kube-scheduler at its start, found before anything is written.

Old kube-schedulers check little with --write-config-to, 1.18 not even whether a Policy can be read, and often no program is at
hand to be asked. Belongs here: their rules for extenders, and the files that ours names. Never: settings of others' plugins.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from accelshare.install.errors import Rejected
from accelshare.install.host_files.disk import Disk
from accelshare.install.scheduler import documents
from accelshare.install.scheduler.desired_config import DesiredConfig, Tls
from accelshare.install.scheduler.plan import Plan


def refuse_what_would_not_start(plan: Plan, desired: DesiredConfig, disk: Disk) -> None:
    """Raises Rejected with all that is wrong."""
    data = documents.plain(documents.read(plan.configuration.content, plan.configuration.path).data)
    problems = [*_of_form(plan.configuration.content), *_of_extenders(data.get("extenders") or [])]
    if desired.tls is not None:
        problems += _of_files(desired.tls, disk)
    if problems:
        raise Rejected("\n".join([f"kube-scheduler would not start with {plan.configuration.path}:", *problems]))


def _of_form(content: bytes) -> Iterator[str]:
    if not content.lstrip().startswith(b"{"):
        return
    try:
        msgspec.json.decode(content)
    except msgspec.DecodeError as error:  # perhaps good YAML
        yield f"it begins with a brace, so that kube-scheduler takes it for JSON, and it is no JSON: {error}"


def _of_extenders(extenders: list[Mapping[str, Any]]) -> Iterator[str]:
    """The rules of Kubernetes' validation.go, which 1.18 applies at its start only."""
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
                yield f"the resource {title} is managed by {managed[title]} and {name}; it must be one of them"
            managed[title] = name
    if len(binding) > 1:
        yield f"the extenders {', '.join(binding)} all have bindVerb; at most one may bind"


def _of_files(tls: Tls, disk: Disk) -> Iterator[str]:
    """kube-scheduler sees these files under the same names as this host."""
    # A large library that planning does not need.
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    contents = {file: disk.read(file) for file in tls.files}
    missing = [file for file, content in contents.items() if content is None]
    yield from (f"{file} is not there, but the extender's entry names it" for file in missing)
    if missing:
        return
    try:
        x509.load_pem_x509_certificates(contents[tls.ca_file] or b"")
    except ValueError:
        yield f"{tls.ca_file} is no PEM certificate; it must be the CA of the extender's certificate"
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
