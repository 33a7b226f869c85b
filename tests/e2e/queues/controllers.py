"""Kueue and JobSet as processes beside the control plane, with their own manifests, certificates and rights.

Belongs here: what a kubelet and a service network would do for such a controller. Never: a change of what it does.

The API server has no service network here, but it resolves a Service of type ExternalName to the name itself. So Kueue's webhooks
are called by their Service, verified by the certificate that Kueue issued; only the port of the call is changed. JobSet reads the
certificate that it issued from a fixed directory of the machine, so we issue it, and its webhooks are called by URL.
"""

import base64
import contextlib
import http.client
import json
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from cluster.build import binaries
from cluster.certificates import Authority
from cluster.control_plane import ControlPlane
from cluster.https import free_port
from cluster.process import Process

Object = dict[str, Any]
LIMIT_S: Final = 300.0
# A Deployment needs a kubelet, an APIService a service network; the Services are replaced, the ConfigMap becomes a file.
NOT_APPLIED: Final = ("Deployment", "APIService", "Service", "ConfigMap")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Controller:
    """A controller with webhooks, as kubebuilder lays it out."""

    name: str
    certificate: str  # the Secret that it writes and that a kubelet would mount; empty: we issue the certificate
    changes: Mapping[str, object]  # of its configuration

    @property
    def namespace(self) -> str:
        return f"{self.name}-system"

    @property
    def service(self) -> str:
        return f"{self.name}-webhook-service"

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}-controller-manager"


KUEUE: Final = Controller(
    "kueue",
    "kueue-webhook-server-cert",
    {
        "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]},
        "featureGates": {"VisibilityOnDemand": False},  # an API server of its own, for a service network
    },
)
JOBSET: Final = Controller("jobset", "", {"internalCertManagement": {"enable": False}})


@contextlib.contextmanager
def running(plane: ControlPlane, controller: Controller, changes: Mapping[str, object] | None = None) -> Iterator[Process]:
    """The controller, ready; stopped when the block ends. `changes` are laid over its configuration."""
    program = binaries([controller.name])[controller.name]
    rendered = plane.kubectl("kustomize", str(program.parent / f"{controller.name}-config" / "default"))
    objects: list[Object] = [found for found in yaml.load_all(rendered, Loader=_Loader) if found]
    webhook_port, health_port = free_port(), free_port()
    directory = plane.directory / controller.name
    certificates = directory / "certificates"
    certificates.mkdir(parents=True)
    authority = None
    if not controller.certificate:
        authority = Authority(certificates)
        authority.serving_certificate("tls")
    _apply(plane, controller, objects, webhook_port, authority)
    own: Mapping[str, object] = {
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health_port}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhook_port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
    }
    file = directory / "config.yaml"
    file.write_text(yaml.safe_dump({**_shipped_configuration(objects), **own, **controller.changes, **(changes or {})}))
    kubeconfig = plane.kubeconfig_for(controller.user, ["system:serviceaccounts"])
    process = Process(
        controller.name,
        [program, f"--config={file}"],
        directory / f"{controller.name}.log",
        environment={"KUBECONFIG": str(kubeconfig)},
    )
    try:
        if controller.certificate:
            process.wait_ready(lambda: _mount(plane, controller, certificates), LIMIT_S)
        process.wait_ready(lambda: _answers(f"http://127.0.0.1:{health_port}/readyz"), LIMIT_S)
        yield process
    finally:
        process.stop()


def _apply(plane: ControlPlane, controller: Controller, objects: list[Object], port: int, authority: Authority | None) -> None:
    wanted = [found for found in objects if found["kind"] not in NOT_APPLIED]
    for found in wanted:
        for webhook in _webhooks(found):
            called = webhook["clientConfig"]
            if authority is None:
                called["service"]["port"] = port
            else:
                called["url"] = f"https://127.0.0.1:{port}{called.pop('service')['path']}"
                called["caBundle"] = base64.b64encode(authority.file.read_bytes()).decode()
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": controller.service, "namespace": controller.namespace},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*wanted, service]})
    plane.kubectl("apply", "--server-side", "--validate=false", "--filename=-", stdin=content)  # the API server validates
    definitions = [found["metadata"]["name"] for found in wanted if found["kind"] == "CustomResourceDefinition"]
    plane.kubectl("wait", "--for=condition=Established", "--timeout=300s", "crd", *definitions)


def _webhooks(found: Object) -> list[Object]:
    """Those parts of an object that say how a webhook is called."""
    if found["kind"] in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        return list(found["webhooks"])
    conversion = found["spec"].get("conversion", {}) if found["kind"] == "CustomResourceDefinition" else {}
    return [conversion["webhook"]] if "webhook" in conversion else []


def _shipped_configuration(objects: list[Object]) -> Object:
    (configuration,) = [found for found in objects if found["kind"] == "ConfigMap"]
    content: Object = yaml.safe_load(configuration["data"]["controller_manager_config.yaml"])
    return content


def _mount(plane: ControlPlane, controller: Controller, directory: Path) -> bool:
    """Write the Secret's files as a kubelet would; whether there were any."""
    found = json.loads(plane.kubectl("get", "secret", controller.certificate, f"-n={controller.namespace}", "--output=json"))
    files: Mapping[str, str] = found.get("data") or {}
    for name, content in files.items():
        (directory / name).write_bytes(base64.b64decode(content))
    return "tls.crt" in files


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30) as response:  # noqa: S310 – ours, on loopback
            return bool(response.status == http.client.OK)
    except (OSError, http.client.HTTPException):
        return False
