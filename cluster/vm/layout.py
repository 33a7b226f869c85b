"""Names, addresses and paths of the virtual node. No I/O."""

from __future__ import annotations

from pathlib import Path
from typing import Final

NODE_NAME: Final = "accelshare-vm"
CARDS: Final = 2  # fake cards of the module, /dev/zpu0 and /dev/zpu1
CARD_MIB: Final = 16384

# One small network, which only the processes of one network namespace see.
TAP: Final = "accelshare-vm"
HOST_ADDRESS: Final = "10.97.0.1"
NODE_ADDRESS: Final = "10.97.0.2"
PREFIX: Final = 24

PAUSE_IMAGE: Final = "accelshare.local/pause:1"

# In the guest. The second disk is made for each start, because each control plane has its own certificate authority.
SECOND_DISK: Final = Path("/node")
PROGRAMS: Final = Path("/opt/node/bin")
IMAGES: Final = Path("/opt/node/images")
PYTHON_PACKAGES: Final = Path("/opt/accelshare/packages")
SOURCE: Final = Path("/opt/accelshare/src")
AGENT_PORT: Final = 9110
