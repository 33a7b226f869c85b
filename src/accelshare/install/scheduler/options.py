"""The flags that several commands share, and how they become values.

Belongs here: from argv to values. Never: rules, printing.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from accelshare.install.commands import with_client
from accelshare.install.errors import Clash, NotUnderstood
from accelshare.options import PATH, kubeconfig_options, profiles_option, together

if TYPE_CHECKING:
    from accelshare.install.scheduler.desired_config import DesiredConfig
    from accelshare.install.scheduler.host import SchedulerHost
    from accelshare.install.scheduler.plan import Intent
    from accelshare.install.scheduler.release import Release

MANIFEST: Final = Path("/etc/kubernetes/manifests/kube-scheduler.yaml")
UNIT: Final = Path("/etc/systemd/system/kube-scheduler.service")
DIRECTORY: Final = Path("/etc/kubernetes/accelshare")
# Beside kubeadm's own files, so that a pod needs one mount only and can take the directory away again.
ARCHIVE: Final = Path("/etc/kubernetes/accelshare-backup")

# Where the extender is: render, plan, apply.
address_options = together(
    click.option("--url", required=True, help="The extender's URL with its prefix: https://ADDRESS:PORT/accelshare."),
    click.option("--ca-file", help="The CA of the extender's certificate, as kube-scheduler sees it; needed with https."),
    click.option("--cert-file", help="kube-scheduler's client certificate, as it sees it."),
    click.option("--key-file", help="The certificate's key."),
    click.option("--server-name", help="The name in the extender's certificate, if it is not the URL's host."),
)

# What else kube-scheduler shall be told: render, plan, apply, manage.
desired_options = together(
    click.option("--vendor", "vendors", multiple=True, help="Manage this profile's resources; repeatable. Default: all."),
    profiles_option,
    click.option("--weight", type=click.IntRange(1), default=1, show_default=True, help="How much our scores count."),
    click.option("--timeout-ms", type=click.IntRange(1), default=5000, show_default=True, help="For one call."),
    click.option("--percentage-of-nodes-to-score", "percentage", type=click.IntRange(0, 100), help="Set it; 100 is proposed."),
    click.option("--client-qps", "qps", type=click.IntRange(1), help="Set kube-scheduler's request limit; 200 is proposed."),
    click.option("--client-burst", "burst", type=click.IntRange(1), help="Set its burst; 400 is proposed."),
    click.option("--accept-proposals", is_flag=True, help="Take all proposed values that the configuration can say."),
    click.option("--kind", type=click.Choice(["policy", "configuration"]), help="Default: a policy below 1.22."),
    click.option("--replace", multiple=True, metavar="URL", help="Put ours in the place of this extender; repeatable."),
    click.option("--kubernetes-version", "version", help="Default: the manifest's image, then the API server."),
    kubeconfig_options,
)

# How kube-scheduler is started, where it is not known: plan, apply, restore, status.
target_options = together(
    click.option("--target", type=click.Choice(["static-pod", "systemd"]), default="static-pod", show_default=True),
    click.option("--unit", type=PATH, default=UNIT, show_default=True, help="The systemd unit."),
    click.option("--systemctl", default="systemctl", show_default=True, help="How to restart a unit."),
)

# Where things lie on the host: plan, apply, restore, status, manage.
place_options = together(
    click.option("--manifest", type=PATH, default=MANIFEST, show_default=True, help="The static pod's manifest."),
    click.option("--directory", type=PATH, default=DIRECTORY, show_default=True, help="Where our file goes."),
    click.option("--backup-directory", "archive", type=PATH, default=ARCHIVE, show_default=True, help="Record and backups."),
)

force_option = click.option("--force", is_flag=True, help="Overrule changes of others; what is lost is printed.")

# How to wait for kube-scheduler: apply, restore, manage.
wait_options = together(
    click.option("--wait-s", type=click.FloatRange(0), default=120.0, show_default=True, help="For its health; 0: do not wait."),
    click.option("--health-url", help="Where to ask for its health. Default: from the manifest or the unit."),
    click.option("--log-directory", type=PATH, default=Path("/var/log/pods"), show_default=True, help="Pods' logs, to say why."),
)


def host_from(options: dict[str, Any]) -> "SchedulerHost":
    from accelshare.install.scheduler.host import SchedulerHost
    from accelshare.install.scheduler.targets import StaticPod, Systemd, Target

    directory, archive = options["directory"].absolute(), options["archive"].absolute()
    target: Target
    if options.get("target", "static-pod") == "static-pod":
        manifest = options["manifest"].resolve()
        for place in (directory, archive):
            if place == manifest.parent or manifest.parent in place.parents:
                raise NotUnderstood(f"{place} is in kubelet's manifests directory, where every file would be taken for a pod")
        target = StaticPod(str(manifest))
    else:
        target = Systemd(str(options["unit"].absolute()), options["systemctl"])
    return SchedulerHost(target, directory, archive)


def intent_from(scheduler_host: "SchedulerHost", options: dict[str, Any]) -> "Intent":
    from accelshare.install.scheduler.plan import Intent, choose

    release = release_from(options, scheduler_host)
    given = scheduler_host.target.given(scheduler_host.base(scheduler_host.record()), scheduler_host.disk)
    policy = choose(given, release, options["kind"]).kind == "policy"
    desired = desired_from(options, policy, limits=not (policy and given.get("config")))
    return Intent(desired, release, str(scheduler_host.directory), options["kind"], options["replace"])


def desired_from(options: dict[str, Any], policy: bool, *, limits: bool = True) -> "DesiredConfig":
    """`limits`: proposed client limits can be said, in a configuration file or by flags that count."""
    from accelshare.install.scheduler.desired_config import (
        PROPOSED_BURST,
        PROPOSED_PERCENTAGE,
        PROPOSED_QPS,
        DesiredConfig,
        Settings,
        Tls,
        managed,
    )
    from accelshare.vendors.catalog import load

    catalog = load(options["directories"])
    profiles = [catalog[name] for name in options["vendors"]] or list(catalog)
    settings = Settings(options["percentage"], options["qps"], options["burst"])
    if options["accept_proposals"]:
        settings = Settings(
            settings.percentage if settings.percentage is not None or policy else PROPOSED_PERCENTAGE,
            settings.qps or (PROPOSED_QPS if limits else None),
            settings.burst or (PROPOSED_BURST if limits else None),
        )
    tls = None
    if options["ca_file"]:
        tls = Tls(options["ca_file"], options["cert_file"], options["key_file"], options["server_name"])
    elif options["cert_file"] or options["key_file"] or options["server_name"]:
        raise Clash("--cert-file, --key-file and --server-name need --ca-file: who shows a certificate must know to whom")
    return DesiredConfig(options["url"], managed(profiles), tls, options["weight"], options["timeout_ms"], settings)


def release_from(options: dict[str, Any], scheduler_host: "SchedulerHost | None") -> "Release":
    from accelshare.install.scheduler.release import parse

    if options["version"]:
        return parse(options["version"])
    found = scheduler_host.target.release(scheduler_host.base(scheduler_host.record())) if scheduler_host is not None else None
    return found if found is not None else parse(_ask_version(options["kubeconfig"], options["context"]))


def _ask_version(kubeconfig: Path | None, context: str | None) -> str:
    from accelshare.kube.errors import KubeError

    try:
        answer: dict[str, str] = json.loads(with_client(kubeconfig, context, lambda client: client.request("GET", "/version")))
        return answer["gitVersion"]
    except (KubeError, KeyError, ValueError) as error:
        raise NotUnderstood(f"the version of Kubernetes is not known ({error}); give --kubernetes-version") from error
