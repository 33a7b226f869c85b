"""Error messages of `inspect` and `explain`: what went wrong, what to do about it, and the nearest name.

Belongs here: messages for errors of the cluster and for unknown names. Never: catching errors of our own code.
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
def errors_for_people() -> Iterator[None]:
    """Turn every failure to read the cluster into one error message; exit code 1."""
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
            return f"the API server rejects your credentials: {visible(error.message)}; log in again, or use another --context"
        case Unreachable():
            return f"the API server cannot be reached: {error}; is the cluster running, and is this the right --context?"
    return str(error)


def _forbidden(error: Forbidden) -> str:
    match = _RESOURCE.search(error.request)
    if match is None:
        return f"no permission: {visible(error.message)}"
    verb = "get" if match["one"] else "list"
    where = f"in namespace {match['namespace']}" if match["namespace"] else "in the whole cluster"
    who = re.search(r'User "([^"]*)"', error.message)
    user = f"user {visible(who[1])}" if who else "you"
    role = "kubectl create clusterrole accelshare-inspect --verb=get,list --resource=nodes,pods"
    everywhere = match["resource"] == "pods" and not match["namespace"]
    other = "; if you can list pods in only one namespace, use -n NAMESPACE" if everywhere else ""
    return (
        f"no permission: {user} may not {verb} {match['resource']} {where}{other}.\n"
        f"Needed are get and list on nodes and pods: {role}, and a binding to it."
    )


def unknown(what: str, name: str, known: Iterable[str], more: str = "") -> NoReturn:
    """Raise the error for an unknown name, with the nearest known one."""
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
