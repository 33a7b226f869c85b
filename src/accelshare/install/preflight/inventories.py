"""What agents have told of their nodes already, where accelshare is installed.

Belongs here: reading it as far as it can be read. Never: judging it, or a guess where no agent has spoken.
"""

from collections.abc import Mapping

from accelshare.install.preflight.objects import Node
from accelshare.wire import inventory
from accelshare.wire.decoding import UnreadableError
from accelshare.wire.inventory import KindEntry


def told(node: Node) -> Mapping[str, KindEntry]:
    """The cards of each kind, and how they are delivered; nothing where no agent is, or where it cannot be read."""
    try:
        return inventory.entries_of((node.metadata.annotations or {}).get(inventory.KEY, "{}"))
    except UnreadableError:
        return {}
