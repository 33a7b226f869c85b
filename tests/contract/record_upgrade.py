"""Records what version 0.1 wrote and how it reads what this version writes: `python -m tests.contract.record_upgrade CHECKOUT`.

Belongs here: running the demo and the extender of a checkout of version 0.1 with their own code. Never: assertions.

The checkout needs the libraries of its requirements/dev.txt; PYTHON names a Python that has them.
"""

import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from accelshare.testing.api_server import FakeApiServer
from cluster.https import free_port
from cluster.process import Process
from cluster.waiting import wait_until, wait_until_async
from tests.contract import upgrade_objects

RECORDED: Final = Path(__file__).parent / "recorded/0.1"
LIMIT_S: Final = 60.0
UNHEALTHY: Final = {"metadata": {"name": "unhealthy-gcu-sse-lab-inspur-048"}, "data": {"gcus": "5"}}
MORE_PODS: Final[tuple[tuple[str, str, dict[str, str], dict[str, str]], ...]] = (
    ("gpu-two-slices", "dev-server-153", {"aliyun.com/gpu-mem": "8"}, {"accelshare.io/card-count": "2"}),
    ("gcu-whole", "sse-lab-inspur-048", {"enflame.com/gcu": "1"}, {}),
)


def main() -> None:
    checkout = Path(sys.argv[1]).absolute()
    program = [os.environ.get("PYTHON", sys.executable)]
    os.environ["PYTHONPATH"] = f"{checkout / 'src'}:{checkout}:{os.environ.get('LIBRARIES', '')}"
    with tempfile.TemporaryDirectory() as directory:
        _record_demo(program, checkout, Path(directory))
        asyncio.run(_record_reading(program, Path(directory)))


def _record_demo(program: list[str], checkout: Path, directory: Path) -> None:
    """The objects of the demo's cluster, some more pods and two broken cards, and 0.1's own sums of them."""
    with contextlib.chdir(checkout), _running("demo", [*program, "-m", "demo", "--keep"], directory) as demo:
        wait_until(lambda: "Still running" in demo.log.read_text(), "the demo has ended", LIMIT_S)
        text = demo.log.read_text()
        api, extender = re.findall(r"(http://127.0.0.1:\d+)/(?:api/v1/pods|accelshare/inspect)", text)[::-1][:2]
        logs = Path(re.findall(r"tail -f (\S+)/\*\.log", text)[0])
        for name, node, limits, notes in MORE_PODS:
            container = {"name": "main", "image": "registry.example/none", "resources": {"limits": limits}}
            manifest = {"metadata": {"name": name, "annotations": notes}, "spec": {"containers": [container]}}
            uid = _call(f"{api}/api/v1/namespaces/default/pods", manifest)["metadata"]["uid"]
            bind = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": node}
            assert _call(f"{extender}/accelshare/bind", bind) == {"Error": ""}
        _call(f"{api}/api/v1/namespaces/kube-system/configmaps", UNHEALTHY)
        (logs / "2/dev/nvidia7").unlink()
        wait_until(lambda: str(_call(f"{api}/api/v1/nodes")).count('"healthy":false') == 2, "two cards are unhealthy", LIMIT_S)
        for resource in ("pods", "nodes", "configmaps"):
            _write(resource, _call(f"{api}/api/v1/{resource}")["items"])
        _write("inspect", _call(f"{extender}/accelshare/inspect"))


async def _record_reading(program: list[str], directory: Path) -> None:
    """How 0.1's extender counts the objects that this version writes."""
    nodes, pods = upgrade_objects.nodes(), upgrade_objects.pods()
    async with FakeApiServer() as api:
        for node in nodes:
            api.store.create("nodes", node)
        for pod in pods:
            api.store.create("pods", pod, namespace="default")
        url = f"http://127.0.0.1:{free_port()}"
        kubeconfig = api.write_kubeconfig(directory / "kubeconfig")
        command = [*program, "-m", "accelshare", "extender", f"--kubeconfig={kubeconfig}", f"--listen={url[7:]}"]
        with _running("extender", command, directory):
            await wait_until_async(lambda: asyncio.to_thread(_answers, f"{url}/readyz"), "it is ready", LIMIT_S, 0.1)
            _write("inspect-of-this-version", await asyncio.to_thread(_call, f"{url}/accelshare/inspect"))
    _write("nodes-of-this-version", nodes)
    _write("pods-of-this-version", pods)


@contextlib.contextmanager
def _running(name: str, command: list[str], directory: Path) -> Iterator[Process]:
    process = Process(name, command, directory / f"{name}.log")
    try:
        yield process
    finally:
        process.stop()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url):  # noqa: S310 – on loopback
            return True
    except (OSError, urllib.error.URLError):
        return False


def _call(url: str, body: object = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 – on loopback
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return json.loads(answer.read())


def _write(name: str, content: object) -> None:
    (RECORDED / f"{name}.json").write_text(json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
