"""`accelshare scheduler-config`: its options and output.

Belongs here: from argv to values, and printing. Never: rules.
"""

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from accelshare.help_pages import HelpGroup
from accelshare.install.commands import errors_as_messages
from accelshare.install.scheduler.manager.command import manage
from accelshare.install.scheduler.options import (
    address_options,
    desired_from,
    desired_options,
    force_option,
    host_from,
    intent_from,
    path_options,
    release_from,
    scheduler_from,
    target_options,
    wait_options,
)
from accelshare.options import FILE, output_option
from accelshare.terminal import echo, echo_document, echo_line

if TYPE_CHECKING:
    from accelshare.install.scheduler.plan import Existing
    from accelshare.install.scheduler.release import Release

KUBECONFIG: Final = "/etc/kubernetes/scheduler.conf"
# Exit codes of `status`; 1 and 2 are errors.
EXIT_CODES: Final = {"installed": 0, "not installed": 3, "drifted": 4, "overwritten": 5, "unfinished": 6}


@click.group("scheduler-config", cls=HelpGroup, no_args_is_help=True)
def scheduler_config() -> None:
    """Make kube-scheduler call the extender, show what would change, and restore the original configuration."""


scheduler_config.add_command(manage)


@scheduler_config.command(
    short_help="Print a configuration for a version of Kubernetes.",
    examples=[("--url http://10.0.0.1:12345/accelshare --kubernetes-version 1.36", "for a cluster without TLS to the extender")],
)
@click.option(
    "--form",
    type=click.Choice(["file", "openshift", "second-scheduler"]),
    default="file",
    show_default=True,
    help="A configuration file, a policy for an old OpenShift, or manifests of a second scheduler.",
)
@click.option("--existing", type=FILE, help="Your own configuration or policy; the output keeps it and adds the extender.")
@click.option(
    "--scheduler-kubeconfig", default=KUBECONFIG, show_default=True, help="kube-scheduler's own kubeconfig; empty: in-cluster."
)
@click.option("--name", default="accelshare-scheduler", show_default=True, help="Name of the second scheduler.")
@click.option("--namespace", default="kube-system", show_default=True, help="Namespace of the second scheduler.")
@click.option("--image", help="Image of the second scheduler. Default: Kubernetes' image of this version.")
@click.option("--tls-secret", help="Secret with ca.crt, tls.crt and tls.key for the second scheduler; required with https.")
@address_options
@desired_options
@errors_as_messages
def render(
    form: str,
    existing: Path | None,
    scheduler_kubeconfig: str,
    name: str,
    namespace: str,
    image: str | None,
    tls_secret: str | None,
    **options: Any,
) -> None:
    """Print the configuration for kube-scheduler of this version; nothing is written.

    Notices go to standard error.
    """
    from accelshare.install.scheduler import content, rendering
    from accelshare.install.scheduler.plan import Existing

    release = release_from(options, None)
    if form == "second-scheduler" and tls_secret is not None:
        tls = rendering.SECRET_TLS
        options |= {"ca_file": tls.ca_file, "cert_file": tls.cert_file, "key_file": tls.key_file}
    kept = Existing(str(existing), existing.read_bytes()) if existing is not None else None
    policy = _renders_a_policy(form, options["kind"], release, kept)
    desired = desired_from(options, policy, limits=not policy)
    if form == "openshift":
        echo_document(rendering.openshift(desired, release, kept, options["replace"]))
    elif form == "second-scheduler":
        second = rendering.SecondScheduler(name, namespace, image or rendering.image_of(release), tls_secret)
        echo_document(rendering.second_scheduler(desired, release, second))
    else:
        text = rendering.configuration(
            desired,
            release,
            kind=options["kind"],
            kubeconfig=scheduler_kubeconfig or None,
            existing=kept,
            replace=options["replace"],
        )
        echo_document(text)
        notices = (*content.proposals(text, "the configuration"), *content.plain_port(text, "the configuration", release))
        _print_notices((*notices, *rendering.notices_of_variables(desired, release)))


