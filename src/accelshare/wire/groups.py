"""Reads which group a pod belongs to, if its members are to be scheduled all together or not at all.

Belongs here: how Kubernetes and the coscheduling plugin name a group. Never: how many members it needs.
"""

from typing import Final, NamedTuple

import msgspec

from accelshare.wire.objects import Metadata

GROUP_LABELS: Final = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")  # of the coscheduling plugin
LONGEST_GROUP: Final = 1_000  # characters
_ABSENT: Final = (b"", b"null")


class Group(NamedTuple):
    """A group, the same for all members and for no other pod."""

    name: str
    # coscheduling: kube-scheduler asks for the members one by one, as for any pod, and each waits at Permit for the others.
    # Workload API: it asks for all members before it asks for any other pod.
    waits_at_permit: bool = False


def group_of(metadata: Metadata, scheduling_group: msgspec.Raw, workload_ref: msgspec.Raw) -> Group | None:
    """The pod's group, if it has one.

    `spec.schedulingGroup` (Kubernetes 1.36) and `spec.workloadRef` (1.35) are compared as they are written.
    """
    for raw in (scheduling_group, workload_ref):
        if bytes(raw) not in _ABSENT:
            return Group(f"{metadata.namespace}/{bytes(raw).decode(errors='replace')}"[:LONGEST_GROUP])
    labels = metadata.labels
    if labels:
        for label in GROUP_LABELS:
            if labels.get(label):
                return Group(f"{metadata.namespace}/{labels[label]}", waits_at_permit=True)
    return None
