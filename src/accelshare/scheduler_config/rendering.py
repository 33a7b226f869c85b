"""Whole files for a person to apply: the configuration alone, an old OpenShift's policy, or a scheduler of our own.

Belongs here: content for clusters whose kube-scheduler we do not touch. Never: files, the cluster.
"""

from dataclasses import dataclass
from typing import Any, Final

from accelshare.scheduler_config import content, documents
from accelshare.scheduler_config.plan import CHECKSUM, Existing, checksum
from accelshare.scheduler_config.problems import NotUnderstood
from accelshare.scheduler_config.release import (
    FLAGS_OVERRIDE_LEADER_ELECTION,
    POLICY,
    POLICY_ENDS,
    Kind,
    Release,
    configurations,
    dialect,
)
from accelshare.scheduler_config.wish import Tls, Wish

_OPENSHIFT_NAMESPACE: Final = "openshift-config"
_OPENSHIFT_POLICY: Final = "scheduler-policy"
_TLS_DIRECTORY: Final = "/etc/accelshare/tls"
_CONFIG_DIRECTORY: Final = "/etc/accelshare/config"
_PORT: Final = 10259

# The keys that Secrets of kind kubernetes.io/tls have, with the CA beside them.
SECRET_TLS: Final = Tls(f"{_TLS_DIRECTORY}/ca.crt", f"{_TLS_DIRECTORY}/tls.crt", f"{_TLS_DIRECTORY}/tls.key")


def configuration(
    wish: Wish,
    release: Release,
    *,
    kind: Kind | None = None,
    kubeconfig: str | None = None,
    existing: Existing | None = None,
    replace: tuple[str, ...] = (),
) -> bytes:
    """The file that --config or --policy-config-file names; an existing one is kept, with the extender in it."""
    if existing is not None:
        policy = documents.read(existing.content, existing.path).data.get("kind") == "Policy"
        if policy:
            dialect(release, "policy")  # refuses it in words where there is none any more
        accepted = (POLICY,) if policy else configurations(release)
        return content.merged(existing.content, name=existing.path, accepted=accepted, wish=wish, replace=replace)
    moved: dict[str, Any] = {}
    if kubeconfig is not None:
        moved["clientConnection"] = {"kubeconfig": kubeconfig}
    if release.minor < FLAGS_OVERRIDE_LEADER_ELECTION:
        moved["leaderElection"] = {"leaderElect": True}
    return content.fresh(dialect(release, kind), wish, moved)


def openshift(wish: Wish, release: Release, existing: Existing | None = None, replace: tuple[str, ...] = ()) -> str:
    """The policy's ConfigMap, and the Scheduler object that names it, for OpenShift up to 4.9 (Kubernetes 1.22)."""
    if release.minor >= POLICY_ENDS:
        raise NotUnderstood(
            f"OpenShift with Kubernetes {release} has no policy any more (gone in 4.10), and its scheduler takes no extender; "
            "use a second scheduler: --form second-scheduler"
        )
    policy = configuration(wish, release, kind="policy", existing=existing, replace=replace).decode()
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _OPENSHIFT_POLICY, "namespace": _OPENSHIFT_NAMESPACE},
        "data": {"policy.cfg": policy},
    }
    scheduler = {
        "apiVersion": "config.openshift.io/v1",
        "kind": "Scheduler",
        "metadata": {"name": "cluster"},
        "spec": {"policy": {"name": _OPENSHIFT_POLICY}},
    }
    comment = (
        "Apply the first document with `oc apply -f`, then name it in the Scheduler, which the second one shows:\n"
        f"""oc patch scheduler cluster --type=merge -p '{{"spec":{{"policy":{{"name":"{_OPENSHIFT_POLICY}"}}}}}}'\n"""
        """To undo: oc patch scheduler cluster --type=merge -p '{"spec":{"policy":{"name":""}}}', and delete the ConfigMap."""
    )
    return documents.yaml_texts([config_map, scheduler], comment=comment)


@dataclass(frozen=True, slots=True)
class SecondScheduler:
    """A kube-scheduler of our own, for pods that choose it by `schedulerName`."""

    name: str
    namespace: str
    image: str
    tls_secret: str | None = None
    replicas: int = 1


def image_of(release: Release) -> str:
    """Kubernetes' own image of this version."""
    if not release.complete:
        raise NotUnderstood(f"{release} does not name an image; give the whole version such as v1.36.4, or --image")
    return f"registry.k8s.io/kube-scheduler:{release.text.split('+')[0].split('-')[0]}"


def second_scheduler(wish: Wish, release: Release, second: SecondScheduler) -> str:
    """Manifests: account, rights, configuration and Deployment."""
    election = {
        "leaderElect": True,
        "resourceLock": "leases",
        "resourceName": second.name,
        "resourceNamespace": second.namespace,
    }
    moved = {"leaderElection": election, "profiles": [{"schedulerName": second.name}]}
    file = content.fresh(dialect(release, "configuration"), wish, moved)
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
        {  # system:kube-scheduler may use the lease of the name kube-scheduler only
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
        _deployment(second, metadata, checksum(file)),
    ]
    return documents.yaml_texts(manifests, comment=f"Pods choose this scheduler with `schedulerName: {second.name}`.")


def _deployment(second: SecondScheduler, metadata: dict[str, str], summed: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": second.name}
    mounts: list[dict[str, Any]] = [{"name": "config", "mountPath": _CONFIG_DIRECTORY, "readOnly": True}]
    volumes: list[dict[str, Any]] = [{"name": "config", "configMap": {"name": second.name}}]
    if second.tls_secret is not None:
        mounts.append({"name": "tls", "mountPath": _TLS_DIRECTORY, "readOnly": True})
        volumes.append({"name": "tls", "secret": {"secretName": second.tls_secret}})
    probe = {"httpGet": {"path": "/healthz", "port": _PORT, "scheme": "HTTPS"}}
    container = {
        "name": "kube-scheduler",
        "image": second.image,
        "command": ["kube-scheduler", f"--config={_CONFIG_DIRECTORY}/config.yaml"],
        "livenessProbe": {**probe, "initialDelaySeconds": 15},
        "readinessProbe": probe,
        "resources": {"requests": {"cpu": "100m"}},
        # What Pod Security calls restricted, and OpenShift's default SCC too: no rights beyond the ServiceAccount's.
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
                "metadata": {"labels": labels, "annotations": {CHECKSUM: summed}},
                "spec": {
                    "serviceAccountName": second.name,
                    "priorityClassName": "system-cluster-critical",
                    "containers": [container],
                    "volumes": volumes,
                },
            },
        },
    }
