"""Translates container edits into an NRI adjustment.

Belongs here: looking up device files on the host, and NRI's field names. Never: which edits a container gets.
"""

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from accelshare.agent.nri.protocol.messages import adjustment
from accelshare.agent.nri.protocol.nri_pb2 import ContainerAdjustment, LinuxDevice, Mount, OptionalFileMode, OptionalUInt32
from accelshare.agent.nri.protocol.plugin import Refuse
from accelshare.vendors.container_edits import ContainerEdits, DeviceNode


def adjusted(
    edits: Iterable[ContainerEdits], *, on_host: Callable[[str], Path], unified: Mapping[str, str] | None = None
) -> ContainerAdjustment:
    """All these edits as one adjustment; raises Refuse if a device file is missing. `unified`: files of its cgroup."""
    all_edits = tuple(edits)
    nodes = {node.container_path: _device(node, on_host) for one in all_edits for node in one.device_nodes}
    return adjustment(
        env={name: value for one in all_edits for name, value in one.env.items()},
        devices=nodes.values(),
        mounts=[
            Mount(
                destination=mount.container_path,
                type="bind",
                source=mount.host_path,
                options=("rbind", "rprivate", "ro" if mount.read_only else "rw"),
            )
            for one in all_edits
            for mount in one.mounts
        ],
        cdi_devices=[name for one in all_edits for name in one.cdi_devices],
        annotations={name: value for one in all_edits for name, value in one.annotations.items()},
        unified=unified,
    )


def _device(node: DeviceNode, on_host: Callable[[str], Path]) -> LinuxDevice:
    try:
        status = on_host(node.host_path).stat()
    except OSError as error:
        raise Refuse(f"device file {node.host_path} cannot be used: {error.strerror}") from error
    if not stat.S_ISCHR(status.st_mode) and not stat.S_ISBLK(status.st_mode):
        raise Refuse(f"{node.host_path} is not a device file")
    return LinuxDevice(
        path=node.container_path,
        type="c" if stat.S_ISCHR(status.st_mode) else "b",
        major=os.major(status.st_rdev),
        minor=os.minor(status.st_rdev),
        file_mode=OptionalFileMode(value=stat.S_IMODE(status.st_mode)),
        uid=OptionalUInt32(value=status.st_uid),
        gid=OptionalUInt32(value=status.st_gid),
    )
