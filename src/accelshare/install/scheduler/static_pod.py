"""kube-scheduler as a static pod: add accelshare's file, its mount, its checksum and variables to kubeadm's manifest.

Belongs here: reading and editing the manifest, from bytes to bytes. Never: what the configuration says.
"""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from accelshare.install.errors import NotUnderstood
from accelshare.install.host_files.changes import PlannedFile
from accelshare.install.host_files.disk import Disk
from accelshare.install.scheduler import documents
from accelshare.install.scheduler.arguments import flags, health_address
from accelshare.install.scheduler.documents import mapping, mappings
from accelshare.install.scheduler.plan import (
    CHECKSUM,
    Existing,
    Intent,
    SchedulerPlan,
    TargetPlan,
    checksum,
    choose,
    configuration_file,
    missing_variables,
    notices_of_address,
    read_existing,
    require_content,
    set_flags,
)
from accelshare.install.scheduler.release import Release, parse

_VOLUME: Final = "accelshare-scheduler-config"
_PROGRAM: Final = "kube-scheduler"
_BY_HAND: Final = "add the settings that `accelshare scheduler-config render` prints by hand"


@dataclass(frozen=True, slots=True)
class StaticPod:
    """The target: a manifest that kubelet watches."""

    manifest: str

    @property
    def trigger(self) -> str:
        return self.manifest

    @property
    def restarts_itself(self) -> bool:
        return True

    def is_ours(self, trigger: bytes) -> bool:
        return is_ours(trigger)

    def flags(self, base: bytes | None, disk: Disk) -> dict[str, str]:
        return flags_of(self._required(base), self.manifest)

    def release(self, base: bytes | None) -> Release | None:
        return release_of(self._required(base), self.manifest)

    def make(self, base: bytes | None, intent: Intent, disk: Disk) -> TargetPlan:
        manifest = self._required(base)
        path = existing_path(manifest, self.manifest, intent)
        made = plan(manifest, self.manifest, read_existing(path, disk), intent)
        return TargetPlan(made, () if path is None else (path,))

    def health_url(self, base: bytes | None, disk: Disk) -> str:
        return health_url(self._required(base), self.manifest)

    def restart(self) -> None:
        """kubelet restarts the pod."""

    def _required(self, base: bytes | None) -> bytes:
        if base is None:
            raise NotUnderstood(f"{self.manifest} does not exist; it must be the manifest of kube-scheduler's static pod")
        return base


def is_ours(manifest: bytes) -> bool:
    """Whether accelshare wrote it: kubeadm does not write accelshare's checksum."""
    return CHECKSUM.encode() in manifest


def release_of(manifest: bytes, name: str) -> Release | None:
    """The version in the image's tag: the running one, also during an upgrade."""
    _, container = _scheduler(documents.read(manifest, name).data, name)
    match = re.search(r":(v1\.\d+\.\d+[^@]*)", str(container.get("image", "")))
    return parse(match[1].split("@")[0]) if match else None


def flags_of(manifest: bytes, name: str) -> dict[str, str]:
    _, container = _scheduler(documents.read(manifest, name).data, name)
    return flags(_arguments(container))


def existing_path(manifest: bytes, name: str, intent: Intent) -> str | None:
    """The host's path of the operator's own configuration file, if there is one."""
    pod, container = _scheduler(documents.read(manifest, name).data, name)
    file = choose(flags(_arguments(container)), intent.release, intent.kind).file
    return None if file is None else _host_path(pod, container, file, name)


def health_url(manifest: bytes, name: str) -> str:
    """The health URL, from the manifest's flags and probe."""
    _, container = _scheduler(documents.read(manifest, name).data, name)
    flag_values = flags(_arguments(container))
    probe = mapping(container, "readinessProbe", name) or mapping(container, "livenessProbe", name)
    return f"https://{health_address(flag_values)}{mapping(probe, 'httpGet', name).get('path', '/healthz')}"


def runs_as(manifest: bytes, name: str) -> tuple[int, int]:
    """User and group of kube-scheduler: root, unless kubeadm runs its control plane without root."""
    pod, container = _scheduler(documents.read(manifest, name).data, name)
    contexts = [context for holder in (container, pod) if isinstance(context := holder.get("securityContext"), dict)]
    user, group = (
        next((context[key] for context in contexts if isinstance(context.get(key), int)), 0)
        for key in ("runAsUser", "runAsGroup")
    )
    return user, group


