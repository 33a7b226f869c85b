"""The guard: a container that requests no card of a kind gets none, whatever its image, its pod or another plugin adds.

Belongs here: which containers are entitled to a kind, what is withheld from the others, and what they must not bring. Never:
which card an entitled container gets (container_decision.py).

Exempt are namespaces that the operator names, static pods, and privileged containers, which may use every device of the host.
"""

import contextlib
import os
import posixpath
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from accelshare.agent.discovery.device_inventory import InventorySnapshot, VendorCards
from accelshare.agent.nri.protocol.messages import environment, is_privileged
from accelshare.agent.nri.protocol.nri_pb2 import Container, ContainerAdjustment, LinuxDevice, Mount, PodSandbox
from accelshare.vendors.container_edits import EditsError, filled, naming, path_pattern
from accelshare.vendors.drivers.driver import HostCard
from accelshare.vendors.profile import Profile
from accelshare.wire.node_pods import NodePod

EMPTIED: Final = "-"  # in a profile's `none`: the variable gets an empty value; NRI loses removals (seen on containerd 2.4.2)
CDI_ANNOTATION: Final = "cdi.k8s.io/"  # read by every runtime that supports CDI
_MEMORY_MAJOR: Final = 1  # /dev/null and the like, which every container has


DeviceNumber: TypeAlias = tuple[str, int, int]  # type, major, minor


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
    ) -> list[VendorCards]:
        """The kinds of which this container may have no card."""
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
        requested = pod.extended_resources.get(container, frozenset())
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

    def brings(
        self,
        kind: VendorCards,
        pod: PodSandbox,
        container: Container,
        adjust: ContainerAdjustment | None = None,
        *,
        has_claim: bool = False,
    ) -> str:
        """What of this kind the container would have: the first device file, CDI name, annotation or mount; empty if nothing.

        A container with a resource claim may have device files and CDI names: the guard does not check which driver gave them.
        But anybody can create a claim that requests nothing, so what the pod itself writes is checked all the same.
        """
        adjust = adjust or ContainerAdjustment()
        mounts = [m for m in (*container.mounts, *adjust.mounts) if not m.destination.startswith("-")]
        of_container = {**container.annotations, **adjust.annotations}
        if has_claim:  # kubelet writes CDI names of claims into the container's annotations
            of_container = {key: value for key, value in of_container.items() if not key.startswith(CDI_ANNOTATION)}
        annotations = {**pod.annotations, **of_container}
        names = [] if has_claim else [device.name for device in adjust.cdi_devices]
        brought = (
            *(() if has_claim else self._card_devices(kind, _devices(container, adjust))),
            *self._mounts(kind.profile, mounts),
            *self.by_name(kind.profile, names, annotations),
        )
        return next(iter(brought), "")

    def adds(self, kind: VendorCards, own: Collection[int], container: Container, adjust: ContainerAdjustment) -> str:
        """A device file or CDI name of a card that is not one of the container's own cards; empty if there is none."""
        mine = [card.found for card in kind.cards.values() if card.index in own]
        others = [card.found for card in kind.cards.values() if card.index not in own]
        paths = {path for card in mine for path in _paths(kind.profile, card)}
        numbers = self._numbers(paths)
        foreign_numbers = self._numbers({path for card in others for path in _paths(kind.profile, card)}) - numbers
        paths |= {path for ordinal, card in enumerate(mine) for path in _paths_inside(kind.profile, card, ordinal)}
        devices = [
            device
            for device in _devices(container, adjust)
            if _number(device) in foreign_numbers or (device.path not in paths and _number(device) not in numbers)
        ]
        # The vendor's own plugins name the same cards, by id or index, under other CDI kinds.
        own_names = {name for card in mine for name in (card.id, str(card.index))}
        own_names |= {kind.cards[card.index].cdi_name.partition("=")[2] for card in mine}
        names = [device.name for device in adjust.cdi_devices if device.name.partition("=")[2] not in own_names]
        return next(iter((*self._card_devices(kind, devices), *self.by_name(kind.profile, names, {}))), "")

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
            elif key.startswith(CDI_ANNOTATION) and any(n.strip().partition("=")[0] in kinds for n in value.split(",")):
                yield f"annotation {key[:100]}: {value[:100]}"

    def _card_devices(self, kind: VendorCards, devices: list[LinuxDevice]) -> Iterator[str]:
        if not devices:
            return
        hardware = kind.profile.hardware
        templates = [*hardware.device_nodes, *hardware.container_device_nodes]
        # Cards of several vendors have their files in one folder, such as /dev/dri: there the files of known cards are compared.
        patterns = [path_pattern(template) for template in templates if not kind.cards or not _in_shared_folder(template)]
        paths = {path for card in kind.cards.values() for path in _paths(kind.profile, card.found)}
        numbers = self._numbers(paths)
        for device in devices:
            named = device.path in paths or any(pattern.fullmatch(device.path) for pattern in patterns)
            if named or _number(device) in numbers:
                yield f"device {device.path[:100]} ({device.major}:{device.minor})"

    def _mounts(self, profile: Profile, mounts: Collection[Mount]) -> Iterator[str]:
        template = profile.container.volume_mounts.container_path
        if template is None:
            return
        # The vendor's runtime looks for this prefix, with or without a slash behind it.
        folder = template.partition("{")[0].rstrip("/")
        for mount in mounts:
            # Runtimes normalize the path. normpath keeps two slashes at the beginning, they do not.
            if posixpath.normpath("/" + mount.destination.lstrip("/")).startswith(folder):
                yield f"mount {mount.destination[:100]}"

    def _numbers(self, paths: Collection[str]) -> set[DeviceNumber]:
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


def _devices(container: Container, adjust: ContainerAdjustment) -> list[LinuxDevice]:
    """The device files that the container will have. An adjustment can remove a device of the container and add another one."""
    removed = {device.path[1:] for device in adjust.linux.devices if device.path.startswith("-")}
    kept = [device for device in container.linux.devices if device.path not in removed]
    return [*kept, *(device for device in adjust.linux.devices if not device.path.startswith("-"))]


def _paths(profile: Profile, card: HostCard) -> Iterator[str]:
    """The paths of the card's own device files."""
    for template in profile.hardware.device_nodes:
        with contextlib.suppress(EditsError):
            yield filled(template, naming(card))


def _paths_inside(profile: Profile, card: HostCard, ordinal: int) -> Iterator[str]:
    """The paths of the card's device files in a container whose cards are renumbered."""
    for template in profile.hardware.container_device_nodes:
        with contextlib.suppress(EditsError):
            yield filled(template, {**naming(card), "ordinal": ordinal})


def _number(device: LinuxDevice) -> DeviceNumber:
    return device.type, device.major, device.minor


def _in_shared_folder(template: str) -> bool:
    return any(f"{{{name}}}" in template for name in ("pci", "card_node", "render_node"))
