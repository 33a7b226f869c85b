"""A whole cluster to install on: the local kubeadm cluster with its real kube-scheduler, our image in its containerd, and helm.

Only the hardware is not there: cards are declared in profiles that the chart carries, over the device nodes of `make up`.

Belongs here: what an operator does on such a cluster, what can be seen on its hosts, and waiting. Never: expectations.
"""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from cluster.errors import KubectlError
from cluster.image.build import Built
from cluster.local import LocalCluster
from cluster.local.layout import NODE_NAME
from deploy.render import CHART, ROOT, helm

LIMIT_S = 300.0
NAMESPACE = "kube-system"
MANIFEST = "/etc/kubernetes/manifests/kube-scheduler.yaml"
# As many as `make up --fake-cards` makes device nodes for.
CARDS = {"nvidia": (4, 16127), "kunlun": (4, 8064), "enflame": (8, 16384), "stream": (1, 16384)}
Object = dict[str, Any]


class Estate:
    def __init__(self, local: LocalCluster, image: Built, directory: Path) -> None:
        assert image.archive is not None
        self.local = local
        self.image = image
        self.directory = directory
        self.original = self.manifest()

    # What an operator does.

    def provide_image(self) -> None:
        assert self.image.archive is not None
        self.local.load_image(self.image.archive)

    async def install(self, *presets: str, **values: object) -> str:
        """helm upgrade --install with these presets; `values` as `setting` of tests/contract/chart writes them."""
        repository, _, tag = self.image.reference.rpartition(":")
        chosen: dict[str, object] = {
            "image.repository": repository,
            "image.tag": tag,
            "nodes.names": [NODE_NAME],
            **{name.replace("__", "."): value for name, value in values.items()},
        }
        file = self.directory / "values.yaml"
        file.write_text(yaml.safe_dump({"profiles": {f"{name}.toml": _profile(name) for name in CARDS}}))
        return await self.helm(
            "upgrade",
            "--install",
            "accelshare",
            str(CHART),
            f"--values={file}",
            *(f"--values={CHART}/presets/{preset}.yaml" for preset in presets),
            *(f"--set-json={name}={json.dumps(value)}" for name, value in chosen.items()),
        )

    async def test(self) -> str:
        return await self.helm("test", "accelshare", "--logs")

    async def uninstall(self) -> str:
        return await self.helm("uninstall", "accelshare")

    async def helm(self, *arguments: str) -> str:
        where = (f"--namespace={NAMESPACE}", "--timeout=600s")
        return await asyncio.to_thread(helm, *arguments, *where, kubeconfig=self.local.kubeconfig)

    def apply(self, file: str) -> str:
        return self.local.kubectl("apply", "--filename", str(ROOT / file))

    # What can be seen.

    def manifest(self) -> bytes:
        """kube-scheduler's static pod, as it lies on the host."""
        return self.local.path(MANIFEST).read_bytes()

    def files_of_ours(self) -> list[str]:
        """Every file and directory of ours on the host's /etc/kubernetes."""
        root = self.local.path("/etc/kubernetes")
        return sorted(str(path.relative_to(root)) for path in root.rglob("*accelshare*"))

    def standing(self) -> dict[str, str]:
        """What each control-plane node's manager says."""
        data = self.read("configmap", "accelshare-scheduler-config").get("data", {})
        return {key.removeprefix("node."): value for key, value in data.items() if key.startswith("node.")}

    def labels(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.local.kubectl("get", "node", NODE_NAME, "--output=json"))["metadata"]["labels"]
        return found

    def read(self, kind: str, name: str, namespace: str = NAMESPACE) -> Object:
        found: Object = json.loads(self.local.kubectl("get", kind, name, f"--namespace={namespace}", "--output=json"))
        return found

    def agents_ready(self) -> bool:
        """Every agent that is wanted is there and ready."""
        found = json.loads(self.local.kubectl("get", "daemonsets", f"--namespace={NAMESPACE}", "--output=json"))["items"]
        labelled = [one for one in found if one["spec"]["template"]["metadata"]["labels"].get("accelshare.io/agent") == "true"]
        counts = [(one["status"]["desiredNumberScheduled"], one["status"].get("numberReady", 0)) for one in labelled]
        return bool(counts) and all(wanted == ready > 0 for wanted, ready in counts)

    # Waiting.

    async def until(self, condition: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
        """The condition's first true answer; what the cluster cannot tell yet is asked again."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                answer = await asyncio.to_thread(condition)
            except KubectlError as error:
                answer = None
                what = f"{what} ({error})" if time.monotonic() >= deadline else what
            if answer:
                return answer
            assert time.monotonic() < deadline, f"not within {limit_s:.0f} s: {what}{self._evidence()}"
            await asyncio.sleep(0.5)

    def _evidence(self) -> str:
        selector = "--selector=app.kubernetes.io/part-of=accelshare"
        pods = self.local.kubectl("get", "pods", f"--namespace={NAMESPACE}", selector, "--output=wide")
        logs = self.local.kubectl("logs", f"--namespace={NAMESPACE}", selector, "--all-containers", "--prefix", "--tail=20")
        return f"\n--- pods\n{pods}\n--- logs\n{logs}"


def _profile(vendor: str) -> str:
    """The shipped profile with cards that are declared, not found."""
    count, memory_mib = CARDS[vendor]
    cards = f'cards = [{{ count = {count}, memory_mib = {memory_mib}, id = "{vendor}-{{index}}" }}]'
    return f'extends = "{vendor}"\n[driver]\nname = "static"\ntools = []\n[driver.static]\n{cards}\n'
