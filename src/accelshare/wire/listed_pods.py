"""Reads the pods of a list in protobuf for the ledger, faster than pods.py reads pods one by one.

Belongs here: which parts of a message must be decoded. Never: another result than that of pods.py.

A start with 50,000 pods is a list of 50,000 messages, and each part of a message that Python touches costs about a microsecond.
"""

from sys import intern

from accelshare.ledger.facts import AgentSeen, PodSeen
from accelshare.vendors.refusal_texts import ENFORCEMENT_ANNOTATION
from accelshare.wire import kubernetes_pb2 as messages
from accelshare.wire import resizing
from accelshare.wire.decoding import version_number
from accelshare.wire.pods import AGENT_LABEL, ENDED, PodReader, TemplateCache, TemplateRead
from accelshare.wire.protobuf import creation_of, has_binding, pod_of


class ListedPodReader:
    def __init__(self, reader: PodReader) -> None:
        self._reader = reader
        self._templates = TemplateCache()

    def read(self, message: messages.Pod) -> PodSeen | AgentSeen | None:
        """The same as `PodReader.read` returns for the decoded message."""
        template = self._template(message)
        read = self._templates.get(template)
        if read is None:
            read = self._reader.read_template(pod_of(message))
            self._templates.add(template, read)
        request, refusal, _ = read
        if request or refusal is not None:
            return self._bound(message, read) or self._reader.read(pod_of(message))
        return self._reader.read(pod_of(message)) if AGENT_LABEL in message.metadata.labels else None

    def _bound(self, message: messages.Pod, read: TemplateRead) -> PodSeen | None:
        """Nearly every pod that requests cards is bound, was not rejected by kubelet and is not to be resized."""
        metadata, spec, status = message.metadata, message.spec, message.status
        node, annotations = spec.node_name, metadata.annotations
        if not node or status.reason or resizing.RESIZE in annotations:
            return None
        request, slices, problems = self._reader.read_record(annotations, read[0])
        return PodSeen(
            metadata.uid,
            intern(metadata.namespace),
            metadata.name,
            request,
            version_number(metadata.resource_version),
            intern(node),
            slices,
            ended=status.phase in ENDED,
            started=status.HasField("start_time"),
            scheduled=has_binding(status),
            priority=spec.priority,
            created=creation_of(metadata) or "",
            needs=read[2],
            refusal=read[1],
            problems=problems,
            granted=resizing.granted(annotations.get(resizing.GRANTED)),
        )

    def _template(self, message: messages.Pod) -> object:
        """Everything that a request is read from. The resources of containers are compared as they are encoded."""
        labels, annotations, spec = message.metadata.labels, message.metadata.annotations, message.spec
        inits, overhead = spec.init_containers, spec.overhead
        # A copy of a repeated field is a list, which is read several times as fast.
        return (
            tuple([container.resources for container in spec.containers[:]]),
            tuple([(container.resources, container.restart_policy) for container in inits[:]]) if inits else (),
            spec.resources,
            tuple([(name, amount.text) for name, amount in overhead.items()]) if overhead else (),
            annotations.get(ENFORCEMENT_ANNOTATION),
            *map(labels.get, self._reader.count_labels),
            *map(annotations.get, self._reader.count_annotations),
        )
