"""Options that several `scheduler-config` commands share, and how they become values.

Belongs here: from argv to values. Never: rules, printing.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from accelshare.help_pages import grouped
from accelshare.install.commands import with_client
from accelshare.install.errors import Clash, NotUnderstood
from accelshare.options import PATH, FloatRange, kubeconfig_options, profiles_option

if TYPE_CHECKING:
    from accelshare.install.scheduler.desired_config import DesiredConfig
    from accelshare.install.scheduler.health import HttpsScheduler
    from accelshare.install.scheduler.host import SchedulerHost
    from accelshare.install.scheduler.plan import Intent
    from accelshare.install.scheduler.release import Release

MANIFEST: Final = Path("/etc/kubernetes/manifests/kube-scheduler.yaml")
UNIT: Final = Path("/etc/systemd/system/kube-scheduler.service")
DIRECTORY: Final = Path("/etc/kubernetes/accelshare")
# Beside kubeadm's files, so that a pod needs one mount only and can remove the directory.
ARCHIVE: Final = Path("/etc/kubernetes/accelshare-backup")

# The extender's address: render, plan, apply.
address_options = grouped(
    "Extender",
    click.option("--url", required=True, help="The extender's URL with its prefix: https://ADDRESS:PORT/accelshare."),
    click.option(
        "--ca-file", help="Path of the CA of the extender's certificate, as kube-scheduler sees it; required with https."
    ),
    click.option("--cert-file", help="Path of kube-scheduler's client certificate, as kube-scheduler sees it."),
    click.option("--key-file", help="Path of the key of that certificate, as kube-scheduler sees it."),
    click.option("--server-name", help="Name in the extender's certificate, if it is not the URL's host."),
)

# The rest of the desired configuration: render, plan, apply, manage.
desired_options = grouped(
    "Configuration",
    click.option("--vendor", "vendors", multiple=True, help="Manage this profile's resources; repeatable. Default: all."),
    profiles_option,
    click.option("--weight", type=click.IntRange(1), default=1, show_default=True, help="Weight of the extender's scores."),
    click.option(
        "--timeout-ms",
        type=click.IntRange(1),
        default=5000,
        show_default=True,
        help="How long kube-scheduler waits for one call.",
    ),
    click.option(
        "--percentage-of-nodes-to-score",
        "percentage",
        type=click.IntRange(0, 100),
        help="Set percentageOfNodesToScore; 100 is proposed.",
    ),
    click.option("--client-qps", "qps", type=click.IntRange(1), help="Set kube-scheduler's QPS limit; 200 is proposed."),
    click.option("--client-burst", "burst", type=click.IntRange(1), help="Set kube-scheduler's burst limit; 400 is proposed."),
    click.option("--accept-proposals", is_flag=True, help="Set all proposed values that the configuration supports."),
    click.option(
        "--kind",
        type=click.Choice(["policy", "configuration"]),
        help="Form of the configuration. Default: policy before Kubernetes 1.22.",
    ),
    click.option("--replace", multiple=True, metavar="URL", help="Replace this extender by accelshare's; repeatable."),
    click.option(
        "--kubernetes-version",
        "version",
        help="Version of kube-scheduler. Default: from the manifest's image, then from the API server.",
    ),
    kubeconfig_options,
)

# How kube-scheduler is started: plan, apply, restore, status.
target_options = grouped(
    "Host",
    click.option(
        "--target",
        type=click.Choice(["static-pod", "systemd"]),
        default="static-pod",
        show_default=True,
        help="How kube-scheduler is started.",
    ),
    click.option("--unit", type=PATH, default=UNIT, show_default=True, help="The systemd unit of kube-scheduler."),
    click.option("--systemctl", default="systemctl", show_default=True, help="Program that restarts the systemd unit."),
)

# Paths on the host: plan, apply, restore, status, manage.
path_options = grouped(
    "Host",
    click.option(
        "--manifest", type=PATH, default=MANIFEST, show_default=True, help="The manifest of kube-scheduler's static pod."
    ),
    click.option(
        "--directory",
        type=PATH,
        default=DIRECTORY,
        show_default=True,
        help="Directory for accelshare's configuration file; kube-scheduler must see it.",
    ),
    click.option(
        "--backup-directory",
        "archive",
        type=PATH,
        default=ARCHIVE,
        show_default=True,
        help="Directory for the record of changes and the backups.",
    ),
)

force_option = click.option("--force", is_flag=True, help="Overwrite changes that others made, and print what is lost.")


def _health_url(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse a URL that nothing could answer: kube-scheduler would seem to fail, and be rolled back."""
    if value is None:
        return None
    try:
        parts = urlsplit(value)
        usable = parts.scheme == "https" and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise click.BadParameter(f"{value!r} must look like https://127.0.0.1:10259/healthz")
    return value


