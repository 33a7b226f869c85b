"""The Go module that an older kube-scheduler is built from."""

from pathlib import Path

import pytest

from cluster import old_scheduler
from cluster.errors import BuildError

GO_MOD = """\
module k8s.io/kubernetes

go 1.13

require (
\tgithub.com/json-iterator/go v1.1.8
\tk8s.io/api v0.0.0
)

replace (
\tgithub.com/modern-go/reflect2 => github.com/modern-go/reflect2 v1.0.1
\tk8s.io/api => ./staging/src/k8s.io/api
\tvbom.ml/util => vbom.ml/util v0.0.0-20160121211510-db5cfe13f5cc
)
"""


def test_the_module_requires_what_kubernetes_does_from_where_it_can_be_had() -> None:
    made = old_scheduler._module(GO_MOD, "1.18.19")
    lines = [line.strip() for line in made.splitlines() if line.strip()]
    assert lines[0] == "module old-scheduler"
    assert "k8s.io/api => k8s.io/api v0.18.19" in lines
    assert "github.com/modern-go/reflect2 => github.com/modern-go/reflect2 v1.0.2" in lines
    assert lines[-2:] == ["require k8s.io/kubernetes v1.18.19", "replace vbom.ml/util => ./absent"]
    assert made.count("vbom.ml/util =>") == 1


def test_programs_are_found_where_they_are_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kube-scheduler-1.18.19", "kube-scheduler-1.9.11", "kube-scheduler-1.31.4", "notes"):
        (tmp_path / name).touch()
    monkeypatch.setenv("ACCELSHARE_OLD_SCHEDULERS", str(tmp_path))
    assert list(old_scheduler.built()) == ["1.9.11", "1.18.19", "1.31.4"]
    monkeypatch.delenv("ACCELSHARE_OLD_SCHEDULERS")
    assert old_scheduler.built(tmp_path / "empty") == {}


@pytest.mark.parametrize("text", ["1.18", "v1.18.19", "latest", "1.18.19; rm"])
def test_what_is_no_version_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"such as 1\.18\.19|must look like 1\.18\.19"):
        old_scheduler.build(text, print, tmp_path)
