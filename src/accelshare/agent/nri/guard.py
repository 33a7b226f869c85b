"""The guard: a container that requests no card of a kind gets none, whatever its image, its pod or another plugin adds.

Belongs here: which containers are entitled to a kind, what is withheld from the others, and what they must not bring. Never:
which card an entitled container gets (container_decision.py).

Exempt are namespaces that the operator names, static pods, and privileged containers, which may use every device of the host.
"""

import os
import posixpath
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from accelshare.agent.discovery.device_inventory import InventorySnapshot, VendorCards
from accelshare.agent.nri.protocol.messages import environment, is_privileged
from accelshare.agent.nri.protocol.nri_pb2 import Container, ContainerAdjustment, LinuxDevice, Mount, PodSandbox
from accelshare.vendors.container_edits import EditsError, filled, naming, path_pattern
from accelshare.vendors.profile import Profile
from accelshare.wire.node_pods import NodePod

EMPTIED: Final = "-"  # in a profile's `none`: the variable gets an empty value; NRI loses removals (seen on containerd 2.4.2)
_CDI_ANNOTATION: Final = "cdi.k8s.io/"  # read by every runtime that supports CDI
_MEMORY_MAJOR: Final = 1  # /dev/null and the like, which every container has


class Guard:
    def __init__(self, profiles: Collection[Profile], *, exempt: Collection[str], on_host: Callable[[str], Path]) -> None:
        self._profiles = profiles
        self._exempt = frozenset(exempt)
        self._on_host = on_host

    def applies_to(self, pod: PodSandbox, container: Container, *, static: bool) -> bool:
        return pod.namespace not in self._exempt and not static and not is_privileged(container)

    def denied(
        self,
        inventory: InventorySnapshot,
        pod: NodePod | None,
        container: str,
        *,
        node_resources: Collection[str],
        variables: bool,
    ) -> list[VendorCards]:
        """The kinds of which this container may have no card; with `variables`, may get none by the vendor's variables.

        A container with a resource claim may have devices: the guard does not check which driver gave them. But DRA drivers do
        not use the vendor's variables, and anybody can create a claim that requests nothing.
        """
        if not variables and pod is not None and container in pod.claims:
            return []
        kinds = [*inventory.kinds.values(), *(VendorCards(profile, "", 0, {}) for profile in self._unknown(inventory))]
        return [kind for kind in kinds if not self._entitled(pod, container, kind.profile, node_resources)]

    def _unknown(self, inventory: InventorySnapshot) -> list[Profile]:
        """Vendors whose cards may be here and are not known: their driver has not answered yet, or has failed."""
        absent = [profile for profile in self._profiles if profile.name not in inventory.kinds]
        return [one for one in absent if one.name not in inventory.discovered or inventory.problems.get(one.name)]

    @staticmethod
    def _entitled(pod: NodePod | None, container: str, profile: Profile, node_resources: Collection[str]) -> bool:
        if pod is None:
            return False
        requested = pod.asked.get(container, frozenset())
        if requested & set(profile.resources.requestable):
            return True
        # The count resource only shows how many cards there are; nothing is delivered for it.
        others = {name for name in requested - {profile.resources.count} if name.startswith(profile.container.other_resources)}
        return bool(others & set(node_resources))  # kubelet does not check resources that the node does not have

    def withholding_variables(self, kind: VendorCards, container: Container) -> dict[str, str]:
        """The variables that make the vendor's runtime give this container no card."""
        env, none = environment(container), kind.profile.container.none
        edits = {name: "" if value == EMPTIED else value for name, value in none.items() if value != EMPTIED or name in env}
        return {name: value for name, value in edits.items() if env.get(name) != value}

    def requests_by_variable(self, kind: VendorCards, container: Container) -> str:
        """The variable by which it requests cards from the vendor's runtime; empty if there is none."""
        env = environment(container)
        none = kind.profile.container.none
        return next((f"{name}={env[name][:64]}" for name, value in none.items() if env.get(name, value) not in (value, "")), "")

    def brings(self, kind: VendorCards, pod: PodSandbox, container: Container, adjust: ContainerAdjustment | None = None) -> str:
        """What of this kind the container would have: the first device file, CDI name, annotation or mount; empty if nothing."""
        adjust = adjust or ContainerAdjustment()
        removed = {device.path[1:] for device in adjust.linux.devices if device.path.startswith("-")}
        both = (*container.linux.devices, *adjust.linux.devices)
        devices = [d for d in both if not d.path.startswith("-") and d.path not in removed]
        mounts = [m for m in (*container.mounts, *adjust.mounts) if not m.destination.startswith("-")]
        names = [device.name for device in adjust.cdi_devices]
        annotations = {**pod.annotations, **container.annotations, **adjust.annotations}
        brought = (
            *self._foreign_devices(kind, devices),
            *self._mounts(kind.profile, mounts),
            *self.by_name(kind.profile, names, annotations),
        )
        return next(iter(brought), "")

    def names(self, profile: Profile, annotations: dict[str, str], mounts: Collection[Mount]) -> Iterator[str]:
        """The pod's own annotations and mounts that would add cards to those that a container gets."""
        yield from self.by_name(profile, (), annotations)
        yield from self._mounts(profile, mounts)

    def by_name(self, profile: Profile, names: Collection[str], annotations: dict[str, str]) -> Iterator[str]:
        """CDI names of this kind, also in annotations, and annotations of the vendor's own plugins."""
        kinds = {*profile.container.cdi_kinds, (profile.container.cdi.name or "").partition("=")[0]} - {""}
        for name in names:
            if name.partition("=")[0] in kinds:
                yield f"CDI device {name[:100]}"
        for key, value in annotations.items():
            if key.startswith(profile.container.vendor_annotations):
                yield f"annotation {key[:100]}"
            elif key.startswith(_CDI_ANNOTATION) and any(n.strip().partition("=")[0] in kinds for n in value.split(",")):
                yield f"annotation {key[:100]}: {value[:100]}"

    def _foreign_devices(self, kind: VendorCards, devices: list[LinuxDevice]) -> Iterator[str]:
        if not devices:
            return
        hardware = kind.profile.hardware
        templates = [*hardware.device_nodes, *hardware.container_device_nodes]
        # Cards of several vendors have their files in one folder, such as /dev/dri: there the files of known cards are compared.
        patterns = [path_pattern(template) for template in templates if not kind.cards or not _in_shared_folder(template)]
        paths = self._paths(kind)
        numbers = self._numbers(paths)
        for device in devices:
            named = device.path in paths or any(pattern.fullmatch(device.path) for pattern in patterns)
            if named or (device.type, device.major, device.minor) in numbers:
                yield f"device {device.path[:100]} ({device.major}:{device.minor})"

    def _mounts(self, profile: Profile, mounts: Collection[Mount]) -> Iterator[str]:
        template = profile.container.volume_mounts.container_path
        if template is None:
            return
        folder = template.partition("{")[0]
        for mount in mounts:
            if posixpath.normpath(mount.destination).startswith(folder):  # the vendor's runtime normalizes it, too
                yield f"mount {mount.destination[:100]}"

    @staticmethod
    def _paths(kind: VendorCards) -> set[str]:
        """The cards' device files on the host."""
        paths = set[str]()
        for card in kind.cards.values():
            for template in kind.profile.hardware.device_nodes:
                with suppress(EditsError):
                    paths.add(filled(template, naming(card.found)))
        return paths

    def _numbers(self, paths: Collection[str]) -> set[tuple[str, int, int]]:
        """The device numbers of these device files, so that a device file of another name is recognized, too."""
        numbers = set()
        for path in paths:
            try:
                status = self._on_host(path).stat()
            except OSError:
                continue
            if os.major(status.st_rdev) != _MEMORY_MAJOR:
                device_type = "c" if stat.S_ISCHR(status.st_mode) else "b"
                numbers.add((device_type, os.major(status.st_rdev), os.minor(status.st_rdev)))
        return numbers


def _in_shared_folder(template: str) -> bool:
    return any(f"{{{name}}}" in template for name in ("pci", "card_node", "render_node"))
