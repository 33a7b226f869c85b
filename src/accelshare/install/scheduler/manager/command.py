"""`accelshare scheduler-config manage`: its options.

Belongs here: from argv to values, and printing. Never: rules.
"""

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import click

from accelshare.help_pages import HelpCommand
from accelshare.install.certificates.command import issuing_options, lifetimes_from, names_from, secret_options
from accelshare.install.commands import errors_as_messages
from accelshare.install.scheduler.options import (
    desired_options,
    host_from,
    intent_from,
    path_options,
    scheduler_from,
    wait_options,
)
from accelshare.options import FloatRange, log_options
from accelshare.terminal import echo_line

if TYPE_CHECKING:
    from accelshare.install.scheduler.desired_config import TlsFiles
    from accelshare.install.scheduler.host import SchedulerHost
    from accelshare.install.scheduler.plan import Intent

SERVER_NAME = "accelshare-extender"


@click.command(
    cls=HelpCommand,
    short_help="Keep the configuration applied on this control-plane node.",
    examples=[("--node-name cp-1", "until SIGTERM"), ("--restore-all", "restore the original files on every node")],
)
@click.option(
    "--restore-all",
    is_flag=True,
    help="Ask the managers of all nodes to restore the original configuration, wait for them, and exit.",
)
@click.option("--deadline-s", type=FloatRange(1), default=600.0, show_default=True, help="How long --restore-all waits.")
@click.option("--node-name", envvar="NODE_NAME", help="Name of this control-plane node. Default: $NODE_NAME.")
@click.option(
    "--namespace",
    default="kube-system",
    show_default=True,
    help="Namespace of the ConfigMap, the Lease, the Service and the Secrets.",
)
@click.option(
    "--state-configmap",
    default="accelshare-scheduler-config",
    show_default=True,
    help="ConfigMap with the wanted state and the state of each node.",
)
@click.option(
    "--lease", default="accelshare-scheduler-config", show_default=True, help="Lease that lets one node at a time be changed."
)
@click.option("--port", type=click.IntRange(1, 65535), default=12345, show_default=True, help="Port of the extender's Service.")
@click.option("--plain-http", is_flag=True, help="No TLS: every client that can reach the extender can bind pods.")
@click.option("--server-name", help=f"Name in the extender's certificate. Default: {SERVER_NAME}.")
@click.option("--every-s", type=FloatRange(0.05), default=5.0, show_default=True, help="Seconds between checks.")
@secret_options
@issuing_options
@desired_options
@path_options
@wait_options
@log_options
@errors_as_messages
def manage(restore_all: bool, **options: Any) -> None:
    """Keep kube-scheduler of this control-plane node configured until SIGTERM: create and renew certificates, apply the
    configuration on one node after the other, and apply it again when kubeadm has replaced the manifest."""
    from accelshare import logs

    logs.set_up(level=options["log_level"], form=options["log_format"], file=None, file_mib=1, files=1)
    if not restore_all and not options["node_name"]:
        raise click.UsageError("--node-name is not given and NODE_NAME is not set; give this node's name in the cluster")
    asyncio.run(_restore_all(options) if restore_all else _manage(options))


async def _manage(options: dict[str, Any]) -> None:
    from dataclasses import replace

    from accelshare.install.scheduler import leadership
    from accelshare.install.scheduler.health import Patience
    from accelshare.install.scheduler.manager.node_reconciler import ManagedNode, NodeReconciler
    from accelshare.kube import config
    from accelshare.kube.client import Client
    from accelshare.kube.named_data import Place

    task = ManagedNode(
        node=options["node_name"],
        names=replace(names_from(options), server_name=options["server_name"] or SERVER_NAME),
        lifetimes=lifetimes_from(options),
        state=Place("ConfigMap", options["namespace"], options["state_configmap"]),
        lease=options["lease"],
        port=options["port"],
        plain_http=options["plain_http"],
    )

    def intent(host: "SchedulerHost", url: str, tls: "TlsFiles | None") -> "Intent":
        paths = (tls.ca_file, tls.cert_file, tls.key_file, tls.server_name) if tls is not None else (None,) * 4
        files = dict(zip(("ca_file", "cert_file", "key_file", "server_name"), paths, strict=True))
        return intent_from(host, {**options, "url": url, **files})

    cluster = config.load(options["kubeconfig"], context=options["context"])
    async with Client(cluster, user_agent="accelshare-scheduler-manager") as client:
        reconciler = NodeReconciler(
            client,
            task,
            host_from(options),
            make_intent=intent,
            scheduler=lambda host: scheduler_from(host, options["health_url"], options["log_directory"]),
            patience=Patience(options["wait_s"]),
            read_lease=leadership.read,
            host_name=socket.gethostname(),  # the manager's pod is in the host's network, and so has the host's name
        )
        await reconciler.run(options["every_s"])


async def _restore_all(options: dict[str, Any]) -> None:
    from accelshare.install.scheduler.manager.state_configmap import restore_all
    from accelshare.kube import config
    from accelshare.kube.client import Client
    from accelshare.kube.leases import Lease
    from accelshare.kube.named_data import Place

    cluster = config.load(options["kubeconfig"], context=options["context"])
    async with Client(cluster, user_agent="accelshare-scheduler-manager") as client:
        place = Place("ConfigMap", options["namespace"], options["state_configmap"])
        lease = Lease(client, options["namespace"], options["lease"], identity="restore-all")
        await restore_all(client, place, lease, limit_s=options["deadline_s"], say=echo_line)
