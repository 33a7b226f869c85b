"""`accelshare scheduler-config`: the flags.

Belongs here: from argv to values, and printing. Never: rules.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from accelshare.vendors.command import profiles_option

if TYPE_CHECKING:
    from accelshare.scheduler_config.release import Release
    from accelshare.scheduler_config.site import Site
    from accelshare.scheduler_config.wish import Wish

MANIFEST: Final = Path("/etc/kubernetes/manifests/kube-scheduler.yaml")
UNIT: Final = Path("/etc/systemd/system/kube-scheduler.service")
DIRECTORY: Final = Path("/etc/kubernetes/accelshare")
ARCHIVE: Final = Path("/var/lib/accelshare-scheduler-config")
KUBECONFIG: Final = "/etc/kubernetes/scheduler.conf"
# For scripts: what `status` ends with. 1 and 2 are errors, as everywhere.
EXIT_CODES: Final = {"installed": 0, "not installed": 3, "drifted": 4, "overwritten": 5, "unfinished": 6}

_path = click.Path(path_type=Path)
_file = click.Path(exists=True, dir_okay=False, path_type=Path)
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _together(*options: Decorator) -> Decorator:
    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


# What kube-scheduler shall be told: render, plan, apply.
_wish_options = _together(
    click.option("--url", required=True, help="The extender's URL with its prefix: https://ADDRESS:PORT/accelshare."),
    click.option("--vendor", "vendors", multiple=True, help="Manage this profile's resources; repeatable. Default: all."),
    profiles_option,
    click.option("--ca-file", help="The CA of the extender's certificate, as kube-scheduler sees it; needed with https."),
    click.option("--cert-file", help="kube-scheduler's client certificate, as it sees it."),
    click.option("--key-file", help="The certificate's key."),
    click.option("--server-name", help="The name in the extender's certificate, if it is not the URL's host."),
    click.option("--weight", type=click.IntRange(1), default=1, show_default=True, help="How much our scores count."),
    click.option("--timeout-ms", type=click.IntRange(1), default=5000, show_default=True, help="For one call."),
    click.option("--percentage-of-nodes-to-score", "percentage", type=click.IntRange(0, 100), help="Set it; 100 is proposed."),
    click.option("--client-qps", "qps", type=click.IntRange(1), help="Set kube-scheduler's request limit; 200 is proposed."),
    click.option("--client-burst", "burst", type=click.IntRange(1), help="Set its burst; 400 is proposed."),
    click.option("--accept-proposals", is_flag=True, help="Take all proposed values that the configuration can say."),
    click.option("--kind", type=click.Choice(["policy", "configuration"]), help="Default: a policy below 1.23."),
    click.option("--replace", multiple=True, metavar="URL", help="Put ours in the place of this extender; repeatable."),
    click.option("--kubernetes-version", "version", help="Default: the manifest's image, then the API server."),
    click.option("--kubeconfig", type=_file, help="How to reach the API server, to ask for its version."),
    click.option("--context", help="The kubeconfig's context to use."),
)

# Which kube-scheduler: plan, apply, restore, status.
_site_options = _together(
    click.option("--target", type=click.Choice(["static-pod", "systemd"]), default="static-pod", show_default=True),
    click.option("--manifest", type=_path, default=MANIFEST, show_default=True, help="The static pod's manifest."),
    click.option("--unit", type=_path, default=UNIT, show_default=True, help="The systemd unit."),
    click.option("--directory", type=_path, default=DIRECTORY, show_default=True, help="Where our file goes."),
    click.option("--backup-directory", "archive", type=_path, default=ARCHIVE, show_default=True, help="Record and backups."),
    click.option("--systemctl", default="systemctl", show_default=True, help="How to restart a unit."),
)

# How to change it: apply, restore.
_change_options = _together(
    click.option("--force", is_flag=True, help="Overrule changes of others; what is lost is printed."),
    click.option("--wait-s", type=click.FloatRange(0), default=120.0, show_default=True, help="For its health; 0: do not wait."),
    click.option("--health-url", help="Where to ask for its health. Default: from the manifest or the unit."),
    click.option("--log-directory", type=_path, default=Path("/var/log/pods"), show_default=True, help="Pods' logs, to say why."),
)


@click.group("scheduler-config", no_args_is_help=True)
def scheduler_config() -> None:
    """Tell kube-scheduler of the extender, see what would change, and put everything back."""


def _in_words(command: Callable[..., Any]) -> Callable[..., Any]:
    """Errors of this room are all there is to say; the exit code is 1."""
    from functools import wraps

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        from accelshare.scheduler_config.problems import SchedulerConfigError

        try:
            return command(*arguments, **options)
        except SchedulerConfigError as error:
            raise click.ClickException(str(error)) from error

    return run


@scheduler_config.command(short_help="Print a configuration for a version of Kubernetes.")
@click.option(
    "--form",
    type=click.Choice(["file", "openshift", "second-scheduler"]),
    default="file",
    show_default=True,
    help="The configuration file, an old OpenShift's policy, or manifests of a scheduler of our own.",
)
@click.option("--existing", type=_file, help="A configuration or policy of yours, to be kept with ours in it.")
@click.option("--scheduler-kubeconfig", default=KUBECONFIG, show_default=True, help="kube-scheduler's; empty: in-cluster.")
@click.option("--name", default="accelshare-scheduler", show_default=True, help="Of the second scheduler.")
@click.option("--namespace", default="kube-system", show_default=True, help="Of the second scheduler.")
@click.option("--image", help="Of the second scheduler. Default: Kubernetes' own of this version.")
@click.option("--tls-secret", help="Secret with ca.crt, tls.crt and tls.key for the second scheduler; needed with https.")
@_wish_options
@_in_words
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
    from accelshare.scheduler_config import content, rendering
    from accelshare.scheduler_config.plan import Existing
    from accelshare.scheduler_config.release import remarks

    release = _release(options, None)
    if form == "second-scheduler" and tls_secret is not None:
        tls = rendering.SECRET_TLS
        options |= {"ca_file": tls.ca_file, "cert_file": tls.cert_file, "key_file": tls.key_file}
    wish = _wish(options, _renders_a_policy(form, options["kind"], release))
    kept = Existing(str(existing), existing.read_bytes()) if existing is not None else None
    _tell(remarks(release))
    if form == "openshift":
        click.echo(rendering.openshift(wish, release, kept, options["replace"]), nl=False)
    elif form == "second-scheduler":
        second = rendering.SecondScheduler(name, namespace, image or rendering.image_of(release), tls_secret)
        click.echo(rendering.second_scheduler(wish, release, second), nl=False)
    else:
        text = rendering.configuration(
            wish,
            release,
            kind=options["kind"],
            kubeconfig=scheduler_kubeconfig or None,
            existing=kept,
            replace=options["replace"],
        )
        click.echo(text, nl=False)
        _tell(content.proposals(text, "the configuration"))


@scheduler_config.command(short_help="Show what apply would change.")
@_wish_options
@_site_options
@_in_words
def plan(**options: Any) -> None:
    """Print the difference that `apply` would make, as `diff -u` does; nothing is printed if there is none.

    Proposals and remarks go to standard error.
    """
    site = _site(options)
    proposal = site.propose(_intent(site, options))
    click.echo(site.difference(proposal), nl=False)
    _tell(proposal.plan.notices)


@scheduler_config.command(short_help="Put it in, wait, and roll back if kube-scheduler is not healthy.")
@click.option("--kube-scheduler", "program", type=_file, help="A kube-scheduler program that checks the configuration first.")
@_change_options
@_wish_options
@_site_options
@_in_words
def apply(program: Path | None, force: bool, wait_s: float, health_url: str | None, log_directory: Path, **options: Any) -> None:
    """Make kube-scheduler ask the extender. Twice is once; after a crash in the middle it finishes."""
    from accelshare.scheduler_config import apply as applying
    from accelshare.scheduler_config.checking import checker
    from accelshare.scheduler_config.health import HttpsScheduler, Patience

    site = _site(options)
    intent = _intent(site, options)
    proposal = site.propose(intent)
    click.echo(site.difference(proposal), nl=False)
    _tell(proposal.plan.notices)
    url = health_url or site.target.health_url(site.base(proposal.record), site.disk)
    outcome = applying.apply(
        site,
        intent,
        HttpsScheduler(url, log_directory),
        patience=Patience(wait_s),
        force=force,
        check=checker(program) if program is not None else None,
        say=_say,
    )
    _say(outcome)


@scheduler_config.command(short_help="Put everything back as it was.")
@_change_options
@_site_options
@_in_words
def restore(force: bool, wait_s: float, health_url: str | None, log_directory: Path, **options: Any) -> None:
    """Bring back the original files to the byte and remove ours; after a crash in the middle it finishes."""
    from accelshare.scheduler_config import apply as applying
    from accelshare.scheduler_config.health import HttpsScheduler, Patience
    from accelshare.scheduler_config.problems import NotUnderstood

    site = _site(options)
    try:
        url = health_url or site.target.health_url(site.base(site.record()), site.disk)
    except NotUnderstood:
        url = "https://127.0.0.1:10259/healthz"  # the files are put back even if nobody can read them
    _say(applying.restore(site, HttpsScheduler(url, log_directory), patience=Patience(wait_s), force=force, say=_say))


@scheduler_config.command(short_help="Say how things stand.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to write it.")
@_site_options
@_in_words
def status(output: str, **options: Any) -> None:
    """Say how things stand. Exit codes: 0 installed, 3 not installed, 4 drifted, 5 overwritten, 6 unfinished."""
    standing = _site(options).status()
    if output == "json":
        told = {"state": standing.state.value, "says": list(standing.says), "files": list(standing.files)}
        click.echo(json.dumps(told, indent=2))
    else:
        click.echo(standing.state.value)
        for line in standing.says:
            click.echo(f"  {line}")
    raise click.exceptions.Exit(EXIT_CODES[standing.state.value])


def _site(options: dict[str, Any]) -> "Site":
    from accelshare.scheduler_config.problems import NotUnderstood
    from accelshare.scheduler_config.site import Site
    from accelshare.scheduler_config.targets import StaticPod, Systemd, Target

    directory, archive = options["directory"].absolute(), options["archive"].absolute()
    target: Target
    if options["target"] == "static-pod":
        manifest = options["manifest"].absolute()
        manifest = manifest.resolve() if manifest.exists() else manifest
        for place in (directory, archive):
            if place == manifest.parent or manifest.parent in place.parents:
                raise NotUnderstood(f"{place} is in kubelet's manifests directory, where every file would be taken for a pod")
        target = StaticPod(str(manifest))
    else:
        target = Systemd(str(options["unit"].absolute()), options["systemctl"])
    return Site(target, directory, archive)


def _intent(site: "Site", options: dict[str, Any]) -> Any:
    from accelshare.scheduler_config.plan import Intent, choose

    release = _release(options, site)
    policy = choose(site.target.given(site.base(site.record()), site.disk), release, options["kind"]).kind == "policy"
    return Intent(_wish(options, policy), release, str(site.directory), options["kind"], options["replace"])


def _renders_a_policy(form: str, kind: Literal["policy", "configuration"] | None, release: "Release") -> bool:
    from accelshare.scheduler_config.release import dialect

    if form == "file":
        return dialect(release, kind).kind == "policy"
    return form == "openshift"


def _wish(options: dict[str, Any], policy: bool) -> "Wish":
    from accelshare.scheduler_config.problems import Clash
    from accelshare.scheduler_config.wish import PROPOSED_BURST, PROPOSED_PERCENTAGE, PROPOSED_QPS, Settings, Tls, Wish, managed
    from accelshare.vendors.catalog import load

    catalog = load(options["directories"])
    profiles = [catalog[name] for name in options["vendors"]] or list(catalog)
    settings = Settings(options["percentage"], options["qps"], options["burst"])
    if options["accept_proposals"]:
        settings = Settings(
            settings.percentage if settings.percentage is not None or policy else PROPOSED_PERCENTAGE,
            settings.qps or PROPOSED_QPS,
            settings.burst or PROPOSED_BURST,
        )
    tls = None
    if options["ca_file"]:
        tls = Tls(options["ca_file"], options["cert_file"], options["key_file"], options["server_name"])
    elif options["cert_file"] or options["key_file"] or options["server_name"]:
        raise Clash("--cert-file, --key-file and --server-name need --ca-file: who shows a certificate must know to whom")
    return Wish(options["url"], managed(profiles), tls, options["weight"], options["timeout_ms"], settings)


def _release(options: dict[str, Any], site: "Site | None") -> "Release":
    from accelshare.scheduler_config.release import parse

    if options["version"]:
        return parse(options["version"])
    found = site.target.release(site.base(site.record())) if site is not None else None
    return found if found is not None else parse(_ask_version(options["kubeconfig"], options["context"]))


def _ask_version(kubeconfig: Path | None, context: str | None) -> str:
    import asyncio

    from accelshare.kube import config
    from accelshare.kube.client import Client
    from accelshare.kube.errors import KubeError

    async def ask() -> str:
        async with Client(config.load(kubeconfig, context=context), user_agent="accelshare") as client:
            answer: dict[str, str] = json.loads(await client.request("GET", "/version"))
            return answer["gitVersion"]

    try:
        return asyncio.run(ask())
    except (KubeError, KeyError, ValueError) as error:
        raise click.ClickException(f"the version of Kubernetes is not known ({error}); give --kubernetes-version") from error


def _say(line: str) -> None:
    click.echo(line, err=True)


def _tell(notices: tuple[str, ...]) -> None:
    for notice in notices:
        _say(f"note: {notice}")
