"""The version of the API server.

Belongs here: reading it. Never: what follows from it.
"""

import msgspec

from accelshare.kube.client import Client
from accelshare.wire.decoding import Decoder, UnreadableError


class _Version(msgspec.Struct):
    major: str
    minor: str


_versions = Decoder(_Version)


async def server_version(client: Client, *, timeout_s: float) -> tuple[int, int]:
    """Major and minor, such as (1, 36). UnreadableError if the API server does not say it in numbers."""
    version = _versions.decode(await client.request("GET", "/version", timeout_s=timeout_s))
    try:
        return int(version.major), int(version.minor.rstrip("+"))
    except ValueError as error:
        raise UnreadableError(f"{version.major}.{version.minor} is no version") from error
