"""A pod's record, corrected after the bind by the node that knows better.

Belongs here: one patch. It names the pod's uid, so that another pod of the same name is never written on.
"""

from collections.abc import Mapping

import msgspec

from accelshare.kube import paths
from accelshare.kube.client import Client


async def annotate_pod(client: Client, *, namespace: str, name: str, uid: str, annotations: Mapping[str, str]) -> None:
    body = msgspec.json.encode({"metadata": {"uid": uid, "annotations": dict(annotations)}})
    await client.request("PATCH", paths.pod(namespace, name), body=body, content_type="application/merge-patch+json")
