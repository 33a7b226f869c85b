"""The drivers there are, by the name a profile calls them.

Belongs here: names, and where the code is. Never: importing it; a node without a vendor's library needs none of its code.
"""

from collections.abc import Mapping
from typing import Final

DRIVERS: Final[Mapping[str, str]] = {
    "nvidia": "accelshare.vendors.drivers.nvidia:NvidiaDriver",
    "kunlun": "accelshare.vendors.drivers.kunlun:KunlunDriver",
    "enflame": "accelshare.vendors.drivers.enflame:EnflameDriver",
    "stream": "accelshare.vendors.drivers.stream:StreamDriver",
    "static": "accelshare.vendors.drivers.static:StaticDriver",
}
