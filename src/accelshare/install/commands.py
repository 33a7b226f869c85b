"""What every install command shares: errors as messages with exit code 1, and one client of the API server.

Belongs here: running a command's function. Never: options (`accelshare.options`), rules.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from accelshare.install.errors import InstallError

if TYPE_CHECKING:
    from accelshare.kube.client import Client

T = TypeVar("T")


def errors_as_messages(command: Callable[..., Any]) -> Callable[..., Any]:
    """Print errors of install commands, of names, of the cluster and of the host's files as one message; the exit code is 1."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        from accelshare.kube.errors import KubeError
        from accelshare.kube.paths import InvalidNameError

        try:
            return command(*arguments, **options)
        except (InstallError, KubeError, InvalidNameError) as error:
            raise click.ClickException(str(error)) from error
        except OSError as error:
            raise click.ClickException(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error

    return run


def with_client(
    kubeconfig: Path | None,
    context: str | None,
    ask: "Callable[[Client], Awaitable[T]]",
    *,
    user_agent: str = "accelshare",
    timeout_s: float = 15.0,
) -> T:
    """Run one coroutine with a client of the cluster. Raises KubeError."""
    from accelshare.kube import config
    from accelshare.kube.client import Client

    async def run() -> T:
        async with Client(config.load(kubeconfig, context=context), user_agent=user_agent, timeout_s=timeout_s) as client:
            return await ask(client)

    return asyncio.run(run())
