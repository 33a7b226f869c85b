"""The permissions of the certificate job, the managers and the uninstall, as the tests grant them.

Belongs here: the rules as objects. Never: a test.
"""

from typing import Any

from tests.e2e.scheduling_cluster import SchedulingCluster

SECRETS = ["accelshare-ca", "accelshare-extender-tls", "accelshare-scheduler-tls"]
STATE = "accelshare-scheduler-config"
Rule = dict[str, Any]


def rule(group: str, resource: str, verbs: str, names: list[str] | None = None) -> Rule:
    return {"apiGroups": [group], "resources": [resource], "verbs": verbs.split(), **({"resourceNames": names} if names else {})}


RIGHTS: dict[str, list[Rule]] = {
    "accelshare-certificates": [
        rule("", "secrets", "create"),
        rule("", "secrets", "get patch delete", SECRETS),
        rule("", "services", "get", ["accelshare-extender"]),
    ],
    "accelshare-scheduler-manager": [
        rule("", "secrets", "create"),
        rule("", "secrets", "get patch", SECRETS),
        rule("", "services", "get", ["accelshare-extender"]),
        rule("", "configmaps", "get patch", [STATE]),
        rule("coordination.k8s.io", "leases", "create"),
        rule("coordination.k8s.io", "leases", "get patch", [STATE]),
        rule("", "events", "create get patch"),
    ],
    "accelshare-restore": [
        rule("", "configmaps", "get patch", [STATE]),
        rule("coordination.k8s.io", "leases", "delete", [STATE]),
    ],
}


async def grant(scheduling_cluster: SchedulingCluster, user: str, namespace: str) -> None:
    """These rights, in this namespace, to this user."""
    place = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    api = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    await scheduling_cluster.create(f"{place}/roles", {**api, "kind": "Role", "metadata": {"name": user}, "rules": RIGHTS[user]})
    binding = {
        "kind": "RoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    await scheduling_cluster.create(f"{place}/rolebindings", {**api, **binding})
    first = RIGHTS[user][0]
    asked = {"namespace": namespace, "verb": first["verbs"][0], "resource": first["resources"][0]}
    review = {"spec": {"user": user, "resourceAttributes": asked | {"name": first.get("resourceNames", [""])[0]}}}

    async def in_force() -> bool:
        """The API server's authorizer hears of new rights a moment after they were created."""
        answer = await scheduling_cluster.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    await scheduling_cluster.until(in_force, f"{user} has its rights in {namespace}")
