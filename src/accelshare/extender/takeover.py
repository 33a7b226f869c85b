"""What a new holder of the Lease does before its first decision, so that the earlier holder's binds cannot conflict with its own.

Belongs here: the order of these steps. Never: the steps themselves (own_pod.py, feed.py, fence.py, leadership.py).

A Binding that the earlier holder sent is either carried out before this one's ledger is complete, and then counted, or refused:

1. The earlier holder sends a Binding only after a write of the Lease that names its pod has succeeded, and the Lease names the
   pod until the response has come, or until the pod was changed after a response was lost (leadership.py, binder.py).
2. Taking the Lease is a write at the version that was read. So no write of the earlier holder can succeed after that read, and
   every Binding that it has sent or will send is of a pod that the Lease named when it was read.
3. The new holder's own pod is changed after that, and its ledger waits for this change: the watch shows changes in their order,
   so the ledger has every Binding that was carried out before.
4. Each named pod that has no node is changed. A Binding names its pod's version, so the API server refuses those that are
   still in flight. Only now does the new holder decide.
5. Until then its own writes of the Lease repeat the names, so that a third holder fences them if this one dies meanwhile.

The number of pods that wait does not matter: only those are changed whose Binding was under way, a few dozen on a busy cluster.
A Lease that names no pods for the term of its last holder was written by a version before this rule, or is new: then every
pending pod is changed. So it is where an extender without a Lease was still running.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from accelshare.extender import own_pod
from accelshare.extender.feed import Feed
from accelshare.extender.fence import Fence
from accelshare.extender.leadership import Leadership
from accelshare.extender.own_pod import OwnPod
from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError
from accelshare.wire.decoding import version_number

log = logging.getLogger(__name__)
T = TypeVar("T")
RETRY_S: Final = 0.25


async def take_over(client: Client, feed: Feed, fence: Fence, leadership: Leadership, *, namespace: str, pod: str) -> OwnPod:
    """Returns this extender's own pod."""
    own = await _repeated(partial(own_pod.read, client, namespace, pod))
    alone = not await _wait_for_others(client, namespace, own)
    before = feed.newest
    own = await _repeated(partial(own_pod.touch, client, namespace, pod, own.metadata.uid))
    # The watch shows changes in their order: after this one, the ledger has every bind that the earlier holder has done.
    await feed.wait_for_version(version_number(own.metadata.version), after=before)
    # What it has sent and the API server has not carried out is refused from now on.
    if alone and leadership.settled_before:
        fence.skip_pending()
    else:
        await fence.fence_pending(leadership.in_flight_before if alone else None)
    leadership.fenced()
    feed.report_pending()
    return own


async def with_addresses(client: Client, own: OwnPod, *, namespace: str) -> OwnPod:
    """This extender's own pod, once kubelet has reported its addresses, which may be a moment after its start."""
    while not own.addresses:
        await asyncio.sleep(RETRY_S)
        own = await _repeated(partial(own_pod.read, client, namespace, own.metadata.name))
    return own


async def _wait_for_others(client: Client, namespace: str, own: OwnPod) -> bool:
    """Wait until the extenders of an earlier version have ended: they decide without the Lease. False: there were none."""
    reported: list[str] = []
    while names := await _repeated(partial(own_pod.without_lease, client, namespace, own)):
        if names != reported:
            log.info("takeover waiting_for=%s why=%r", ",".join(names), "they decide without a lease")
            reported = names
        await asyncio.sleep(RETRY_S)
    return bool(reported)


async def _repeated(request: Callable[[], Awaitable[T]]) -> T:
    """Until the API server answers it."""
    while True:
        try:
            return await request()
        except KubeError as error:
            log.warning("takeover outcome=retried error=%r", str(error))
        await asyncio.sleep(RETRY_S)
