"""The files of the virtual node agree with each other."""

import tomllib

import yaml

from cluster.vm import guest_files
from cluster.vm.layout import NODE_ADDRESS, PREFIX


def test_every_unit_that_starts_at_boot_is_written_and_the_agent_is_not_started() -> None:
    wants = "/etc/systemd/system/multi-user.target.wants/"
    started = {path.removeprefix(wants): target for path, target in guest_files.links().items() if path.startswith(wants)}
    own = {target for target in started.values() if target.startswith("/etc/")}
    assert own <= set(guest_files.files())
    assert "systemd-networkd.service" in started
    assert f"{guest_files.AGENT_UNIT}.service" not in started


def test_runtime_and_kubelet_both_use_systemd_for_cgroups() -> None:
    files = guest_files.files()
    runtime = tomllib.loads(files["/etc/containerd/config.toml"])["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"] is True
    assert yaml.safe_load(files["/etc/kubernetes/kubelet.yaml"])["cgroupDriver"] == "systemd"


def test_the_runtime_requires_our_plugin() -> None:
    plugins = tomllib.loads(guest_files.files()["/etc/containerd/config.toml"])["plugins"]
    assert plugins["io.containerd.nri.v1.nri"]["disable"] is False
    assert plugins["io.containerd.nri.v1.nri"]["default_validator"]["enable"] is True


def test_the_node_has_one_fixed_address_and_no_route_out() -> None:
    network = guest_files.files()["/etc/systemd/network/node.network"]
    assert f"Address={NODE_ADDRESS}/{PREFIX}" in network.splitlines()
    assert "Gateway" not in network
