"""kube-scheduler as a static pod: kubeadm's manifest, with our file mounted, named and summed up.

Belongs here: reading and changing the manifest, bytes to bytes. Never: files, and what the configuration says.
"""

import re
from pathlib import PurePosixPath
from typing import Any, Final

from accelshare.install.errors import NotUnderstood
from accelshare.install.scheduler import documents
from accelshare.install.scheduler.arguments import asked_at, flags, put
from accelshare.install.scheduler.plan import (
    CHECKSUM,
    Existing,
    Intent,
    Plan,
    PlannedFile,
    PlannedMode,
    checksum,
    choose,
    configuration_file,
    notices_of_address,
)
from accelshare.install.scheduler.release import Release, parse

_VOLUME: Final = "accelshare-scheduler-config"
_PROGRAM: Final = "kube-scheduler"
_BY_HAND: Final = "put the settings in by hand, as `accelshare scheduler-config render` prints them"


def is_ours(manifest: bytes) -> bool:
    """It was written by us: kubeadm knows nothing of our checksum."""
    return CHECKSUM.encode() in manifest


def release_of(manifest: bytes, name: str) -> Release | None:
    """The version in the image's tag: what really runs, also in the middle of an upgrade."""
    _, container = _scheduler(documents.read(manifest, name).data, name)
    found = re.search(r":(v1\.\d+\.\d+[^@]*)", str(container.get("image", "")))
    return parse(found[1].split("@")[0]) if found else None


def given_flags(manifest: bytes, name: str) -> dict[str, str]:
    _, container = _scheduler(documents.read(manifest, name).data, name)
    return flags(_words(container))


def existing_path(manifest: bytes, name: str, intent: Intent) -> str | None:
    """Where the operator's own configuration file lies on the host, if there is one to be kept."""
    pod, container = _scheduler(documents.read(manifest, name).data, name)
    file = choose(flags(_words(container)), intent.release, intent.kind).file
    return None if file is None else _host_path(pod, container, file, name)


def health_url(manifest: bytes, name: str) -> str:
    """Where this scheduler says how it is, from the manifest's own flags and probe."""
    _, container = _scheduler(documents.read(manifest, name).data, name)
    given = flags(_words(container))
    probe = (container.get("readinessProbe") or container.get("livenessProbe") or {}).get("httpGet") or {}
    return f"https://{asked_at(given)}{probe.get('path', '/healthz')}"


def runs_as(manifest: bytes, name: str) -> tuple[int, int]:
    """User and group of kube-scheduler: root, unless kubeadm was told to run its control plane without."""
    pod, container = _scheduler(documents.read(manifest, name).data, name)
    said = [context for holder in (container, pod) if isinstance(context := holder.get("securityContext"), dict)]
    user, group = (
        next((context[key] for context in said if isinstance(context.get(key), int)), 0) for key in ("runAsUser", "runAsGroup")
    )
    return user, group


def plan(manifest: bytes, name: str, existing: Existing | None, intent: Intent) -> Plan:
    """The manifest whose kube-scheduler asks the extender. The plan of what it made is itself."""
    document = documents.read(manifest, name)
    pod, container = _scheduler(document.data, name)
    words = _words(container)
    given = flags(words)
    choice = choose(given, intent.release, intent.kind)
    if choice.file is not None and existing is None:
        raise NotUnderstood(f"{name}: --{choice.flag}={choice.file} is named, but its content is not known")
    planned, notices = configuration_file(choice, existing, given, intent)
    if choice.file == planned.path and not is_ours(manifest):
        raise NotUnderstood(
            f"{name} names {planned.path} already, but we did not write it; choose another --directory, or remove that flag"
        )
    _name_file(words, choice, planned, intent)
    tls = intent.desired.tls
    for number, directory in enumerate(
        dict.fromkeys([intent.directory, *(str(PurePosixPath(file).parent) for file in (tls.files if tls else ()))])
    ):
        _mount(pod, container, directory, f"{_VOLUME}-{number}" if number else _VOLUME, name)
    _annotate(document.data, checksum(planned.content))
    notices = (*notices_of_address(intent), *_proxy_notices(container, intent), *notices)
    return Plan(planned, PlannedFile(name, document.content(), name), tuple(map(str, words)), notices)


def _name_file(words: Any, choice: PlannedMode, planned: PlannedFile, intent: Intent) -> None:
    put(words, choice.flag, planned.path)
    if choice.kind == "policy":  # then the flags count, and the file has no place for these
        settings = intent.desired.settings
        for name, value in (("kube-api-qps", settings.qps), ("kube-api-burst", settings.burst)):
            if value is not None:
                put(words, name, str(value))


def _scheduler(pod: Any, name: str) -> tuple[Any, Any]:
    """The pod's spec and the container that runs kube-scheduler, or a refusal that says what is there instead."""
    spec = pod.get("spec")
    if pod.get("kind") != "Pod" or not isinstance(spec, dict) or not isinstance(spec.get("containers"), list):
        raise NotUnderstood(f"{name} is no Pod with containers; it must be kube-scheduler's static pod")
    containers = [container for container in spec["containers"] if isinstance(container, dict)]
    found = [container for container in containers if _program(container) == _PROGRAM]
    if len(found) == 1:
        return spec, found[0]
    if len(found) > 1:
        raise NotUnderstood(f"{name} has {len(found)} containers that run kube-scheduler; {_BY_HAND}")
    started = ", ".join(f"{container.get('name')!r} by {_program(container)!r}" for container in containers) or "none"
    raise NotUnderstood(f"{name}: no container is started by kube-scheduler itself (there are: {started}); {_BY_HAND}")


