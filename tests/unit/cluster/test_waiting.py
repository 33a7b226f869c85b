"""The one waiting loop: what it returns, what ends it, and what its error tells."""

from collections.abc import Callable

import pytest

from cluster.errors import ClusterError
from cluster.waiting import wait_until, wait_until_async


def values(*them: object) -> Callable[[], object]:
    """A condition with these values in turn; an exception among them is raised."""
    left = list(them)

    def condition() -> object:
        value = left.pop(0)
        if isinstance(value, Exception):
            raise value
        return value

    return condition


async def test_the_first_true_value_is_returned() -> None:
    assert wait_until(values(None, [], "ready"), "ready", every_s=0) == "ready"
    assert await wait_until_async(values(None, "ready"), "ready", every_s=0) == "ready"


async def test_a_condition_may_be_a_coroutine_function() -> None:
    synchronous = values(0, 7)

    async def condition() -> object:
        return synchronous()

    assert await wait_until_async(condition, "seven", every_s=0) == 7


async def test_only_the_named_exceptions_are_waited_over() -> None:
    assert wait_until(values(KeyError("a"), "there"), "there", every_s=0, retry_on=(KeyError,)) == "there"
    with pytest.raises(ValueError, match="broken"):
        await wait_until_async(values(ValueError("broken"), "there"), "there", every_s=0, retry_on=(KeyError,))


async def test_the_error_has_what_was_waited_for_the_last_exception_and_the_evidence() -> None:
    with pytest.raises(ClusterError, match=r"(?s)0 s: the pod runs.*KeyError\('phase'\).*log line"):
        await wait_until_async(
            values(KeyError("phase")), "the pod runs", 0, retry_on=(KeyError,), evidence=lambda: "\n--- agent\nlog line"
        )
