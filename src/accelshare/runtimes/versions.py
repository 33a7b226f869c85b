"""Which version of containerd and CRI-O has which feature.

Belongs here: a table of versions, read from the runtimes' sources, and parsing a version. Never: how a feature is configured.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

VersionNumbers: TypeAlias = tuple[int, int, int]

# First versions with NRI, with NRI enabled by default, and with the validator (NRI 0.10).
NRI_SINCE: Final[Mapping[str, VersionNumbers]] = {"containerd": (1, 7, 0), "cri-o": (1, 26, 0)}
NRI_BY_DEFAULT_SINCE: Final[Mapping[str, VersionNumbers]] = {"containerd": (2, 0, 0), "cri-o": (1, 30, 0)}
VALIDATOR_SINCE: Final[Mapping[str, VersionNumbers]] = {"containerd": (2, 2, 0), "cri-o": (1, 34, 0)}
# First versions that call plugins to validate. One release later in CRI-O, because 1.34.0 came with an older NRI.
_ASKS_SINCE: Final[Mapping[str, VersionNumbers]] = {"containerd": (2, 2, 0), "cri-o": (1, 35, 0)}
_CDI_SINCE: Final[Mapping[str, VersionNumbers]] = {"containerd": (2, 1, 0), "cri-o": (1, 34, 0)}
_CDI_BACKPORT: Final = ((1, 7, 30), (1, 8, 0))  # backported to containerd 1.7
# Older versions replace a plugin's whole section by the imported file's section, instead of merging its keys.
_MERGES_SINCE: Final = (2, 0, 0)


def release(version: str) -> VersionNumbers:
    """The three numbers of a version such as `v2.4.2` or `2.4.2-rc.1`; zeros if there are none."""
    match = re.match(r"v?([0-9]{1,9})\.([0-9]{1,9})(?:\.([0-9]{1,9}))?", version)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)


def asks_validators(name: str, version: str) -> bool:
    """Whether plugins may subscribe to validation; runtimes disconnect a plugin that subscribes to an event they do not know."""
    since = _ASKS_SINCE.get(name.lower())
    return since is not None and release(version) >= since


def takes_cdi(name: str, version: str) -> bool:
    """Whether plugins may name CDI devices."""
    number = release(version)
    since = _CDI_SINCE.get(name.lower())
    return since is not None and (
        number >= since or (name.lower() == "containerd" and _CDI_BACKPORT[0] <= number < _CDI_BACKPORT[1])
    )


def merges_sections(containerd_version: str) -> bool:
    """Whether this containerd merges two files' sections of one plugin key by key."""
    return release(containerd_version) >= _MERGES_SINCE
