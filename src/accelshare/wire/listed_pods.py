"""Reads the pods of a list in protobuf for the ledger, faster than pods.py reads pods one by one.

Belongs here: which parts of a message must be decoded. Never: another result than that of pods.py.

A start with 50,000 pods is a list of 50,000 messages, and each part of a message that is asked for is one more object to make.
"""

from collections.abc import Mapping
from sys import intern

from accelshare.ledger.facts import AgentSeen, PodSeen
from accelshare.vendors.refusal_texts import ENFORCEMENT_ANNOTATION
from accelshare.wire import kubernetes_pb2 as messages
from accelshare.wire import resizing
from accelshare.wire.decoding import version_number
from accelshare.wire.pods import AGENT_LABEL, ENDED, PodReader, TemplateCache
from accelshare.wire.protobuf import creation_of, has_binding, pod_of


class ListedPodReader:
    def __init__(self, reader: PodReader) -> None:
        self._reader = reader
        self._templates = TemplateCache()

    def read(self, message: messages.Pod) -> PodSeen | AgentSeen | None:
        """The same as `PodReader.read` returns for the decoded message."""
        # Each is an object that is made when it is asked for, so they are asked for once.
        metadata, spec = message.metadata, message.spec
        labels, annotations = metadata.labels, metadata.annotations
        template = self._template(spec, labels, annotations)
        read = self._templates.get(template)
        if read is None:
            read = self._reader.read_template(pod_of(message))
            self._templates.add(template, read)
        request, refusal, needs = read
        if not request and refusal is None:
            return self._reader.read(pod_of(message)) if AGENT_LABEL in labels else None
        node, status = spec.node_name, message.status
        if not node or status.reason or resizing.RESIZE in annotations:
            return self._reader.read(pod_of(message))
        # Nearly every pod that requests cards: it is bound, kubelet has not rejected it, and it is not to be resized.
        request, slices, problems = self._reader.read_record(annotations, request)
        started = status.HasField("start_time")
        return PodSeen(
            metadata.uid,
            intern(metadata.namespace),
            metadata.name,
            request,
            version_number(metadata.resource_version),
            intern(node),
            slices,
            ended=status.phase in ENDED,
            started=started,
            scheduled=started or has_binding(status),
            priority=spec.priority,
            created=creation_of(metadata) or "",
            needs=needs,
            refusal=refusal,
            problems=problems,
            granted=resizing.granted(annotations.get(resizing.GRANTED)),
        )

    def _template(self, spec: messages.PodSpec, labels: Mapping[str, str], annotations: Mapping[str, str]) -> object:
        """Everything that a request is read from. The resources of containers are compared as they are encoded."""
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