@scheduler_config.command(
    short_help="Show what apply would change.", examples=[("--url http://10.0.0.1:12345/accelshare", "as diff -u")]
)
@address_options
@desired_options
@target_options
@path_options
@errors_as_messages
def plan(**options: Any) -> None:
    """Print the difference that `apply` would make, as `diff -u` does; nothing is printed if there is none.

    Notices go to standard error.
    """
    host = host_from(options)
    proposal = host.propose(intent_from(host, options))
    echo_document(host.difference(proposal))
    _print_notices(proposal.plan.notices)


@scheduler_config.command(
    short_help="Apply, wait for health, and roll back if kube-scheduler fails.",
    examples=[("--url http://10.0.0.1:12345/accelshare", "on each control-plane node")],
)
@click.option(
    "--kube-scheduler",
    "program",
    type=FILE,
    help="kube-scheduler program that checks the configuration before anything is written.",
)
@force_option
@wait_options
@address_options
@desired_options
@target_options
@path_options
@errors_as_messages
def apply(program: Path | None, force: bool, wait_s: float, health_url: str | None, log_directory: Path, **options: Any) -> None:
    """Make kube-scheduler call the extender. Safe to repeat; finishes an interrupted apply."""
    from accelshare.install.scheduler import apply as applying
    from accelshare.install.scheduler import leadership
    from accelshare.install.scheduler.health import HttpsScheduler, Patience
    from accelshare.install.scheduler.validation import checker

    host = host_from(options)
    intent = intent_from(host, options)
    proposal = host.propose(intent)
    echo_document(host.difference(proposal))
    _print_notices(proposal.plan.notices)
    url = health_url or host.target.health_url(host.base(proposal.record), host.disk)
    outcome = applying.apply(
        host,
        intent,
        HttpsScheduler(url, log_directory),
        patience=Patience(wait_s),
        force=force,
        check=checker(program, intent.release) if program is not None else None,
        read_lease=leadership.read,
        host_name=socket.gethostname(),
        say=_say,
    )
    _say(outcome)


@scheduler_config.command(short_help="Restore the original configuration.", examples=[("", "on each control-plane node")])
@force_option
@wait_options
@target_options
@path_options
@errors_as_messages
def restore(force: bool, wait_s: float, health_url: str | None, log_directory: Path, **options: Any) -> None:
    """Restore the original files to the byte and remove accelshare's; finishes an interrupted restore."""
    from accelshare.install.scheduler import apply as applying
    from accelshare.install.scheduler.health import Patience

    host = host_from(options)
    scheduler = scheduler_from(host, health_url, log_directory)
    _say(applying.restore(host, scheduler, patience=Patience(wait_s), force=force, say=_say))


@scheduler_config.command("status", short_help="Show the status.", examples=[("-o json", "for programs")])
@output_option
@target_options
@path_options
@errors_as_messages
def show_status(output: str, **options: Any) -> None:
    """Show the status. Exit codes: 0 installed, 3 not installed, 4 drifted, 5 overwritten, 6 unfinished."""
    status = host_from(options).status()
    if output == "json":
        content = {"state": status.state.value, "says": list(status.remarks), "files": list(status.files)}
        echo(json.dumps(content, indent=2))
    else:
        echo_line(status.state.value)
        for line in status.remarks:
            echo_line(f"  {line}")
    raise click.exceptions.Exit(EXIT_CODES[status.state.value])


def _renders_a_policy(
    form: str, kind: Literal["policy", "configuration"] | None, release: "Release", existing: "Existing | None"
) -> bool:
    from accelshare.install.scheduler import documents
    from accelshare.install.scheduler.release import dialect

    if form == "file" and existing is not None:
        return bool(documents.read(existing.content, existing.path).data.get("kind") == "Policy")
    if form == "file":
        return dialect(release, kind).kind == "policy"
    return form == "openshift"


def _say(line: str) -> None:
    echo_line(line, err=True)


def _print_notices(notices: tuple[str, ...]) -> None:
    for notice in notices:
        _say(f"note: {notice}")
