"""Applies a plugin's adjustments to a container as a runtime does, for FakeRuntime.

Belongs here: container + adjustment → container, and the conflict of two plugins. Never: calls.
"""

from collections.abc import Iterable

from accelshare.agent.nri.protocol.messages import environment
from accelshare.agent.nri.protocol.nri_pb2 import Container, ContainerAdjustment, LinuxContainerAdjustment, LinuxResources, Mount

Claims = dict[tuple[str, str], str]  # (what, its name) → the plugin that set it


class ConflictError(Exception):
    """Two plugins set the same thing."""


def adjusted(container: Container, adjustment: ContainerAdjustment, plugin: str, claims: Claims) -> Container:
    """The container with the adjustment. It replaces what the pod set; what another plugin set is a conflict."""
    claimed = _claimed(adjustment)
    for what, name in claimed:
        # Each plugin adjusts a container once, so an earlier claim is of another instance, even under the same name.
        if (what, name) in claims:
            raise ConflictError(f'plugins "{plugin}" and "{claims[what, name]}" both tried to set {what} {name}')
    claims.update(dict.fromkeys(claimed, plugin))
    env = environment(container)
    for pair in adjustment.env:
        if pair.key.startswith("-"):
            env.pop(pair.key[1:], None)
        else:
            env[pair.key] = pair.value
    replaced = {device.path.removeprefix("-") for device in adjustment.linux.devices}
    devices = [device for device in container.linux.devices if device.path not in replaced]
    devices += [device for device in adjustment.linux.devices if not device.path.startswith("-")]
    annotations = {**container.annotations, **adjustment.annotations}
    result = Container()
    result.CopyFrom(container)
    for field in ("annotations", "env"):
        result.ClearField(field)
    del result.linux.devices[:]
    result.annotations.update(
        {key: value for key, value in annotations.items() if not key.startswith("-") and f"-{key}" not in annotations}
    )
    result.env.extend(f"{key}={value}" for key, value in env.items())
    result.linux.devices.extend(devices)
    result.linux.resources.unified.update(adjustment.linux.resources.unified)
    return result


def combined(adjustments: Iterable[ContainerAdjustment]) -> ContainerAdjustment:
    """The adjustments of all plugins together, as validators get them."""
    every = tuple(adjustments)
    devices = tuple(device for one in every for device in one.linux.devices)
    unified = {key: value for one in every for key, value in one.linux.resources.unified.items()}
    resources = LinuxResources(unified=unified) if unified else None
    return ContainerAdjustment(
        annotations={key: value for one in every for key, value in one.annotations.items()},
        mounts=tuple(mount for one in every for mount in one.mounts),
        env=tuple(pair for one in every for pair in one.env),
        linux=LinuxContainerAdjustment(devices=devices, resources=resources) if devices or resources else None,
        cdi_devices=tuple(device for one in every for device in one.cdi_devices),
    )


def mounted(mounts: tuple[Mount, ...], adjustment: ContainerAdjustment) -> tuple[Mount, ...]:
    """A container's mounts with the adjustment."""
    gone = {mount.destination.removeprefix("-") for mount in adjustment.mounts}
    kept = [mount for mount in mounts if mount.destination not in gone]
    return (*kept, *(mount for mount in adjustment.mounts if not mount.destination.startswith("-")))


def _claimed(adjustment: ContainerAdjustment) -> list[tuple[str, str]]:
    """What the adjustment sets; a removal is not a claim."""
    named = [
        *(("annotation", key) for key in adjustment.annotations),
        *(("mount", mount.destination) for mount in adjustment.mounts),
        *(("env", pair.key) for pair in adjustment.env),
        *(("device", device.path) for device in adjustment.linux.devices),
        *(("CDI device", device.name) for device in adjustment.cdi_devices),
        *(("cgroup file", name) for name in adjustment.linux.resources.unified),
    ]
    return [(what, name) for what, name in named if not name.startswith("-")]
