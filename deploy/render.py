"""`make manifests`: renders the chart as plain manifests, one directory for each vendor.

Belongs here: calling helm, and telling what it prints apart: what is applied, what undoes it, what tries it. Never: content; that
is the chart's.

    deploy/manifests/<vendor>/accelshare.yaml            kubectl apply -f deploy/manifests/<vendor>
    deploy/manifests/<vendor>/upgrade/check.yaml         to be applied and waited for before another memory unit is
    deploy/manifests/<vendor>/uninstall/restore.yaml     to be applied and waited for before the deletion
    deploy/manifests/<vendor>/test/card.yaml             a pod that asks for a card and looks for it
    deploy/manifests/<vendor>/samples/                   the original guides' workloads
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from cluster.build import binaries
from cluster.versions import KUBERNETES_VERSION

ROOT: Final = Path(__file__).parents[1]
CHART: Final = ROOT / "deploy" / "chart" / "accelshare"
MANIFESTS: Final = ROOT / "deploy" / "manifests"
NAMESPACE: Final = "kube-system"
PRESETS: Final[Mapping[str, str]] = {"nvidia": "gpushare", "kunlun": "xpushare", "enflame": "gcushare", "stream": "stc"}

_HEAD: Final = "# Made from deploy/chart/accelshare with presets/{preset}.yaml by `make manifests`; change it there.\n"
# Where a document goes, by the moment at which helm would use it.
_FILES: Final[Mapping[str, str]] = {
    "": "accelshare.yaml",
    "pre-install,pre-upgrade": "accelshare.yaml",
    "pre-upgrade,pre-rollback": "upgrade/check.yaml",
    "pre-delete": "uninstall/restore.yaml",
    "test": "test/card.yaml",
}
_OF_HELM: Final = re.compile(r"^ *(# Source: .*|helm\.sh/[a-z-]+: .*|)\n", re.MULTILINE)
_EMPTY_ANNOTATIONS: Final = re.compile(r"^  annotations:\n(?!    )", re.MULTILINE)


class HelmError(Exception):
    """helm refused; the message is its own."""


@dataclass(frozen=True, slots=True)
class RenderedObject:
    """One object as helm prints it, and the hook it is, if it is one."""

    text: str
    hook: str


def helm(*arguments: str | Path, kubeconfig: Path | None = None) -> str:
    """What the pinned helm prints; it sees no settings of this machine's user."""
    program = binaries(["helm"], lambda _words: None)["helm"]
    with tempfile.TemporaryDirectory() as home:
        places = {f"HELM_{kind}_HOME": home for kind in ("CACHE", "CONFIG", "DATA")}
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, **places}
        if kubeconfig is not None:
            environment["KUBECONFIG"] = str(kubeconfig)
        done = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=1200)
    if done.returncode != 0:
        raise HelmError(f"helm {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
    return done.stdout


def template(*arguments: str | Path, version: str = KUBERNETES_VERSION, namespace: str = NAMESPACE) -> str:
    """The chart rendered for a cluster of this version."""
    return helm("template", "accelshare", CHART, "--namespace", namespace, "--kube-version", version, *arguments)


def documents(text: str) -> Iterator[RenderedObject]:
    for part in re.split(r"^---\n", text, flags=re.MULTILINE):
        content = yaml.safe_load(part)
        if content:
            yield RenderedObject(part, (content["metadata"].get("annotations") or {}).get("helm.sh/hook", ""))


def plain(text: str) -> str:
    """Without helm's own marks, and without the blank lines that templates leave."""
    bare = _OF_HELM.sub("", text).replace('app.kubernetes.io/managed-by: "Helm"', "app.kubernetes.io/managed-by: kubectl")
    return _EMPTY_ANNOTATIONS.sub("", bare)


def files(vendor: str) -> dict[str, str]:
    """Every file of a vendor's directory by its path there."""
    preset = PRESETS[vendor]
    parts: dict[str, list[str]] = {}
    for document in documents(template("--values", CHART / "presets" / f"{preset}.yaml")):
        parts.setdefault(_FILES[document.hook], []).append(plain(document.text))
    made = {name: _HEAD.format(preset=preset) + "---\n".join(texts) for name, texts in parts.items()}
    samples = sorted((ROOT / "examples" / vendor).iterdir())
    return made | {f"samples/{sample.name}": sample.read_text() for sample in samples}


def write(target: Path = MANIFESTS, vendors: Sequence[str] = tuple(PRESETS)) -> None:
    """Write each vendor's directory again; files that are no longer rendered are removed."""
    for vendor in vendors:
        made = files(vendor)
        shutil.rmtree(target / vendor, ignore_errors=True)
        for name, text in made.items():
            path = target / vendor / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        print(f"{target / vendor}: {', '.join(made)}")


if __name__ == "__main__":
    write()
