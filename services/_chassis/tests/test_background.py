import asyncio

import pytest

from chassis import background
from chassis.background import in_background, log_errors
from shop_kit.waiting import wait_until


async def test_a_loop_that_fails_starts_again_and_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_RESTART_SECONDS", 0.0)
    starts, cancelled = 0, False

    async def fail() -> None:
        nonlocal starts
        starts += 1
        raise ValueError("a defect")

    async def wait() -> None:
        nonlocal cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled = True
            raise

    async with in_background(fail, wait):
        await wait_until(lambda: starts >= 3)
        assert not cancelled
    assert cancelled


async def test_work_that_ends_as_its_caller_is_cancelled_does_not_hide_the_cancellation() -> None:
    work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    caller = asyncio.create_task(log_errors(work, "failed", within_seconds=300))
    await asyncio.sleep(0)
    work.set_result(None)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
