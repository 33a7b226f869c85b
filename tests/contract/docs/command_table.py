"""Which test runs each command of the docs.

The test file of a page runs its commands, except those in two lists: what another test does on a real cluster (ELSEWHERE), and
what cannot run on a test machine (NOT_HERE). Belongs here: rows. Never: running.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tests.contract.docs.pages import Command

# The test file whose scene types the commands of a page.
SCENES: Mapping[str, str] = {
    "CONTRIBUTING.md": "test_without_cluster.py",
    "README.md": "test_install.py",
    "docs/how-to/add-a-vendor.md": "test_without_cluster.py",
    "docs/how-to/agent.md": "test_node.py",
    "docs/how-to/delivery.md": "test_node.py",
    "docs/how-to/doctor.md": "test_inspect.py",
    "docs/how-to/extender.md": "test_extender.py",
    "docs/how-to/images.md": "test_without_cluster.py",
    "docs/how-to/inspect.md": "test_inspect.py",
    "docs/how-to/install.md": "test_install.py",
    "docs/how-to/monitoring.md": "test_without_cluster.py",
    "docs/how-to/preflight.md": "test_inspect.py",
    "docs/how-to/scheduler-config.md": "test_scheduler_config.py",
    "docs/how-to/tls.md": "test_extender.py",
    "docs/how-to/usage.md": "test_inspect.py",
    "docs/migrate-from-gcushare.md": "test_migration.py",
    "docs/migrate-from-gpushare.md": "test_migration.py",
    "docs/migrate-from-stc.md": "test_migration.py",
    "docs/migrate-from-xpushare.md": "test_migration.py",
    "docs/reference/cli.md": "test_reference.py",
    "docs/reference/profiles.md": "test_without_cluster.py",
}

# What may be typed at all: a program that is not here might do anything.
PROGRAMS = frozenset(
    {"accelshare", "chmod", "curl", "for", "helm", "inspect.sh", "kubeadm", "kubectl", "mkdir"}
    | {"openssl", "pip", "printf", "python3", "systemctl"}
)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another test does just this, on a real cluster; `words` are its own for it."""

    pattern: str
    file: str
    words: tuple[str, ...]
    page: str = ""  # on this page only


ELSEWHERE: tuple[Elsewhere, ...] = (
    Elsewhere(r"make demo", "tests/contract/test_demo.py", ('COMMAND = [sys.executable, "-m", "demo"]',)),
    Elsewhere(
        r"make demo PROFILES=my-profiles", "tests/contract/test_demo.py", ('[*COMMAND, "--profiles", str(directory / "own")]',)
    ),
    Elsewhere(
        r"pipx install '\.\[demo\]'",
        "tests/contract/test_dist.py",
        ('"install", "--quiet", "--no-deps"', 'run(installed / "accelshare", "demo"'),
    ),
    Elsewhere(
        r"accelshare inspect --quota( -n team-a -o json)?",
        "tests/contract/test_inspect_quota.py",
        ('"inspect", "--quota")', '"inspect", "--quota", "-n", "team-b"'),
        page="docs/how-to/queues-and-quotas.md",
    ),
    Elsewhere(r"make up", "tests/e2e/docs/test_tour.py", ('UP = ("up", "--fake-cards", "--accelshare")', "command(*UP)")),
    Elsewhere(
        r"export KUBECONFIG=/var/lib/accelshare-local/.*|kubectl apply -f examples/tour\.yaml|accelshare explain gcushare-pod-4",
        "tests/e2e/docs/test_tour.py",
        ('sections("README.md")["Five minutes on a real cluster"]',),
        page="README.md",
    ),
    Elsewhere(
        r"(export|kubectl|accelshare) .*",
        "tests/e2e/docs/test_tour.py",
        ('commands("docs/tutorial.md")', "play.type_all(page[begin:-1])"),
        page="docs/tutorial.md",
    ),
    Elsewhere(r"make down", "tests/e2e/docs/test_tour.py", ('DOWN = ("down",)', "command(*DOWN)")),
    Elsewhere(
        r"helm (install|uninstall) accelshare .*|kubectl (rollout|apply|get pods|exec|delete) ?.*"
        r"|accelshare (inspect|explain .*)",
        "tests/e2e/docs/test_tour.py",
        ('sections("docs/how-to/try-without-hardware.md")', "test_fake_cards_of_the_preset"),
        page="docs/how-to/try-without-hardware.md",
    ),
    Elsewhere(
        r"helm test accelshare .*", "tests/e2e/install/test_on_cluster.py", ('installed_cluster.helm("test", accelshare.RELEASE',)
    ),
    Elsewhere(
        r"kubectl rollout status daemonset/accelshare-agent .*",
        "tests/e2e/install/installed_cluster.py",
        ('"rollout", "status", f"daemonset/{self.agent}"', 'self.agent = "accelshare-agent"'),
    ),
    Elsewhere(
        r"kubectl exec POD -- sh -c 'ls /dev/stc\*'",
        "tests/e2e/install/test_on_cluster.py",
        ('installed_cluster.local.exec(pod, "ls", "/dev"', '("gcu", "xpu", "stc")'),
    ),
    Elsewhere(
        r"kubectl logs --namespace kube-system job/accelshare-uninstall --all-containers --prefix",
        "tests/e2e/docs/test_tour.py",
        ('JOB = "accelshare-uninstall"', "play.type_all(logs_of(JOB))"),
    ),
    Elsewhere(
        r"deploy/scripts/deploy\.sh .*", "tests/e2e/install/test_scripts.py", ('"deploy.sh", "--preset", "gpushare", stdin=',)
    ),
    Elsewhere(r"deploy/scripts/inspect\.sh", "tests/e2e/install/test_on_cluster.py", ('installed_cluster.script("inspect.sh"',)),
    Elsewhere(r"deploy/scripts/delete\.sh", "tests/e2e/install/test_scripts.py", ('admin.script("delete.sh")',)),
    Elsewhere(
        r"systemctl (stop|start) kubelet|rm /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
        "tests/e2e/node/test_by_runtime.py",
        ("kill_kubelet()", 'device-plugins/kubelet_internal_checkpoint").unlink()', "local.start_kubelet)"),
    ),
    Elsewhere(
        r"accelshare dashboard",
        "tests/contract/dashboard_process.py",
        ('"-m", "accelshare", "dashboard"',),
    ),
    Elsewhere(
        r"helm template accelshare .* --show-only .*|kubectl apply --filename uninstall\.yaml"
        r"|kubectl wait .* job/accelshare-uninstall .*",
        "tests/contract/chart/test_adjusting.py",
        ('"--show-only", "templates/hooks/uninstall.yaml"', '"accelshare-uninstall"'),
        page="docs/how-to/gitops.md",
    ),
    Elsewhere(
        r"helm install accelshare .* --values deploy/chart/accelshare/presets/gpushare\.yaml",
        "tests/contract/docs/test_install.py",
        ('"docs/how-to/install.md"',),  # which has the same command
        page="deploy/chart/accelshare/README.md",
    ),
    Elsewhere(r"promtool check rules .*", "tests/contract/test_monitoring.py", ('if words.startswith("promtool ")',)),
    Elsewhere(r'make image IMAGE_FLAGS="--from-debian .*', "tests/e2e/image/conftest.py", ("build_with_debian(print)",)),
    Elsewhere(r"ctr -n k8s\.io images import .*", "cluster/local/bring_up.py", ('"--namespace", "k8s.io"', '"images", "import"')),
)

