"""Files to apply by hand: a configuration, a policy for an old OpenShift, or manifests of a second scheduler.

Belongs here: content for clusters whose kube-scheduler accelshare does not change. Never: files, the cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from accelshare.install.errors import NotUnderstood
from accelshare.install.scheduler import content, documents
from accelshare.install.scheduler.arguments import plain_port
from accelshare.install.scheduler.desired_config import DesiredConfig, TlsFiles
from accelshare.install.scheduler.plan import CHECKSUM, Existing, checksum, connection_variables
from accelshare.install.scheduler.release import (
    FLAGS_OVERRIDE_LEADER_ELECTION,
    POLICY,
    POLICY_ENDS,
    POLICY_TRAP,
    Kind,
    Release,
    configurations,
    dialect,
    existing_policy,
    policy_trap,
)

_OPENSHIFT_NAMESPACE: Final = "openshift-config"
_OPENSHIFT_POLICY: Final = "scheduler-policy"
# Its operator starts kube-scheduler with --v=2 and a configuration file, whose version decides.
_OPENSHIFT_TRAP: Final = """\
Check first: {trap}, unless
the configuration beside it is v1beta1, and OpenShift starts it with --v=2. This must print v1beta1:
oc -n openshift-kube-scheduler get configmap config -o yaml | grep -o 'kubescheduler.config.k8s.io/v1[a-z0-9]*'
If it prints v1beta2, do not apply this; use a second scheduler: --form second-scheduler."""
_TLS_DIRECTORY: Final = "/etc/accelshare/tls"
_CONFIG_DIRECTORY: Final = "/etc/accelshare/config"
_PORT: Final = 10259

# The keys of a Secret of type kubernetes.io/tls, and the CA beside them.
SECRET_TLS: Final = TlsFiles(f"{_TLS_DIRECTORY}/ca.crt", f"{_TLS_DIRECTORY}/tls.crt", f"{_TLS_DIRECTORY}/tls.key")


def configuration(
    desired: DesiredConfig,
    release: Release,
    *,
    kind: Kind | None = None,
    kubeconfig: str | None = None,
    existing: Existing | None = None,
    replace: tuple[str, ...] = (),
) -> bytes:
    """The file for --config or --policy-config-file: a new one, or the existing one with the extender added."""
    if existing is not None:
        policy = documents.read(existing.content, existing.path).data.get("kind") == "Policy"
        if policy:
            content.refuse_client_limits(desired)
        accepted = (existing_policy(release),) if policy else configurations(release)
        return content.merged(existing.content, name=existing.path, accepted=accepted, desired=desired, replace=replace)
    chosen = dialect(release, kind)
    if chosen.kind == "policy":
        content.refuse_client_limits(desired)
    moved: dict[str, Any] = plain_port({}, release)
    if kubeconfig is not None:
        moved["clientConnection"] = {"kubeconfig": kubeconfig}
    if release.minor < FLAGS_OVERRIDE_LEADER_ELECTION:
        moved["leaderElection"] = {"leaderElect": True}
    return content.fresh(chosen, desired, moved)


def notices_of_variables(desired: DesiredConfig, release: Release) -> tuple[str, ...]:
    """What a configuration file cannot say: kube-scheduler reads these settings from its environment."""
    variables = connection_variables(desired, release)
    if not variables:
        return ()
    settings = " and ".join(f"{name}={value}" for name, value in variables.items())
    return (
        f"if the extender offers HTTP/2 (--http2), set {settings} in kube-scheduler's environment: "
        "otherwise calls to a dead extender fail for 45 s",
    )


def openshift(desired: DesiredConfig, release: Release, existing: Existing | None = None, replace: tuple[str, ...] = ()) -> str:
    """The policy's ConfigMap, and the Scheduler object that names it, for OpenShift up to 4.9 (Kubernetes 1.22)."""
    if release.minor >= POLICY_ENDS:
        raise NotUnderstood(
            f"OpenShift with Kubernetes {release} has no policy any more (removed in 4.10), and its scheduler has no extenders; "
            "use a second scheduler: --form second-scheduler"
        )
    content.refuse_client_limits(desired)
    if existing is None:
        policy = content.fresh(POLICY, desired, {})
    else:
        policy = content.merged(existing.content, name=existing.path, accepted=(POLICY,), desired=desired, replace=replace)
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _OPENSHIFT_POLICY, "namespace": _OPENSHIFT_NAMESPACE},
        "data": {"policy.cfg": policy.decode()},
    }
    scheduler = {
        "apiVersion": "config.openshift.io/v1",
        "kind": "Scheduler",
        "metadata": {"name": "cluster"},
        "spec": {"policy": {"name": _OPENSHIFT_POLICY}},
    }
    comment = (
        "Apply the first document with `oc apply -f`, then name it in the Scheduler object, as in the second document:\n"
        f"""oc patch scheduler cluster --type=merge -p '{{"spec":{{"policy":{{"name":"{_OPENSHIFT_POLICY}"}}}}}}'\n"""
        """To undo: oc patch scheduler cluster --type=merge -p '{"spec":{"policy":{"name":""}}}', and delete the ConfigMap."""
    )
    if release.minor == POLICY_TRAP:
        comment = f"{_OPENSHIFT_TRAP.format(trap=policy_trap(release))}\n{comment}"
    return documents.yaml_texts([config_map, scheduler], comment=comment)