def plan(manifest: bytes, name: str, existing: Existing | None, intent: Intent) -> SchedulerPlan:
    """The manifest whose kube-scheduler calls the extender. Planning its own result changes nothing."""
    document = documents.read(manifest, name)
    pod, container = _scheduler(document.data, name)
    arguments = _arguments(container)
    flag_values = flags(arguments)
    choice = choose(flag_values, intent.release, intent.kind)
    require_content(choice, existing, name)
    planned, notices = configuration_file(choice, existing, flag_values, intent)
    if choice.file == planned.path and not is_ours(manifest):
        raise NotUnderstood(
            f"{name} already names {planned.path}, but accelshare did not write it; choose another --directory or remove the flag"
        )
    set_flags(arguments, choice, planned, intent)
    tls = intent.desired.tls
    for number, directory in enumerate(
        dict.fromkeys([intent.directory, *(str(PurePosixPath(file).parent) for file in (tls.files if tls else ()))])
    ):
        _mount(pod, container, directory, f"{_VOLUME}-{number}" if number else _VOLUME, name)
    notices = (*_set_variables(container, intent, name), *notices)
    _annotate(document.data, checksum(planned.content), name)
    notices = (*notices_of_address(intent), *_proxy_notices(container, intent, name), *notices)
    return SchedulerPlan(planned, PlannedFile(name, document.content(), name), tuple(map(str, arguments)), notices)


def _scheduler(pod: Any, name: str) -> tuple[Any, Any]:
    """The pod's spec and the container that runs kube-scheduler. Raises NotUnderstood with what is there instead."""
    spec = pod.get("spec")
    if pod.get("kind") != "Pod" or not isinstance(spec, dict) or not isinstance(spec.get("containers"), list):
        raise NotUnderstood(f"{name} is not a Pod with containers; it must be kube-scheduler's static pod")
    containers = [container for container in spec["containers"] if isinstance(container, dict)]
    running = [container for container in containers if _program(container) == _PROGRAM]
    if len(running) == 1:
        return spec, running[0]
    if len(running) > 1:
        raise NotUnderstood(f"{name} has {len(running)} containers that run kube-scheduler; {_BY_HAND}")
    started = ", ".join(f"{container.get('name')!r} by {_program(container)!r}" for container in containers) or "none"
    raise NotUnderstood(f"{name}: no container runs kube-scheduler itself (containers: {started}); {_BY_HAND}")


def _program(container: Any) -> str:
    for key in ("command", "args"):
        if not isinstance(container.get(key) or [], list):
            raise NotUnderstood(f"{key} is {container[key]!r}; it must be a list of arguments")
    command = container.get("command") or []
    if command:
        return PurePosixPath(str(command[0])).name
    # Without a command the image's entry point runs, which is kube-scheduler in kube-scheduler's image.
    image = re.split(r"[:@]", str(container.get("image", "")).rpartition("/")[2])[0]
    arguments = container.get("args") or []
    return image if arguments and all(str(argument).startswith("-") for argument in arguments[:1]) else ""


def _arguments(container: Any) -> Any:
    """The list that contains the flags, to be changed in place."""
    if all(any(str(argument).startswith("--") for argument in container.get(key) or []) for key in ("command", "args")):
        raise NotUnderstood("kube-scheduler's flags are in command and in args; move them all into one of the two")
    for key in ("args", "command"):
        arguments = container.get(key)
        if (
            arguments
            and isinstance(arguments, list)
            and (key == "command" or any(str(argument).startswith("--") for argument in arguments))
        ):
            for argument in arguments:
                if not isinstance(argument, str):
                    raise NotUnderstood(f"the argument {argument!r} is not a string; put it in quotes")
                if "$(" in argument:
                    raise NotUnderstood(f"the argument {argument!r} depends on the environment; {_BY_HAND}")
            return arguments
    raise NotUnderstood(f"kube-scheduler's command line cannot be found; {_BY_HAND}")


