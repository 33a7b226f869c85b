"""Answers that kubelet keeps for containers that restart, and whether they still name the same cards.

Belongs here: comparing a kept answer with what the container would be given now. Pure. Never: reading kubelet's files.

An answer by hardware ids stays right. One by index or minor number names another card once cards are numbered anew, after a
reboot say, and kubelet would hand it out without asking.
"""

from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as api
from accelshare.vendors.container_edits import ContainerEdits
from accelshare.vendors.profile import Profile


def names_other_cards(profile: Profile, kept: api.ContainerAllocateResponse, now: ContainerEdits) -> bool:
    """Whether what names cards by number in the kept answer is not what names this container's cards now."""
    rules = profile.container
    templates = {**rules.cdi.env, **rules.device_nodes.env, **rules.volume_mounts.env, **rules.envvar, **rules.env}
    for name, template in templates.items():
        if _by_number(template) and name in kept.envs and name in now.env and kept.envs[name] != now.env[name]:
            return True
    if any(_by_number(template) for template in profile.hardware.device_nodes):
        shared = set(profile.hardware.shared_device_nodes)
        files = {device.host_path for device in kept.devices} - shared
        if files and files != {node.host_path for node in now.device_nodes} - shared:
            return True
    if _by_number(rules.volume_mounts.container_path):
        mounts = {mount.container_path for mount in kept.mounts}
        if mounts and not mounts.issuperset(mount.container_path for mount in now.mounts):
            return True
    return _by_number(rules.cdi.name) and bool(kept.cdi_devices) and {d.name for d in kept.cdi_devices} != set(now.cdi_devices)


def _by_number(template: str | None) -> bool:
    return template is not None and ("{index}" in template or "{minor}" in template)
