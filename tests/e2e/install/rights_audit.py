"""The rights that the chart grants, and those that its accounts used, by an API server's audit log.

Belongs here: reading both, and the difference. Never: what may differ.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from deploy.render import NAMESPACE
from tests.contract.chart.rendered_objects import Object


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """A right, as an account has or uses it."""

    account: str
    verb: str
    resource: str  # with its group and subresource
    namespace: str  # empty: in all of them

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.account}: {self.verb} {self.resource}{where}"


@dataclass(frozen=True, slots=True)
class Requests:
    """What our accounts asked the API server for, by its audit log."""

    uses: frozenset[Use]
    refused: tuple[str, ...]


def granted(things: list[Object]) -> set[Use]:
    """What the chart's own roles give, verb by verb. Roles that Kubernetes brings are not ours to judge."""
    rules = {
        (role["kind"], role["metadata"]["name"], role["metadata"].get("namespace", "")): role["rules"]
        for role in things
        if role["kind"] in ("Role", "ClusterRole")
    }
    found: set[Use] = set()
    for binding in things:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        namespace = binding["metadata"].get("namespace", "")
        role = binding["roleRef"]
        for rule in rules[role["kind"], role["name"], namespace if role["kind"] == "Role" else ""]:
            for group in rule["apiGroups"]:
                found |= {
                    Use(subject["name"], verb, f"{resource}.{group}".rstrip("."), namespace)
                    for subject in binding["subjects"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                }
    return found


def covers(right: Use, use: Use) -> bool:
    same = (right.account, right.verb, right.resource) == (use.account, use.verb, use.resource)
    return same and right.namespace in ("", use.namespace)


def accounts(things: list[Object]) -> set[str]:
    return {thing["metadata"]["name"] for thing in things if thing["kind"] == "ServiceAccount"}


def unused(things: list[Object], requests: Requests) -> set[str]:
    """The rights that the chart grants and nobody used."""
    return {str(right) for right in granted(things) if not any(covers(right, use) for use in requests.uses)}


def read_audit(log: Path, accounts: set[str], granted_at: Callable[[datetime], bool] = lambda _moment: True) -> Requests:
    """What these accounts asked for. A refusal counts only if they had their rights at that moment."""
    prefix = f"system:serviceaccount:{NAMESPACE}:"
    uses: set[Use] = set()
    refused: list[str] = []
    whole, _, _being_written = log.read_text().rpartition("\n")
    for line in whole.splitlines():
        event = json.loads(line)
        account = event["user"]["username"].removeprefix(prefix)
        what = event.get("objectRef")
        if account not in accounts or what is None:
            continue
        resource = "/".join(part for part in (what["resource"], what.get("subresource")) if part)
        use = Use(account, event["verb"], f"{resource}.{what.get('apiGroup', '')}".rstrip("."), what.get("namespace", ""))
        if event.get("responseStatus", {}).get("code") != 403:
            uses.add(use)
        elif granted_at(datetime.fromisoformat(event["requestReceivedTimestamp"])):
            refused.append(f"{use} ({what.get('name', '')})")
    return Requests(frozenset(uses), tuple(refused))
