"""`accelshare scheduler-config manage`: the flags.

Belongs here: from argv to values, and printing. Never: rules.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import click

from accelshare.install.certificates.command import issuing_options, lifetimes_from, names_from, secret_options
from accelshare.install.commands import errors_as_messages
from accelshare.install.scheduler.options import desired_options, host_from, intent_from, place_options, wait_options
from accelshare.options import log_options
from accelshare.terminal import echo_line

if TYPE_CHECKING:
    from accelshare.install.scheduler.desired_config import Tls
    from accelshare.install.scheduler.health import HttpsScheduler
    from accelshare.install.scheduler.host import SchedulerHost
    from accelshare.install.scheduler.plan import Intent

SERVER_NAME = "accelshare-extender"


@click.command(short_help="Keep it put in on this control-plane node, for ever.")
@click.option("--restore-all", is_flag=True, help="Ask every node's manager to put all back, wait for them, and end.")
@click.option("--deadline-s", type=click.FloatRange(1), default=600.0, show_default=True, help="For --restore-all.")
@click.option("--node-name", envvar="NODE_NAME", help="The control-plane node it runs on. Default: $NODE_NAME.")
@click.option("--namespace", default="kube-system", show_default=True, help="Where all of the following are.")
@click.option(
    "--state-configmap", default="accelshare-scheduler-config", show_default=True, help="What is wanted, and how it stands."
)
@click.option("--lease", default="accelshare-scheduler-config", show_default=True, help="One node at a time.")
@click.option("--port", type=click.IntRange(1, 65535), default=12345, show_default=True, help="Of the Service.")
@click.option("--plain-http", is_flag=True, help="No TLS and no certificates: whoever reaches the extender can bind pods.")
@click.option("--server-name", help=f"The name in the extender's certificate. Default: {SERVER_NAME}.")
@click.option("--every-s", type=click.FloatRange(0.05), default=5.0, show_default=True, help="How often to look.")
@secret_options
@issuing_options
@desired_options
@place_options
@wait_options
@log_options
@errors_as_messages
def manage(restore_all: bool, **options: Any) -> None:
    """Keep kube-scheduler of this control-plane node asking the extender, until SIGTERM: certificates made and renewed, the
    configuration put in, one node after the other, and put in again when kubeadm has written the manifest anew."""
    from accelshare import logs

    logs.set_up(level=options["log_level"], form=options["log_format"], file=None, file_mib=1, files=1)
    if not restore_all and not options["node_name"]:
        raise click.UsageError("--node-name is not given and NODE_NAME is not set; it must be this node's name in the cluster")
    asyncio.run(_restore_all(options) if restore_all else _keep(options))


async def _keep(options: dict[str, Any]) -> None:
    from dataclasses import replace

    from accelshare.install.scheduler import leadership
    from accelshare.install.scheduler.health import Patience
    from accelshare.install.scheduler.manager import rounds
    from accelshare.install.scheduler.manager.node_reconciler import NodeReconciler, Task
    from accelshare.kube import config
    from accelshare.kube.client import Client
    from accelshare.kube.named_data import Place

    task = Task(
        node=options["node_name"],
        names=replace(names_from(options), server_name=options["server_name"] or SERVER_NAME),
        lifetimes=lifetimes_from(options),
        state=Place("ConfigMap", options["namespace"], options["state_configmap"]),
        lease=options["lease"],
        port=options["port"],
        plain_http=options["plain_http"],
    )

    def intent(scheduler_host: "SchedulerHost", url: str, tls: "Tls | None") -> "Intent":
        told = (tls.ca_file, tls.cert_file, tls.key_file, tls.server_name) if tls is not None else (None,) * 4
        files = dict(zip(("ca_file", "cert_file", "key_file", "server_name"), told, strict=True))
        return intent_from(scheduler_host, {**options, "url": url, **files})

    cluster = config.load(options["kubeconfig"], context=options["context"])
    async with Client(cluster, user_agent="accelshare-scheduler-manager") as client:
        reconciler = NodeReconciler(
            client,
            task,
            host_from(options),
            make_intent=intent,
            scheduler=lambda scheduler_host: _scheduler(scheduler_host, options),
            patience=Patience(options["wait_s"]),
            read_lease=leadership.read,
        )
        await rounds.run(reconciler, node=task.node, every_s=options["every_s"])


async def _restore_all(options: dict[str, Any]) -> None:
    from accelshare.install.scheduler.manager import restoring
    from accelshare.kube import config
    from accelshare.kube.client import Client
    from accelshare.kube.leases import Lease
    from accelshare.kube.named_data import Place

    cluster = config.load(options["kubeconfig"], context=options["context"])
    async with Client(cluster, user_agent="accelshare-scheduler-manager") as client:
        place = Place("ConfigMap", options["namespace"], options["state_configmap"])
        lease = Lease(client, options["namespace"], options["lease"], identity="restore-all")
        await restoring.restore_all(client, place, lease, limit_s=options["deadline_s"], say=echo_line)


def _scheduler(scheduler_host: "SchedulerHost", options: dict[str, Any]) -> "HttpsScheduler":
    from accelshare.install.errors import NotUnderstood
    from accelshare.install.scheduler.health import HttpsScheduler

    try:
        url = options["health_url"] or scheduler_host.target.health_url(
            scheduler_host.base(scheduler_host.record()), scheduler_host.disk
        )
    except NotUnderstood:
        url = "https://127.0.0.1:10259/healthz"  # the files are put back even if nobody can read them
    return HttpsScheduler(url, options["log_directory"])
