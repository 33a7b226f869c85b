"""Which version of a runtime can do what.

Belongs here: rows, and reading a version. Never: how it is configured.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

Release: TypeAlias = tuple[int, int, int]

# From these versions on the runtimes have the validator (NRI 0.10), and take CDI names.
VALIDATOR_SINCE: Final[Mapping[str, Release]] = {"containerd": (2, 2, 0), "cri-o": (1, 34, 0)}
# And ask plugins that wish it to validate. A release of CRI-O later, because its 1.34.0 came with an NRI from before that.
_ASKS_SINCE: Final[Mapping[str, Release]] = {"containerd": (2, 2, 0), "cri-o": (1, 35, 0)}
_CDI_SINCE: Final[Mapping[str, Release]] = {"containerd": (2, 1, 0), "cri-o": (1, 34, 0)}
_CDI_BACKPORT: Final = ((1, 7, 30), (1, 8, 0))  # containerd 1.7 learned it late
# Older ones let an imported file's section of a plugin take the place of the whole section, not of its keys.
_MERGES_SINCE: Final = (2, 0, 0)


def release(version: str) -> Release:
    """The three numbers of a version such as `v2.4.2` or `2.4.2-rc.1`; zeros if there are none."""
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)


def asks_validators(name: str, version: str) -> bool:
    """Whether plugins may wish to be asked at the end of making a container; runtimes hang up on a wish that they do not know."""
    since = _ASKS_SINCE.get(name.lower())
    return since is not None and release(version) >= since


def takes_cdi(name: str, version: str) -> bool:
    found = release(version)
    since = _CDI_SINCE.get(name.lower())
    return since is not None and (
        found >= since or (name.lower() == "containerd" and _CDI_BACKPORT[0] <= found < _CDI_BACKPORT[1])
    )


def merges_sections(containerd_version: str) -> bool:
    """Whether this containerd joins two files' sections of one plugin key by key."""
    return release(containerd_version) >= _MERGES_SINCE