# What cannot run where accelshare is tested, and why. Keep it short: each row is a sentence of the docs that nobody has tried.
NOT_HERE: Mapping[str, str] = {
    r"make (check|test|test-(real|nodes|coscheduling|vm)|fuzz|trust|format|site)": "it checks or changes this checkout",
    r"(docker|podman) .*": "there is no docker daemon and no podman",
    r"(kind|minikube) .*": "they need docker or a hypervisor",
    r"helm upgrade accelshare .* --set extender\.dashboard=true|kubectl port-forward .* 12348": "port-forward serves until it is "
    "ended and needs an installed chart; the flag and the rights are tested in tests/contract/chart",
    r"make image( IMAGE_FLAGS=\"--engine .*)?|deploy/scripts/build-image\.sh": "there is no registry to take a base image from",
}

# Commands that serve until they are terminated, and a pattern of the text by which each reports that it serves.
SERVERS: Mapping[str, str] = {
    r"accelshare extender ": r" ready\n",
    r"accelshare agent ": r" agent node=worker-0 ",
    r"accelshare scheduler-config manage --node-name": r"apply node=cp-1 outcome=applied",
}
WATCHES: Mapping[str, str] = {r".* --watch": r"Allocated/Total"}

# Exit codes that the pages explain; all others are 0.
CODES: Mapping[str, int] = {r"accelshare inspect minikub": 1, r"accelshare doctor( -o json)?": 1}


def elsewhere(command: Command) -> Elsewhere | None:
    rows = (row for row in ELSEWHERE if row.page in ("", command.page))
    return next((row for row in rows if re.fullmatch(row.pattern, bare(command))), None)


def not_here(command: Command) -> str:
    return next((why for pattern, why in NOT_HERE.items() if re.fullmatch(pattern, bare(command))), "")


def typed(command: Command) -> bool:
    """The scene of its page types it."""
    return elsewhere(command) is None and not not_here(command)


def sign(table: Mapping[str, str], command: Command) -> str:
    return next((sign for pattern, sign in table.items() if re.match(pattern, command.words)), "")


def code(command: Command) -> int:
    return next((code for pattern, code in CODES.items() if re.fullmatch(pattern, bare(command))), 0)


def bare(command: Command) -> str:
    """Without the reader's comment."""
    return re.sub(r" +#.*", "", command.words)
