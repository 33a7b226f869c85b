"""What went wrong, for the person who typed the command: what to do about it, and the nearest name.

Belongs here: words for errors. Never: catching what is a fault of ours.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from accelshare.kube.errors import ConfigError, Forbidden, KubeError, Unauthorized, Unreachable
from accelshare.terminal import visible, visible_lines

_RESOURCE = re.compile(r"/api/v1/(?:namespaces/(?P<namespace>[^/?]+)/)?(?P<resource>[a-z]+)(?P<one>/[^/?]+)?$")


@contextmanager
def told_to_people() -> Iterator[None]:
    """Every failure between us and the cluster as one error message; exit code 1."""
    try:
        yield
    except KubeError as error:
        raise click.ClickException(visible_lines(words(error))) from error


def words(error: KubeError) -> str:
    match error:
        case ConfigError():
            return str(error)
        case Forbidden():
            return _forbidden(error)
        case Unauthorized():
            return f"the API server does not know you: {visible(error.message)}; log in again, or give another --context"
        case Unreachable():
            return f"the API server cannot be reached: {error}; is the cluster running, and is this the right --context?"
    return str(error)


def _forbidden(error: Forbidden) -> str:
    found = _RESOURCE.search(error.request)
    if found is None:
        return f"no permission: {visible(error.message)}"
    verb = "get" if found["one"] else "list"
    where = f"in namespace {found['namespace']}" if found["namespace"] else "in the whole cluster"
    who = re.search(r'User "([^"]*)"', error.message)
    user = f"user {visible(who[1])}" if who else "you"
    role = "kubectl create clusterrole accelshare-inspect --verb=get,list --resource=nodes,pods"
    everywhere = found["resource"] == "pods" and not found["namespace"]
    other = "; with -n NAMESPACE only that namespace's pods are read" if everywhere else ""
    return (
        f"no permission: {user} may not {verb} {found['resource']} {where}{other}.\n"
        f"Needed are get and list on nodes and pods: {role}, and a binding to it."
    )


def unknown(what: str, name: str, known: Iterable[str], more: str = "") -> NoReturn:
    """There is no such thing; the nearest that there is, if any is near."""
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name, names, n=1)
    if near:
        hint = f"; did you mean {near[0]}?"
    elif names and len(names) <= 10:
        hint = f"; there are {', '.join(sorted(names))}"
    else:
        hint = ""
    raise click.ClickException(visible(f"there is no {what} {name!r}{more}{hint}"))
