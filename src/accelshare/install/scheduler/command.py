"""`accelshare scheduler-config`: the flags.

Belongs here: from argv to values, and printing. Never: rules.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from accelshare.install.commands import errors_as_messages
from accelshare.install.scheduler.manager.command import manage
from accelshare.install.scheduler.options import (
    address_options,
    desired_from,
    desired_options,
    force_option,
    host_from,
    intent_from,
    place_options,
    release_from,
    target_options,
    wait_options,
)
from accelshare.options import FILE, output_option
from accelshare.terminal import echo, echo_document, echo_line

if TYPE_CHECKING:
    from accelshare.install.scheduler.plan import Existing
    from accelshare.install.scheduler.release import Release

KUBECONFIG: Final = "/etc/kubernetes/scheduler.conf"
# For scripts: what `status` ends with. 1 and 2 are errors, as everywhere.
EXIT_CODES: Final = {"installed": 0, "not installed": 3, "drifted": 4, "overwritten": 5, "unfinished": 6}


@click.group("scheduler-config", no_args_is_help=True)
def scheduler_config() -> None:
    """Tell kube-scheduler of the extender, see what would change, and put everything back."""


scheduler_config.add_command(manage)


@scheduler_config.command(short_help="Print a configuration for a version of Kubernetes.")
@click.option(
    "--form",
    type=click.Choice(["file", "openshift", "second-scheduler"]),
    default="file",
    show_default=True,
    help="The configuration file, an old OpenShift's policy, or manifests of a scheduler of our own.",
)
@click.option("--existing", type=FILE, help="A configuration or policy of yours, to be kept with ours in it.")
@click.option("--scheduler-kubeconfig", default=KUBECONFIG, show_default=True, help="kube-scheduler's; empty: in-cluster.")
@click.option("--name", default="accelshare-scheduler", show_default=True, help="Of the second scheduler.")
@click.option("--namespace", default="kube-system", show_default=True, help="Of the second scheduler.")
@click.option("--image", help="Of the second scheduler. Default: Kubernetes' own of this version.")
@click.option("--tls-secret", help="Secret with ca.crt, tls.crt and tls.key for the second scheduler; needed with https.")
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
    """Print the configuration that a kube-scheduler of this version reads; nothing is written.

    Proposals and remarks go to standard error.
    """
    from accelshare.install.scheduler import content, rendering
    from accelshare.install.scheduler.plan import Existing
    from accelshare.install.scheduler.release import remarks

    release = release_from(options, None)
    if form == "second-scheduler" and tls_secret is not None:
        tls = rendering.SECRET_TLS
        options |= {"ca_file": tls.ca_file, "cert_file": tls.cert_file, "key_file": tls.key_file}
    kept = Existing(str(existing), existing.read_bytes()) if existing is not None else None
    policy = _renders_a_policy(form, options["kind"], release, kept)
    desired = desired_from(options, policy, limits=not policy)
    _tell(remarks(release))
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
        _tell((*content.proposals(text, "the configuration"), *content.plain_port(text, "the configuration", release)))


@scheduler_config.command(short_help="Show what apply would change.")
@address_options
@desired_options
@target_options
@place_options
@errors_as_messages
def plan(**options: Any) -> None:
    """Print the difference that `apply` would make, as `diff -u` does; nothing is printed if there is none.

    Proposals and remarks go to standard error.
    """
    scheduler_host = host_from(options)
    proposal = scheduler_host.propose(intent_from(scheduler_host, options))
    echo_document(scheduler_host.difference(proposal))
    _tell(proposal.plan.notices)


@scheduler_config.command(short_help="Put it in, wait, and roll back if kube-scheduler is not healthy.")
@click.option("--kube-scheduler", "program", type=FILE, help="A kube-scheduler program that checks the configuration first.")
@force_option
@wait_options
@address_options
@desired_options
@target_options
@place_options
@errors_as_messages
def apply(program: Path | None, force: bool, wait_s: float, health_url: str | None, log_directory: Path, **options: Any) -> None:
    """Make kube-scheduler ask the extender. Twice is once; after a crash in the middle it finishes."""
    from accelshare.install.scheduler import apply as applying
    from accelshare.install.scheduler import leadership
    from accelshare.install.scheduler.checking import checker
    from accelshare.install.scheduler.health import HttpsScheduler, Patience

    scheduler_host = host_from(options)
    intent = intent_from(scheduler_host, options)
    proposal = scheduler_host.propose(intent)
    echo_document(scheduler_host.difference(proposal))
    _tell(proposal.plan.notices)
    url = health_url or scheduler_host.target.health_url(scheduler_host.base(proposal.record), scheduler_host.disk)
    outcome = applying.apply(
        scheduler_host,
        intent,
        HttpsScheduler(url, log_directory),
        patience=Patience(wait_s),
        force=force,
        check=checker(program, intent.release) if program is not None else None,
        read_lease=leadership.read,
        say=_say,
    )
    _say(outcome)


@scheduler_config.command(short_help="Put everything back as it was.")
@force_option
@wait_options
@target_options
@place_options
@errors_as_messages
def restore(force: bool, wait_s: float, health_url: str | None, log_directory: Path, **options: Any) -> None:
    """Bring back the original files to the byte and remove ours; after a crash in the middle it finishes."""
    from accelshare.install.errors import NotUnderstood
    from accelshare.install.scheduler import apply as applying
    from accelshare.install.scheduler.health import HttpsScheduler, Patience

    scheduler_host = host_from(options)
    try:
        url = health_url or scheduler_host.target.health_url(scheduler_host.base(scheduler_host.record()), scheduler_host.disk)
    except NotUnderstood:
        url = "https://127.0.0.1:10259/healthz"  # the files are put back even if nobody can read them
    _say(applying.restore(scheduler_host, HttpsScheduler(url, log_directory), patience=Patience(wait_s), force=force, say=_say))


@scheduler_config.command(short_help="Say how things stand.")
@output_option
@target_options
@place_options
@errors_as_messages
def status(output: str, **options: Any) -> None:
    """Say how things stand. Exit codes: 0 installed, 3 not installed, 4 drifted, 5 overwritten, 6 unfinished."""
    standing = host_from(options).status()
    if output == "json":
        told = {"state": standing.state.value, "says": list(standing.says), "files": list(standing.files)}
        echo(json.dumps(told, indent=2))
    else:
        echo_line(standing.state.value)
        for line in standing.says:
            echo_line(f"  {line}")
    raise click.exceptions.Exit(EXIT_CODES[standing.state.value])


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


def _tell(notices: tuple[str, ...]) -> None:
    for notice in notices:
        _say(f"note: {notice}")
