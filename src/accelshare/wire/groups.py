"""Reads which group a pod belongs to, if its members are to be scheduled all together or not at all.

Belongs here: how Kubernetes and the coscheduling plugin name a group. Never: how many members it needs.
"""

from typing import Final

import msgspec

from accelshare.wire.objects import Metadata

GROUP_LABELS: Final = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")  # of the coscheduling plugin
LONGEST_GROUP: Final = 1_000  # characters
_ABSENT: Final = (b"", b"null")


def group_of(metadata: Metadata, scheduling_group: msgspec.Raw, workload_ref: msgspec.Raw) -> str:
    """A text that is the same for all members of a group and for no other pod; empty for a pod without a group.

    `spec.schedulingGroup` (Kubernetes 1.36) and `spec.workloadRef` (1.35) are compared as they are written.
    """
    for raw in (scheduling_group, workload_ref):
        if bytes(raw) not in _ABSENT:
            return f"{metadata.namespace}/{bytes(raw).decode(errors='replace')}"[:LONGEST_GROUP]
    labels = metadata.labels
    if labels:
        for label in GROUP_LABELS:
            if labels.get(label):
                return f"{metadata.namespace}/{labels[label]}"
    return ""
