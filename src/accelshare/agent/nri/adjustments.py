"""A container's edits in NRI's words.

Belongs here: device files looked up on the host, mounts and variables renamed. Never: which edits.
"""

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from accelshare.agent.nri.protocol.messages import adjustment
from accelshare.agent.nri.protocol.nri_pb2 import ContainerAdjustment, LinuxDevice, Mount, OptionalFileMode, OptionalUInt32
from accelshare.agent.nri.protocol.plugin import Refuse
from accelshare.vendors.container_edits import ContainerEdits, DeviceNode


def adjusted(edits: Iterable[ContainerEdits], *, on_host: Callable[[str], Path]) -> ContainerAdjustment:
    """All of these edits as one adjustment."""
    together = tuple(edits)
    nodes = {node.container_path: _device(node, on_host) for one in together for node in one.device_nodes}
    return adjustment(
        env={name: value for one in together for name, value in one.env.items()},
        devices=nodes.values(),
        mounts=[
            Mount(
                destination=mount.container_path,
                type="bind",
                source=mount.host_path,
                options=("rbind", "rprivate", "ro" if mount.read_only else "rw"),
            )
            for one in together
            for mount in one.mounts
        ],
        cdi_devices=[name for one in together for name in one.cdi_devices],
        annotations={name: value for one in together for name, value in one.annotations.items()},
    )


def _device(node: DeviceNode, on_host: Callable[[str], Path]) -> LinuxDevice:
    try:
        found = on_host(node.host_path).stat()
    except OSError as error:
        raise Refuse(f"device file {node.host_path} cannot be given: {error.strerror}") from error
    if not stat.S_ISCHR(found.st_mode) and not stat.S_ISBLK(found.st_mode):
        raise Refuse(f"{node.host_path} is no device file")
    return LinuxDevice(
        path=node.container_path,
        type="c" if stat.S_ISCHR(found.st_mode) else "b",
        major=os.major(found.st_rdev),
        minor=os.minor(found.st_rdev),
        file_mode=OptionalFileMode(value=stat.S_IMODE(found.st_mode)),
        uid=OptionalUInt32(value=found.st_uid),
        gid=OptionalUInt32(value=found.st_gid),
    )
