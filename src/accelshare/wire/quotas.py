"""Reads ResourceQuotas: how much of the managed resources a namespace may request, and how much it does.

Belongs here: reading one object. Never: enforcing a quota; the API server does.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from accelshare.vendors.catalog import Catalog
from accelshare.wire.decoding import Decoder
from accelshare.wire.objects import Metadata, Quantity
from accelshare.wire.quantity import whole_number

# `requests.vendor.io/memory: 64`; an extended resource has only requests, which equal its limits.
PREFIX: Final = "requests."
MOST_ROWS: Final = 100  # of one object


class _Status(msgspec.Struct):
    hard: dict[str, Quantity] | None = None
    used: dict[str, Quantity] | None = None


class _Quota(msgspec.Struct):
    metadata: Metadata
    status: _Status | None = None


class QuotaRow(msgspec.Struct, frozen=True, order=True):
    """One resource of one quota."""

    namespace: str
    quota: str
    kind: str
    resource: str
    hard: int
    used: int

    @property
    def left(self) -> int:
        """What may still be requested; 0 after a quota was lowered below what is used."""
        return max(0, self.hard - self.used)


class Quota(msgspec.Struct, frozen=True):
    uid: str
    rows: tuple[QuotaRow, ...]


class QuotaReader:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._decode = Decoder(_Quota).decode

    def decode(self, raw: msgspec.Raw | bytes) -> Quota | None:
        """The managed resources of this quota; None if it has none."""
        quota = self._decode(raw)
        hard: Mapping[str, Quantity] = (quota.status.hard if quota.status else None) or {}
        used: Mapping[str, Quantity] = (quota.status.used if quota.status else None) or {}
        rows: list[QuotaRow] = []
        for key, amount in sorted(hard.items()):
            resource = key.removeprefix(PREFIX)
            found = self._catalog.by_resource(resource) if key.startswith(PREFIX) else None
            most = whole_number(amount)
            if found is not None and most is not None and len(rows) < MOST_ROWS:
                taken = whole_number(used.get(key, 0)) or 0
                rows.append(QuotaRow(quota.metadata.namespace, quota.metadata.name, found[0].name, resource, most, taken))
        return Quota(quota.metadata.uid, tuple(rows)) if rows else None
