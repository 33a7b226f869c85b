"""The shell scripts pass sh and shellcheck, and each prints its help."""

import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from cluster.debian_programs import SHELLCHECK, ensure
from cluster.errors import ClusterError

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted([*(ROOT / "deploy").glob("*.sh"), *(ROOT / "deploy/scripts").glob("*.sh")])
TO_CALL = [script for script in SCRIPTS if script.name != "common.sh"]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_is_one(script: Path) -> None:
    assert run("/bin/sh", "-n", script).returncode == 0
    if script in TO_CALL:
        text = script.read_text()
        assert text.startswith("#!/bin/sh\n")
        assert "\nset -eu\n" in text
        assert script.stat().st_mode & 0o111 == 0o111


@pytest.fixture(scope="module")
def shellcheck() -> Path:
    try:
        return ensure(SHELLCHECK, print)
    except ClusterError as error:
        pytest.skip(f"no shellcheck: {error}")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_shellcheck_finds_nothing(shellcheck: Path, script: Path) -> None:
    done = run(shellcheck, "--external-sources", "--source-path=SCRIPTDIR", script)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "script", [script for script in TO_CALL if script.parent.name == "scripts"], ids=lambda script: script.name
)
def test_a_script_tells_its_manual(script: Path) -> None:
    done = run(script, "--help")
    assert done.returncode == 0
    assert script.name in done.stderr
    assert "set -eu" not in done.stderr
    assert not done.stderr.startswith("#")


def program(place: Path, text: str) -> Path:
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)
    return place


def test_a_search_path_for_directories_leads_no_script_astray() -> None:
    """With CDPATH, which many shells have, `cd` also prints where it went."""
    done = run("env", "--chdir", ROOT, "CDPATH=.", "HELM=/nowhere/helm", "deploy/scripts/deploy.sh", "--preset", "gpushare")
    assert "deploy.sh: /nowhere/helm is not on PATH\n" in done.stderr


def test_a_large_cluster_can_share_all_its_nodes(tmp_path: Path) -> None:
    """The kernel takes no single word of more than 128 KiB."""
    names = [f"ip-10-{number // 250}-0-{number % 250}.a-region.compute.internal" for number in range(4000)]
    (tmp_path / "nodes").write_text("".join(f"{name}\n" for name in names))
    kubectl = program(tmp_path / "kubectl", f'[ "$1" != get ] || cat {tmp_path}/nodes')
    helm = program(tmp_path / "helm", f'[ "$1" = list ] || {{ echo "$@" >{tmp_path}/output; cat >{tmp_path}/values; }}')
    script = ROOT / "deploy/scripts/deploy.sh"
    done = run("env", f"KUBECTL={kubectl}", f"HELM={helm}", script, "--preset", "gpushare", "--all-nodes", "--", "--set", "a=b")
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load((tmp_path / "values").read_text()) == {"nodes": {"names": names}}
    words = (tmp_path / "output").read_text().split()
    assert [words[at + 1] for at, word in enumerate(words) if word == "--values"][1:] == ["-"]
    assert words[-2:] == ["--set", "a=b"]


@pytest.mark.parametrize(
    ("secret", "seen"),
    [
        ("bXk=", 'connect-to = "accelshare-extender:12345:[fd00:96::1f]:12345"'),
        ("", "http://[fd00:96::1f]:12345/gcushare-scheduler/inspect"),
    ],
)
def test_inspect_finds_an_extender_that_has_an_ipv6_address(tmp_path: Path, secret: str, seen: str) -> None:
    answers = f'case "$*" in *services*) echo "kube-system fd00:96::1f 12345" ;; *secret*) printf %s "{secret}" ;; esac'
    kubectl = program(tmp_path / "kubectl", answers)
    program(tmp_path / "curl", f'cat "$CURL_HOME/.curlrc" >{tmp_path}/output 2>&1; echo "$@" >>{tmp_path}/output; exit 1')
    run("env", f"KUBECTL={kubectl}", f"PATH={tmp_path}:/usr/bin:/bin", ROOT / "deploy/scripts/inspect.sh")
    assert seen in (tmp_path / "output").read_text()


def test_an_image_may_be_kept_where_a_path_has_a_blank(tmp_path: Path) -> None:
    """As on somebody's desktop; what make would start is asked for, not started."""
    program(tmp_path / "make", f'exec /usr/bin/make --dry-run "$@" >{tmp_path}/output')
    output = tmp_path / "my images" / "a.tar"
    done = run(
        "env", f"PATH={tmp_path}:/usr/bin:/bin", ROOT / "deploy/scripts/build-image.sh", "--output", output, "--from-debian"
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in (tmp_path / "output").read_text().splitlines() if "cluster image" in line]
    assert shlex.split(line)[-3:] == ["--output", str(output), "--from-debian"]