def _program(container: Any) -> str:
    command = container.get("command") or []
    if command:
        return PurePosixPath(str(command[0])).name
    # Without a command the image's own entry point runs, which for kube-scheduler's image is kube-scheduler.
    image = re.split(r"[:@]", str(container.get("image", "")).rpartition("/")[2])[0]
    words = container.get("args") or []
    return image if words and all(str(word).startswith("-") for word in words[:1]) else ""


def _words(container: Any) -> Any:
    """The list that flags stand in, to be changed in place."""
    if all(any(str(word).startswith("--") for word in container.get(key) or []) for key in ("command", "args")):
        raise NotUnderstood("kube-scheduler's flags are in command and in args; put them all into one of the two")
    for key in ("args", "command"):
        words = container.get(key)
        if words and isinstance(words, list) and (key == "command" or any(str(word).startswith("--") for word in words)):
            for word in words:
                if not isinstance(word, str):
                    raise NotUnderstood(f"the argument {word!r} is no text; put it in quotes")
                if "$(" in word:
                    raise NotUnderstood(f"the argument {word!r} depends on the environment; {_BY_HAND}")
            return words
    raise NotUnderstood(f"kube-scheduler's command line cannot be found; {_BY_HAND}")


def _mount(pod: Any, container: Any, directory: str, volume: str, name: str) -> None:
    """Make the host's directory visible to kube-scheduler under its own name, unless it is already."""
    seen = _seen_at(pod, container, directory)
    if seen == directory:
        return
    if seen is not None:
        raise NotUnderstood(f"{name}: {directory} in the container is the host's {seen}; choose another directory")
    volumes, mounts = _list(pod, "volumes"), _list(container, "volumeMounts")
    if any(other.get("name") == volume for other in volumes):
        raise NotUnderstood(f"{name} has a volume {volume} already, for something else; remove it first")
    # The whole directory: certificates are renewed by renaming, which a mount of single files would not show.
    mounts.append(documents.rich({"mountPath": directory, "name": volume, "readOnly": True}))
    volumes.append(documents.rich({"hostPath": {"path": directory, "type": "Directory"}, "name": volume}))


def _list(parent: Any, key: str) -> Any:
    if not parent.get(key):
        parent[key] = documents.rich([])
    return parent[key]


def _host_path(pod: Any, container: Any, path: str, name: str) -> str:
    found = _seen_at(pod, container, path)
    if found is None:
        raise NotUnderstood(f"{name}: {path} is in no hostPath volume, so that its content cannot be read here; {_BY_HAND}")
    return found


def _seen_at(pod: Any, container: Any, path: str) -> str | None:
    """The host's path of a path in the container; None where no hostPath volume covers it."""
    wanted = PurePosixPath(path)
    covering = [
        mount
        for mount in container.get("volumeMounts") or []
        if wanted.is_relative_to(PurePosixPath(str(mount.get("mountPath", "/nowhere"))))
    ]
    if not covering:
        return None
    mount = max(covering, key=lambda mount: len(PurePosixPath(str(mount["mountPath"])).parts))
    sources = [volume for volume in pod.get("volumes") or [] if volume.get("name") == mount.get("name")]
    host = ((sources or [{}])[0].get("hostPath") or {}).get("path")
    if host is None or mount.get("subPath") or mount.get("subPathExpr"):
        raise NotUnderstood(f"{path} in the container is of the volume {mount.get('name')!r}, no plain hostPath; {_BY_HAND}")
    inside = wanted.relative_to(PurePosixPath(str(mount["mountPath"])))
    return str(PurePosixPath(str(host)) / inside)


def _annotate(pod: Any, value: str) -> None:
    """kubelet restarts a static pod when its manifest changes, not when a mounted file does."""
    metadata = pod["metadata"]
    if metadata.get("annotations"):
        metadata["annotations"][CHECKSUM] = value
        return
    made = documents.rich({CHECKSUM: value})
    if "annotations" in metadata or not hasattr(metadata, "insert"):
        metadata["annotations"] = made
    else:
        metadata.insert(0, "annotations", made)


def _proxy_notices(container: Any, intent: Intent) -> tuple[str, ...]:
    """kubeadm copies proxy variables into static pods, and kube-scheduler obeys them for extenders too."""
    names = {str(variable.get("name", "")).upper(): str(variable.get("value", "")) for variable in container.get("env") or []}
    scheme = "HTTPS_PROXY" if intent.desired.tls else "HTTP_PROXY"
    host = intent.desired.host
    if not names.get(scheme) or host in ("localhost", "127.0.0.1", "::1") or host in names.get("NO_PROXY", "").split(","):
        return ()
    return (f"kube-scheduler has {scheme}={names[scheme]}: make sure that NO_PROXY covers {host}",)
