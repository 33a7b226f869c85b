"""Workloads of examples/ as tests run them: with a local image that prints what its container sees of the cards."""

from pathlib import Path
from typing import Any

import yaml

from cluster.local import LocalCluster

# A container prints the accelerator device nodes that it sees, then its environment variables.
_LIST = "ls /dev | grep -E '^(gcu|xpu|nvidia|stc|zpu)[0-9]+$' | sort | tr '\\n' ' '"
PRINT_CARDS = ["sh", "-c", f"{_LIST}; echo; env | sort; exec sleep 100000"]
CONTAINER: dict[str, Any] = {"image": LocalCluster.test_image, "imagePullPolicy": "Never", "command": PRINT_CARDS}


def workload(file: Path, host_directory: Path) -> dict[str, Any]:
    """The object of this file, changed only in its image, its command and the host directory of its volumes."""
    content: dict[str, Any] = yaml.safe_load(file.read_text())
    spec = content["spec"]["template"]["spec"] if "template" in content["spec"] else content["spec"]
    for container in spec["containers"]:
        container |= {**CONTAINER, "args": []}
    spec["terminationGracePeriodSeconds"] = 1
    for volume in spec.get("volumes", []):
        volume["hostPath"] = {"path": str(host_directory), "type": "DirectoryOrCreate"}
    return content
