"""Free memory is returned to the system again and again."""

import asyncio

import pytest

from accelshare.extender import heap


async def test_memory_is_returned_every_minute() -> None:
    done: list[str] = []

    async def sleep(seconds: float) -> None:
        if len(done) == 4:
            raise asyncio.CancelledError
        done.append(f"slept {seconds:g} s")

    with pytest.raises(asyncio.CancelledError):
        await heap.return_free_memory(trim=lambda: done.append("trimmed"), sleep=sleep)
    assert done == ["slept 60 s", "trimmed"] * 2


def test_any_c_library_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    heap.glibc_trim()()
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    heap.glibc_trim()()
