import asyncio
import time

import pytest
from passlib.hash import pbkdf2_sha256

from employee_api.users.passwords import PasswordHasher


@pytest.fixture
def hasher() -> PasswordHasher:
    return PasswordHasher(threads=2, memory_kib=64, passes=1)


async def test_a_correct_password_with_current_parameters_needs_no_new_hash(hasher: PasswordHasher) -> None:
    stored = await hasher.hash("right")
    assert await hasher.verify("right", stored) == (True, None)


@pytest.mark.parametrize("password", ["wrong", "", "right ", "RIGHT"])
async def test_a_wrong_password_is_rejected(hasher: PasswordHasher, password: str) -> None:
    stored = await hasher.hash("right")
    assert await hasher.verify(password, stored) == (False, None)


@pytest.mark.parametrize("password", ["", "right", "x" * 5000])
async def test_no_password_is_correct_for_an_unknown_user(hasher: PasswordHasher, password: str) -> None:
    assert await hasher.verify(password, None) == (False, None)


async def test_a_password_longer_than_the_maximum_is_wrong(hasher: PasswordHasher) -> None:
    stored = await hasher.hash("x" * 4096)
    assert (await hasher.verify("x" * 4096, stored))[0]
    for hashed in (stored, await hasher.hash("")):
        assert await hasher.verify("x" * 4097, hashed) == (False, None)


@pytest.mark.parametrize("scheme", ["older parameters", "another scheme"])
async def test_a_correct_password_replaces_a_hash_with_other_parameters(hasher: PasswordHasher, scheme: str) -> None:
    older = PasswordHasher(threads=1, memory_kib=32, passes=1)
    stored = await older.hash("right") if scheme == "older parameters" else pbkdf2_sha256.hash("right")
    correct, new_hash = await hasher.verify("right", stored)
    assert correct
    assert new_hash is not None
    assert new_hash.startswith("$argon2id$")
    assert await hasher.verify("right", new_hash) == (True, None)
    assert await hasher.verify("wrong", stored) == (False, None)


async def test_hashes_are_argon2id_with_the_recommended_cost() -> None:
    hasher = PasswordHasher(threads=1)
    assert (await hasher.hash("right")).startswith("$argon2id$v=19$m=19456,t=2,p=1$")


async def test_an_unknown_user_takes_as_long_as_a_wrong_password() -> None:
    hasher = PasswordHasher(threads=1)
    stored = await hasher.hash("right")

    def seconds(stored: str | None) -> float:
        started = time.thread_time()
        hasher._verify("wrong", stored)
        return time.thread_time() - started

    known = sorted([seconds(stored) for _ in range(9)])
    unknown = sorted([seconds(None) for _ in range(9)])
    assert 0.5 < unknown[4] / known[4] < 2


async def test_the_event_loop_runs_while_passwords_are_hashed() -> None:
    hasher = PasswordHasher(threads=1)
    hashing = asyncio.gather(*(hasher.hash("right") for _ in range(5)))
    turns = 0
    while not hashing.done():
        await asyncio.sleep(0.001)
        turns += 1
    await hashing
    assert turns > 5