# Waiting for kube-scheduler: apply, restore, manage.
wait_options = grouped(
    "Waiting",
    click.option(
        "--wait-s",
        type=FloatRange(0),
        default=120.0,
        show_default=True,
        help="How long to wait until kube-scheduler is healthy; 0: do not wait.",
    ),
    click.option(
        "--health-url",
        callback=_health_url,
        help="URL of kube-scheduler's health endpoint. Default: from the manifest or the unit.",
    ),
    click.option(
        "--log-directory",
        type=PATH,
        default=Path("/var/log/pods"),
        show_default=True,
        help="Directory with the logs of pods, to report why kube-scheduler did not start.",
    ),
)


def host_from(options: dict[str, Any]) -> "SchedulerHost":
    from accelshare.install.scheduler.host import SchedulerHost
    from accelshare.install.scheduler.plan import Target
    from accelshare.install.scheduler.static_pod import StaticPod
    from accelshare.install.scheduler.systemd import Systemd

    directory, archive = options["directory"].absolute(), options["archive"].absolute()
    target: Target
    if options.get("target", "static-pod") == "static-pod":
        manifest = options["manifest"].resolve()
        for place in (directory, archive):
            if place == manifest.parent or manifest.parent in place.parents:
                raise NotUnderstood(f"{place} is in kubelet's manifests directory, where kubelet reads every file as a pod")
        target = StaticPod(str(manifest))
    else:
        target = Systemd(str(options["unit"].absolute()), options["systemctl"])
    return SchedulerHost(target, directory, archive)


def intent_from(host: "SchedulerHost", options: dict[str, Any]) -> "Intent":
    from accelshare.install.scheduler.plan import Intent, choose

    release = release_from(options, host)
    flag_values = host.target.flags(host.base(host.record()), host.disk)
    policy = choose(flag_values, release, options["kind"]).kind == "policy"
    desired = desired_from(options, policy, limits=not (policy and flag_values.get("config")))
    return Intent(desired, release, str(host.directory), options["kind"], options["replace"])


def scheduler_from(host: "SchedulerHost", health_url: str | None, log_directory: Path) -> "HttpsScheduler":
    """kube-scheduler's health endpoint; the default one if the files cannot be understood, so that they can be restored."""
    from accelshare.install.scheduler.health import HttpsScheduler

    try:
        url = health_url or host.target.health_url(host.base(host.record()), host.disk)
    except NotUnderstood:
        url = "https://127.0.0.1:10259/healthz"
    return HttpsScheduler(url, log_directory)


def desired_from(options: dict[str, Any], policy: bool, *, limits: bool = True) -> "DesiredConfig":
    """`limits`: client limits can be expressed, in a configuration file or by flags that kube-scheduler reads."""
    from accelshare.install.scheduler.desired_config import (
        PROPOSED_BURST,
        PROPOSED_PERCENTAGE,
        PROPOSED_QPS,
        DesiredConfig,
        SchedulerSettings,
        TlsFiles,
        managed,
    )
    from accelshare.vendors.catalog import load

    catalog = load(options["directories"])
    profiles = [catalog[name] for name in options["vendors"]] or list(catalog)
    settings = SchedulerSettings(options["percentage"], options["qps"], options["burst"])
    if options["accept_proposals"]:
        settings = SchedulerSettings(
            settings.percentage if settings.percentage is not None or policy else PROPOSED_PERCENTAGE,
            settings.qps or (PROPOSED_QPS if limits else None),
            settings.burst or (PROPOSED_BURST if limits else None),
        )
    tls = None
    if options["ca_file"]:
        tls = TlsFiles(options["ca_file"], options["cert_file"], options["key_file"], options["server_name"])
    elif options["cert_file"] or options["key_file"] or options["server_name"]:
        raise Clash("--cert-file, --key-file and --server-name need --ca-file")
    return DesiredConfig(options["url"], managed(profiles), tls, options["weight"], options["timeout_ms"], settings)


def release_from(options: dict[str, Any], host: "SchedulerHost | None") -> "Release":
    from accelshare.install.scheduler.release import parse

    if options["version"]:
        return parse(options["version"])
    running = host.target.release(host.base(host.record())) if host is not None else None
    return running if running is not None else parse(_ask_version(options["kubeconfig"], options["context"]))


def _ask_version(kubeconfig: Path | None, context: str | None) -> str:
    from accelshare.kube.errors import KubeError

    try:
        answer: dict[str, str] = json.loads(with_client(kubeconfig, context, lambda client: client.request("GET", "/version")))
        return answer["gitVersion"]
    except (KubeError, KeyError, ValueError) as error:
        raise NotUnderstood(f"the version of Kubernetes is not known ({error}); give --kubernetes-version") from error
