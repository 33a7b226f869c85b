"""The files that turn Debian into the virtual node: units of systemd, and the configuration of each program. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from cluster.local import configuration
from cluster.local.layout import CONTAINERD_SOCKET, Layout
from cluster.vm.layout import (
    AGENT_PORT,
    CARD_MIB,
    CARDS,
    IMAGES,
    NODE_ADDRESS,
    NODE_NAME,
    PAUSE_IMAGE,
    PREFIX,
    PROGRAMS,
    PYTHON_PACKAGES,
    SECOND_DISK,
    SOURCE,
)

# Files of the second disk that the units read.
KUBELET_KUBECONFIG: Final = "kubelet.kubeconfig"
AGENT_KUBECONFIG: Final = "agent.kubeconfig"
CA: Final = "ca.crt"
AUTHORIZED_KEYS: Final = "authorized_keys"
MODULE: Final = "fakevram.ko"
PROFILES: Final = "profiles"
AGENT_SOURCE: Final = "src"
AGENT_ENVIRONMENT: Final = "agent.env"

AGENT_UNIT: Final = "accelshare-agent"

# What an emulated machine under load needs: minutes for what takes seconds, and an end that does not wait for pods.
_SYSTEMD = """\
[Manager]
DefaultTimeoutStartSec=1200
DefaultDeviceTimeoutSec=1200
DefaultTimeoutStopSec=15
"""

_NETWORK = f"""\
[Match]
Name=eth0

[Link]
RequiredForOnline=no

[Network]
Address={NODE_ADDRESS}/{PREFIX}
LinkLocalAddressing=no
IPv6AcceptRA=no
"""

# PAM would start a session of systemd for each command.
_SSHD = f"""\
AuthorizedKeysFile {SECOND_DISK}/{AUTHORIZED_KEYS}
UsePAM no
PasswordAuthentication no
"""

_CARDS = f"""\
[Unit]
Description=Fake cards whose memory the kernel accounts
RequiresMountsFor={SECOND_DISK}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/insmod {SECOND_DISK}/{MODULE} cards={CARDS} memory_mib={CARD_MIB}
"""

_CONTAINERD = f"""\
[Unit]
Description=containerd
After=network.target

[Service]
Type=notify
ExecStart={PROGRAMS}/containerd
Delegate=yes
KillMode=process
Restart=always
RestartSec=1
OOMScoreAdjust=-999
LimitNOFILE=1048576
TasksMax=infinity
Environment=PATH={PROGRAMS}:/usr/sbin:/usr/bin
"""

_LOAD_IMAGES = f"""\
[Unit]
Description=Container images
After=containerd.service
Requires=containerd.service
ConditionPathExists=!{IMAGES}/imported

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'for image in {IMAGES}/*.tar; do {PROGRAMS}/ctr --namespace=k8s.io images import "$image" || exit 1; done'
ExecStart=/usr/bin/touch {IMAGES}/imported
"""

_KUBELET = f"""\
[Unit]
Description=kubelet
RequiresMountsFor={SECOND_DISK}
After=containerd.service load-images.service
Wants=containerd.service load-images.service

[Service]
ExecStart={PROGRAMS}/kubelet \\
  --config=/etc/kubernetes/kubelet.yaml \\
  --kubeconfig={SECOND_DISK}/{KUBELET_KUBECONFIG} \\
  --hostname-override={NODE_NAME} \\
  --node-ip={NODE_ADDRESS}
Restart=always
RestartSec=2
StartLimitInterval=0
"""

# Not enabled: tests start, kill and start it again. The source is copied so that Python can keep its bytecode.
_AGENT = f"""\
[Unit]
Description=accelshare agent
RequiresMountsFor={SECOND_DISK}
After=containerd.service kubelet.service cards.service
Requires=cards.service

[Service]
ExecStartPre=/usr/bin/cp --recursive --update --preserve=timestamps {SECOND_DISK}/{AGENT_SOURCE}/. {SOURCE}
ExecStart=/usr/bin/python3 -m accelshare agent \\
  --kubeconfig={SECOND_DISK}/{AGENT_KUBECONFIG} \\
  --node-name={NODE_NAME} \\
  --profiles={SECOND_DISK}/{PROFILES} \\
  --port={AGENT_PORT} $AGENT_FLAGS
EnvironmentFile={SECOND_DISK}/{AGENT_ENVIRONMENT}
Environment=PYTHONPATH={SOURCE}:{PYTHON_PACKAGES}
Restart=no
"""

UNITS: Final = {
    "cards": _CARDS,
    "containerd": _CONTAINERD,
    "load-images": _LOAD_IMAGES,
    "kubelet": _KUBELET,
    AGENT_UNIT: _AGENT,
}
STARTED_AT_BOOT: Final = ("cards", "containerd", "load-images", "kubelet")
# Units of Debian that are useful on a machine that lives longer.
_NOT_STARTED: Final = ("e2scrub_reap.service", "e2scrub_all.timer", "fstrim.timer", "dpkg-db-backup.timer")


def files() -> Mapping[str, str]:
    """Path in the guest → content."""
    units = {f"/etc/systemd/system/{name}.service": content for name, content in UNITS.items()}
    containerd = configuration.containerd(
        root=Path("/var/lib/containerd"),
        programs=PROGRAMS,
        pause_image=PAUSE_IMAGE,
        may_raise_oom_score=True,
        nri="validated",
        systemd_cgroup=True,
    )
    return {
        **units,
        "/etc/hostname": f"{NODE_NAME}\n",
        "/etc/hosts": f"127.0.0.1 localhost\n{NODE_ADDRESS} {NODE_NAME}\n",
        "/etc/resolv.conf": "",
        # Without one, systemd would take the start for the first and apply its presets.
        "/etc/machine-id": "ace15ace15ace15ace15ace15ace15ac\n",
        "/etc/fstab": f"/dev/vdb {SECOND_DISK} ext4 ro 0 0\n",
        "/etc/systemd/system.conf.d/node.conf": _SYSTEMD,
        "/etc/systemd/network/node.network": _NETWORK,
        "/etc/ssh/sshd_config.d/node.conf": _SSHD,
        "/etc/containerd/config.toml": containerd,
        "/etc/cni/net.d/10-node.conflist": configuration.pod_network(Layout().pod_network),
        "/etc/kubernetes/kubelet.yaml": _kubelet(),
    }


def links() -> Mapping[str, str]:
    """Path in the guest → where the link leads."""
    own = {f"{name}.service": f"/etc/systemd/system/{name}.service" for name in STARTED_AT_BOOT}
    started = {"systemd-networkd.service": "/usr/lib/systemd/system/systemd-networkd.service", **own}
    return {
        **{f"/etc/systemd/system/multi-user.target.wants/{unit}": file for unit, file in started.items()},
        **{f"/etc/systemd/system/{unit}": "/dev/null" for unit in _NOT_STARTED},
    }


def _kubelet() -> str:
    content = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": f"{SECOND_DISK}/{CA}"}},
        "cgroupDriver": "systemd",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "maxPods": 60,
        "nodeStatusUpdateFrequency": "5s",
        "runtimeRequestTimeout": "10m",
    }
    return yaml.safe_dump(content, sort_keys=False)
