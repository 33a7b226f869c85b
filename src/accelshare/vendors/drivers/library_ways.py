"""A library's listing as ways of asking: opened for one question, or kept open from look to look.

Belongs here: opening, closing and opening anew, on a thread. Never: what the library is.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol, TypeVar

from accelshare.vendors.drivers.asking import CannotAsk, Listing, Way
from accelshare.vendors.drivers.threads import BlockingCalls

log = logging.getLogger(__name__)

T = TypeVar("T")


class Session(Protocol):
    """A library that has been initialised; `listing` raises CannotAsk."""

    def listing(self) -> Listing: ...

    def close(self) -> None: ...


# By the name for the line about a failure; opening raises CannotAsk.
Openers = Mapping[str, Callable[[], Session]]


class LibraryWays:
    """Ways through the libraries of one vendor. Nothing says that these may be entered twice at a time, so they never are."""

    def __init__(self, vendor: str, openers: Openers, *, timeout_s: float) -> None:
        self._openers = openers
        self._timeout_s = timeout_s
        self._calls = BlockingCalls(f"{vendor} library")

    def once(self) -> list[Way]:
        """Each library opened, asked and closed: what `discover` needs, since a library counts its cards when it is opened."""
        return [(name, partial(self._run, partial(_once, opener))) for name, opener in self._openers.items()]

    def kept(self) -> dict[str, "KeptOpen"]:
        """The libraries for one watch, which asks them by `through` and ends with `close`."""
        return {name: KeptOpen(opener) for name, opener in self._openers.items()}

    def through(self, kept: Mapping[str, "KeptOpen"]) -> list[Way]:
        return [(name, partial(self._run, one.listing)) for name, one in kept.items()]

    async def _run(self, call: Callable[[], T]) -> T:
        return await self._calls.run(call, timeout_s=self._timeout_s)

    async def close(self, kept: Iterable["KeptOpen"]) -> None:
        """Closes what is open; a library that hangs is left open."""

        def close_all() -> None:
            for one in kept:
                one.close()

        try:
            await self._run(close_all)
        except CannotAsk as error:
            log.info("a library was left open: %s", error)


class KeptOpen:
    """A session that stays open from look to look, and is opened anew after it failed."""

    def __init__(self, opener: Callable[[], Session]) -> None:
        self._opener = opener
        self._session: Session | None = None

    def listing(self) -> Listing:
        if self._session is not None:
            try:
                return self._session.listing()
            except CannotAsk:
                self.close()
        self._session = self._opener()
        try:
            return self._session.listing()
        except CannotAsk:
            self.close()
            raise

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _once(opener: Callable[[], Session]) -> Listing:
    session = opener()
    try:
        return session.listing()
    finally:
        session.close()
