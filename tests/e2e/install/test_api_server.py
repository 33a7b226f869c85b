"""A real API server accepts every field of the chart and of the plain manifests."""

import pytest
import yaml

from cluster.control_plane import ControlPlane
from cluster.errors import KubectlError
from deploy.render import MANIFESTS, PRESETS, documents, template
from tests.contract.chart.rendered_objects import EVERYTHING, MIXTURES, SECOND, Object, objects, pods, preset, setting

pytestmark = pytest.mark.real


def dry_run(plane: ControlPlane, text: str) -> str:
    """The server's own validation, strict about unknown and repeated fields; nothing is kept."""
    return plane.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename=-", stdin=text)


@pytest.mark.parametrize("arguments", MIXTURES, ids=" ".join)
def test_the_server_accepts_what_the_chart_makes(control_plane: ControlPlane, arguments: list[str]) -> None:
    of_operators = ("kind: PodMonitor", "kind: PrometheusRule")  # kinds that this API server does not have
    known = [made for made in documents(template(*arguments)) if not any(kind in made.text for kind in of_operators)]
    accepted = dry_run(control_plane, "---\n".join(document.text for document in known))
    assert accepted.count("(server dry run)") == len(known)


def test_the_server_would_see_a_field_that_is_none(control_plane: ControlPlane) -> None:
    text = template(*preset("gpushare")).replace("terminationGracePeriodSeconds:", "terminationGraceSeconds:")
    with pytest.raises(KubectlError, match="unknown field"):
        dry_run(control_plane, text)


@pytest.mark.parametrize("vendor", PRESETS)
def test_the_server_accepts_the_plain_manifests_and_samples(control_plane: ControlPlane, vendor: str) -> None:
    for path in sorted((MANIFESTS / vendor).rglob("*")):
        if path.is_file():
            assert "(server dry run)" in dry_run(control_plane, path.read_text()), path


def test_all_pods_but_agents_and_manager_are_restricted(control_plane: ControlPlane) -> None:
    """Pod Security's strictest level, as the API server itself enforces it."""
    namespace = "restricted-here"
    labels = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}
    control_plane.kubectl(
        "apply",
        "--filename=-",
        stdin=yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}),
    )
    try:
        # The extender's log directory is the host's; without one it is restricted too.
        made = pods(objects(*EVERYTHING, *SECOND, *setting(logs__directory="")))
        refused = [title for title, spec in made if not restricted(control_plane, namespace, spec)]
        assert refused == ["DaemonSet/stc-device-plugin-daemonset"]
    finally:
        control_plane.kubectl("delete", "namespace", namespace, "--wait=false")


def restricted(plane: ControlPlane, namespace: str, spec: Object) -> bool:
    """Is this pod admitted there?"""
    without = {key: value for key, value in spec.items() if key != "priorityClassName"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": namespace}, "spec": without}
    try:
        dry_run(plane, yaml.safe_dump(pod))
    except KubectlError as error:
        if "violates PodSecurity" not in str(error):
            raise
        return False
    return True
