"""Default deny: a container that asks for no card of a kind sees none, whatever its image, its pod or another plugin says.

Belongs here: who is entitled to a kind, what is taken from a container that is not, and what it must not bring. Never: which card
an entitled container gets (answers.py).

Outside of it are namespaces that the operator exempted, pods of files on the node, and privileged containers, which have every
device of the host by their own right.
"""

import os
import posixpath
import re
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from accelshare.agent.discovery.device_inventory import DeviceInventory, Kind
from accelshare.agent.nri.protocol.messages import environment, is_privileged
from accelshare.agent.nri.protocol.nri_pb2 import Container, ContainerAdjustment, LinuxDevice, Mount, PodSandbox
from accelshare.vendors.container_edits import EditsError, filled, naming
from accelshare.vendors.profile import Profile
from accelshare.wire.node_pods import NodePod

EMPTIED: Final = "-"  # in a profile's `none`: the variable gets no value; NRI loses the removal of one (seen on containerd 2.4.2)
_CDI_ANNOTATION: Final = "cdi.k8s.io/"  # read by every runtime that knows CDI
_MEMORY_MAJOR: Final = 1  # /dev/null and its like, which every container has


class Guard:
    def __init__(
        self,
        devices: DeviceInventory,
        *,
        exempt: Collection[str],
        on_host: Callable[[str], Path],
        node_resources: Callable[[], Collection[str]],
        not_found: Callable[[], Collection[Profile]] = tuple,
    ) -> None:
        """`node_resources` are the resources that this node has: kubelet does not check others that a pod names. `not_found` are
        vendors whose cards may be here and are not known yet, because nobody has looked or because they cannot be asked for.
        """
        self._devices = devices
        self._exempt = frozenset(exempt)
        self._on_host = on_host
        self._node_resources = node_resources
        self._not_found = not_found

    def minds(self, pod: PodSandbox, container: Container, *, static: bool) -> bool:
        return pod.namespace not in self._exempt and not static and not is_privileged(container)

    def denied(self, pod: NodePod | None, container: str, *, variables: bool) -> list[Kind]:
        """The kinds of this node of which this container may have no card, or be given none by the vendor's variables.

        With a resource claim it may have devices: which driver gave them is not looked at. The variables are not such a driver's
        way, and anybody can make a claim that asks for nothing.
        """
        if not variables and pod is not None and container in pod.claims:
            return []
        kinds = [*list(self._devices.kinds.values()), *(Kind(profile, "", 0, {}) for profile in self._not_found())]
        return [kind for kind in kinds if not self._entitled(pod, container, kind.profile)]

    def _entitled(self, pod: NodePod | None, container: str, profile: Profile) -> bool:
        if pod is None:
            return False
        asked = pod.asked.get(container, frozenset())
        if asked & set(profile.resources.requestable):
            return True
        # The number of cards is shown as a resource, and nobody hands anything out for it.
        others = {name for name in asked - {profile.resources.count} if name.startswith(profile.container.other_resources)}
        return bool(others & set(self._node_resources()))

    def taken(self, kind: Kind, container: Container) -> dict[str, str]:
        """The variables that make the vendor's runtime give this container nothing."""
        env, none = environment(container), kind.profile.container.none
        edits = {name: "" if value == EMPTIED else value for name, value in none.items() if value != EMPTIED or name in env}
        return {name: value for name, value in edits.items() if env.get(name) != value}

    def asks_by_variable(self, kind: Kind, container: Container) -> str:
        """The variable by which it asks the vendor's runtime for cards, if it does."""
        env = environment(container)
        told = kind.profile.container.none
        return next((f"{name}={env[name][:64]}" for name, value in told.items() if env.get(name, value) not in (value, "")), "")

    def brings(self, kind: Kind, pod: PodSandbox, container: Container, adjust: ContainerAdjustment | None = None) -> str:
        """What of this kind the container would have, though it is not entitled: device file, CDI name, annotation or mount."""
        adjust = adjust or ContainerAdjustment()
        gone = {device.path[1:] for device in adjust.linux.devices if device.path.startswith("-")}
        both = (*container.linux.devices, *adjust.linux.devices)
        devices = [d for d in both if not d.path.startswith("-") and d.path not in gone]
        mounts = [m for m in (*container.mounts, *adjust.mounts) if not m.destination.startswith("-")]
        names = [device.name for device in adjust.cdi_devices]
        annotations = {**pod.annotations, **container.annotations, **adjust.annotations}
        found = (
            *self._foreign_devices(kind, devices),
            *self._mounts(kind.profile, mounts),
            *self.by_name(kind.profile, names, annotations),
        )
        return next(iter(found), "")

    def names(self, profile: Profile, annotations: dict[str, str], mounts: Collection[Mount]) -> Iterator[str]:
        """What of a pod's own would add cards to those that a container of this kind is given."""
        yield from self.by_name(profile, (), annotations)
        yield from self._mounts(profile, mounts)

    def by_name(self, profile: Profile, names: Collection[str], annotations: dict[str, str]) -> Iterator[str]:
        """CDI names of this kind, also in annotations, and annotations that only the vendor's own plugins read."""
        kinds = {*profile.container.cdi_kinds, (profile.container.cdi.name or "").partition("=")[0]} - {""}
        for name in names:
            if name.partition("=")[0] in kinds:
                yield f"CDI device {name[:100]}"
        for key, value in annotations.items():
            if key.startswith(profile.container.vendor_annotations):
                yield f"annotation {key[:100]}"
            elif key.startswith(_CDI_ANNOTATION) and any(n.strip().partition("=")[0] in kinds for n in value.split(",")):
                yield f"annotation {key[:100]}: {value[:100]}"

    def _foreign_devices(self, kind: Kind, devices: list[LinuxDevice]) -> Iterator[str]:
        if not devices:
            return
        patterns = [_pattern(template) for template in kind.profile.hardware.device_nodes]
        numbers = self._numbers(kind)
        for device in devices:
            if any(pattern.fullmatch(device.path) for pattern in patterns) or (
                (device.type, device.major, device.minor) in numbers
            ):
                yield f"device {device.path[:100]} ({device.major}:{device.minor})"

    def _mounts(self, profile: Profile, mounts: Collection[Mount]) -> Iterator[str]:
        template = profile.container.volume_mounts.container_path
        if template is None:
            return
        folder = template.partition("{")[0]
        for mount in mounts:
            if posixpath.normpath(mount.destination).startswith(folder):  # the vendor's runtime cleans it, too
                yield f"mount {mount.destination[:100]}"

    def _numbers(self, kind: Kind) -> set[tuple[str, int, int]]:
        """The cards' device files of this host by number, so that another name for one is known too."""
        found = set()
        for card in kind.cards.values():
            for template in kind.profile.hardware.device_nodes:
                try:
                    status = self._on_host(filled(template, naming(card.found))).stat()
                except (OSError, EditsError):
                    continue
                if os.major(status.st_rdev) != _MEMORY_MAJOR:
                    kind_of = "c" if stat.S_ISCHR(status.st_mode) else "b"
                    found.add((kind_of, os.major(status.st_rdev), os.minor(status.st_rdev)))
        return found


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{(?:index|minor)\}", template)
    return re.compile("[0-9]+".join(re.escape(part) for part in parts))
