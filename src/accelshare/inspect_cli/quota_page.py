"""`accelshare inspect --quota`: how much of the managed resources each namespace may request, and how much it does.

Belongs here: reading ResourceQuotas and printing them. Never: enforcing them; the API server does.
"""

from collections.abc import Collection
from typing import Any

from accelshare.inspect_cli.cluster_reader import require_namespace
from accelshare.inspect_cli.page import written
from accelshare.kube.sync_client import SyncClient
from accelshare.report.tables import tabbed
from accelshare.vendors.catalog import Catalog
from accelshare.wire.quotas import QuotaReader, QuotaRow

HEAD = ["NAMESPACE", "QUOTA", "RESOURCE", "USED", "HARD", "LEFT"]


def quota_page(client: SyncClient, catalog: Catalog, *, namespace: str, vendors: Collection[str], output: str) -> tuple[str, str]:
    """The page, and a note for standard error. No vendors: all."""
    where = f"namespaces/{namespace}/resourcequotas" if namespace else "resourcequotas"
    quotas = map(QuotaReader(catalog).decode, client.items(f"/api/v1/{where}"))
    rows = sorted(row for quota in quotas if quota is not None for row in quota.rows if not vendors or row.kind in vendors)
    if namespace and not rows:
        require_namespace(client, namespace)
    note = "" if rows else f"no ResourceQuota {f'of namespace {namespace} ' if namespace else ''}limits resources of cards"
    if output in ("json", "yaml"):
        return written({"quotas": [_document(row) for row in rows]}, output), note
    return tabbed([HEAD, *(_line(row) for row in rows)]), note


def _line(row: QuotaRow) -> list[str]:
    return [row.namespace, row.quota, row.resource, str(row.used), str(row.hard), str(row.left)]


def _document(row: QuotaRow) -> dict[str, Any]:
    names = {"namespace": row.namespace, "quota": row.quota, "vendor": row.kind, "resource": row.resource}
    return {**names, "used": row.used, "hard": row.hard, "left": row.left}
