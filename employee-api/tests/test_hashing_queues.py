import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from employee_api.errors import TooManyPasswords
from employee_api.http.operations import Call
from employee_api.users.passwords import HashingQueue, PasswordHasher

LOGIN, NEW_PASSWORD, KNOWN_DEVICE = HashingQueue.LOGIN, HashingQueue.NEW_PASSWORD, HashingQueue.KNOWN_DEVICE


class Work:
    """Work for one thread, which waits until it is released; `done` has the names in the order of execution."""

    def __init__(self) -> None:
        self.hasher = PasswordHasher(1, memory_kib=8, passes=1)
        self.done: list[str] = []
        self.released = threading.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def add(self, queue: HashingQueue, name: str, count: int = 1) -> list[asyncio.Task[None]]:
        """Begin work, of which the first occupies the thread."""

        def work() -> None:
            self.released.wait()
            self.done.append(name)

        added = [asyncio.create_task(self.hasher.run(queue, work)) for _ in range(count)]
        self.tasks += added
        await asyncio.sleep(0)
        return added

    async def finish(self) -> list[str]:
        """Release the thread, and return the names of what was not cancelled or refused."""
        self.released.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        return self.done


@pytest.fixture
async def work() -> AsyncIterator[Work]:
    """Work that occupies the only thread."""
    work = Work()
    await work.add(LOGIN, "first")
    yield work
    work.released.set()
    work.hasher.close()


@pytest.mark.parametrize(("flood", "queue"), [(NEW_PASSWORD, LOGIN), (LOGIN, KNOWN_DEVICE)])
async def test_another_kind_of_work_overtakes_a_flood(work: Work, flood: HashingQueue, queue: HashingQueue) -> None:
    await work.add(flood, "flood", 50)
    await work.add(queue, "other")
    assert (await work.finish()).index("other") <= 2


async def test_the_queues_are_served_in_turn(work: Work) -> None:
    await work.add(LOGIN, "login", 3)
    await work.add(NEW_PASSWORD, "registration", 3)
    assert (await work.finish())[1:] in (["login", "registration"] * 3, ["registration", "login"] * 3)


async def test_a_full_queue_refuses_and_leaves_the_other_queues_open(work: Work) -> None:
    await work.add(LOGIN, "login", 200)
    [refused] = await work.add(LOGIN, "refused")
    with pytest.raises(TooManyPasswords) as error:
        await refused
    assert error.value.retry_after_seconds
    await work.add(NEW_PASSWORD, "registration")
    assert sorted(await work.finish()) == ["first", *["login"] * 200, "registration"]


async def test_a_client_that_leaves_frees_its_place(work: Work) -> None:
    leaving = await work.add(LOGIN, "left", 200)
    for task in leaving:
        task.cancel()
    await asyncio.gather(*leaving, return_exceptions=True)
    await work.add(LOGIN, "login", 200)
    assert await work.finish() == ["first", *["login"] * 200]


@pytest.mark.parametrize("leaving", [0, 1])
async def test_a_client_that_leaves_when_its_turn_comes_does_not_lose_the_thread(work: Work, leaving: int) -> None:
    waiting = await work.add(LOGIN, "login", 2)
    work.hasher._threads.release()  # as if another thread had become free
    waiting[leaving].cancel()
    await work.finish()
    assert await work.hasher.run(LOGIN, lambda: "served") == "served"


async def test_a_wait_ends_when_the_client_disconnects(work: Work) -> None:
    async def disconnect() -> Message:
        return {"type": "http.disconnect"}

    call = Call(Request({"type": "http"}, disconnect), None, None)
    with pytest.raises(ClientDisconnect):
        await call.while_connected(work.hasher.run(LOGIN, lambda: work.done.append("left")))
    assert await work.finish() == ["first"]


async def test_work_that_finishes_first_returns_its_result() -> None:
    call = Call(Request({"type": "http"}, asyncio.Event().wait), None, None)  # type: ignore[arg-type]
    assert await call.while_connected(asyncio.sleep(0, "done")) == "done"