@dataclass(frozen=True, slots=True)
class SecondScheduler:
    """A second kube-scheduler, for pods that choose it by `schedulerName`."""

    name: str
    namespace: str
    image: str
    tls_secret: str | None = None
    replicas: int = 1


def image_of(release: Release) -> str:
    """Kubernetes' image of this version."""
    if not release.complete:
        raise NotUnderstood(f"{release} does not name a patch version; give one such as v1.36.4, or --image")
    return f"registry.k8s.io/kube-scheduler:{release.text.split('+')[0].split('-')[0]}"


def second_scheduler(desired: DesiredConfig, release: Release, second: SecondScheduler) -> str:
    """The manifests: ServiceAccount, RBAC, ConfigMap and Deployment."""
    election = {
        "leaderElect": True,
        "resourceLock": "leases",
        "resourceName": second.name,
        "resourceNamespace": second.namespace,
    }
    moved = {"leaderElection": election, "profiles": [{"schedulerName": second.name}], **plain_port({}, release)}
    file = content.fresh(dialect(release, "configuration"), desired, moved)
    metadata = {"name": second.name, "namespace": second.namespace}
    account = {"kind": "ServiceAccount", "name": second.name, "namespace": second.namespace}
    group = "rbac.authorization.k8s.io"
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    manifests: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        *(
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"{second.name}-{role.removeprefix('system:')}"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": [account],
            }
            for role in ("system:kube-scheduler", "system:volume-scheduler")
        ),
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{second.name}-authentication-reader", "namespace": "kube-system"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "extension-apiserver-authentication-reader"},
            "subjects": [account],
        },
        {  # system:kube-scheduler grants the Lease named kube-scheduler only
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [lease | {"verbs": ["create"]}, lease | {"resourceNames": [second.name], "verbs": ["get", "update"]}],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": second.name},
            "subjects": [account],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.yaml": file.decode()}},
        _deployment(second, metadata, checksum(file), connection_variables(desired, release)),
    ]
    return documents.yaml_texts(manifests, comment=f"Pods choose this scheduler with `schedulerName: {second.name}`.")


def _deployment(
    second: SecondScheduler, metadata: dict[str, str], config_checksum: str, variables: Mapping[str, str]
) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": second.name}
    mounts: list[dict[str, Any]] = [{"name": "config", "mountPath": _CONFIG_DIRECTORY, "readOnly": True}]
    volumes: list[dict[str, Any]] = [{"name": "config", "configMap": {"name": second.name}}]
    if second.tls_secret is not None:
        mounts.append({"name": "tls", "mountPath": _TLS_DIRECTORY, "readOnly": True})
        volumes.append({"name": "tls", "secret": {"secretName": second.tls_secret}})
    probe = {"httpGet": {"path": "/healthz", "port": _PORT, "scheme": "HTTPS"}}
    container: dict[str, Any] = {
        "name": "kube-scheduler",
        "image": second.image,
        "command": ["kube-scheduler", f"--config={_CONFIG_DIRECTORY}/config.yaml"],
        **({"env": [{"name": name, "value": value} for name, value in variables.items()]} if variables else {}),
        "livenessProbe": {**probe, "initialDelaySeconds": 15},
        "readinessProbe": probe,
        "resources": {"requests": {"cpu": "100m"}},
        # Allowed by the Pod Security level `restricted` and by OpenShift's default SCC.
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": mounts,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": second.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {CHECKSUM: config_checksum}},
                "spec": {
                    "serviceAccountName": second.name,
                    "priorityClassName": "system-cluster-critical",
                    "containers": [container],
                    "volumes": volumes,
                },
            },
        },
    }
