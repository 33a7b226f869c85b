"""Parts of the agent for unit tests: pod stores, delivery modes, and an NRI handler over them."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from accelshare.agent.delivery_mode import CurrentMode, Deliverer, DeliveryMode
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.limits.cgroups import CgroupTree
from accelshare.agent.limits.setting import ContainerLimits
from accelshare.agent.nri.container_decision import Rules
from accelshare.agent.nri.container_handler import ContainerHandler
from accelshare.agent.nri.guard import Guard
from accelshare.agent.nri.outcomes import OutcomeQueue
from accelshare.agent.pod_store import PodStore
from accelshare.vendors.profile import Profile
from accelshare.wire.node_pods import NodePod


def pod_store(*pods: NodePod) -> PodStore:
    store = PodStore()
    for pod in pods:
        store.put(pod)
    return store


def mode(deliverer: Deliverer = Deliverer.DEVICE_PLUGIN, *corrected_kinds: str) -> CurrentMode:
    return CurrentMode(DeliveryMode(deliverer, "a test", corrected_kinds=frozenset(corrected_kinds)))


def guard(*profiles: Profile) -> Guard:
    return Guard(profiles, exempt=[], on_host=Path)


def container_handler(
    devices: DeviceInventory,
    pods: PodStore,
    deliverer: Deliverer = Deliverer.NRI,
    *,
    guard: Guard | None = None,
    wrong_handler: Callable[[Profile, str], str] = lambda _profile, _handler: "",
    outcomes: OutcomeQueue | None = None,
    limits: ContainerLimits | None = None,
    node_labels: Callable[[], Mapping[str, str]] = dict,
    node_resources: Callable[[], Collection[str]] = tuple,
    on_host: Callable[[str], Path] = Path,
    corrected: Collection[str] = (),
) -> ContainerHandler:
    return ContainerHandler(
        devices,
        pods,
        mode(deliverer, *corrected),
        outcomes or OutcomeQueue(),
        Rules(on_host, guard, wrong_handler),
        limits or ContainerLimits(CgroupTree(Path("/nowhere")), {}),
        node_labels=node_labels,
        node_resources=node_resources,
    )