def _mount(pod: Any, container: Any, directory: str, volume: str, name: str) -> None:
    """Mount the host's directory at the same path in kube-scheduler's container, unless it already is."""
    seen = _seen_at(pod, container, directory, name)
    if seen == directory:
        return
    if seen is not None:
        raise NotUnderstood(f"{name}: {directory} in the container is the host's {seen}; choose another directory")
    volumes, mounts = _list(pod, "volumes", name), _list(container, "volumeMounts", name)
    if any(other.get("name") == volume for other in volumes):
        raise NotUnderstood(f"{name} already has a volume {volume} for something else; remove it first")
    # The whole directory: renewed certificates are renamed into place, which a mount of single files would not show.
    mounts.append(documents.rich({"mountPath": directory, "name": volume, "readOnly": True}))
    volumes.append(documents.rich({"hostPath": {"path": directory, "type": "Directory"}, "name": volume}))


def _list(parent: Any, key: str, name: str) -> Any:
    """The list of mappings at this key, created if there is none."""
    if not mappings(parent, key, name):
        parent[key] = documents.rich([])
    return parent[key]


def _set_variables(container: Any, intent: Intent, name: str) -> tuple[str, ...]:
    """Add the variables that the container does not have; notices about those that it has with other values."""
    present = {
        str(variable.get("name")): "from valueFrom" if variable.get("valueFrom") else str(variable.get("value") or "")
        for variable in mappings(container, "env", name)
    }
    missing, notices = missing_variables(present, intent)
    for variable, value in missing.items():
        _list(container, "env", name).append(documents.rich({"name": variable, "value": value}))
    return notices


def _host_path(pod: Any, container: Any, path: str, name: str) -> str:
    host_path = _seen_at(pod, container, path, name)
    if host_path is None:
        raise NotUnderstood(f"{name}: {path} is in no hostPath volume, so its content cannot be read here; {_BY_HAND}")
    return host_path


def _seen_at(pod: Any, container: Any, path: str, name: str) -> str | None:
    """The host's path of a path in the container; None if no mount covers it."""
    wanted = PurePosixPath(path)
    covering = [
        mount
        for mount in mappings(container, "volumeMounts", name)
        if wanted.is_relative_to(PurePosixPath(str(mount.get("mountPath", "/nowhere"))))
    ]
    if not covering:
        return None
    mount = max(covering, key=lambda mount: len(PurePosixPath(str(mount["mountPath"])).parts))
    sources = [volume for volume in mappings(pod, "volumes", name) if volume.get("name") == mount.get("name")]
    host = mapping((sources or [{}])[0], "hostPath", name).get("path")
    if host is None or mount.get("subPath") or mount.get("subPathExpr"):
        raise NotUnderstood(f"{path} in the container is in volume {mount.get('name')!r}, not a plain hostPath; {_BY_HAND}")
    inside = wanted.relative_to(PurePosixPath(str(mount["mountPath"])))
    return str(PurePosixPath(str(host)) / inside)


def _annotate(pod: Any, value: str, name: str) -> None:
    """kubelet restarts a static pod when its manifest changes, not when a mounted file does."""
    metadata = pod.get("metadata")
    if not isinstance(metadata, dict):
        raise NotUnderstood(f"{name}: metadata is {metadata!r}; it must be a mapping")
    if mapping(metadata, "annotations", name):
        metadata["annotations"][CHECKSUM] = value
        return
    annotations = documents.rich({CHECKSUM: value})
    if "annotations" in metadata or not hasattr(metadata, "insert"):
        metadata["annotations"] = annotations
    else:
        metadata.insert(0, "annotations", annotations)


def _proxy_notices(container: Any, intent: Intent, name: str) -> tuple[str, ...]:
    """Proxy variables, which kubeadm copies into static pods, apply to calls of extenders too."""
    names = {
        str(variable.get("name", "")).upper(): str(variable.get("value", "")) for variable in mappings(container, "env", name)
    }
    scheme = "HTTPS_PROXY" if intent.desired.tls else "HTTP_PROXY"
    host = intent.desired.host
    if not names.get(scheme) or host in ("localhost", "127.0.0.1", "::1") or host in names.get("NO_PROXY", "").split(","):
        return ()
    return (f"kube-scheduler has {scheme}={names[scheme]}: make sure that NO_PROXY covers {host}",)
