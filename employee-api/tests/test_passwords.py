import asyncio
import time

import pytest
from passlib.hash import pbkdf2_sha256

from employee_api.passwords import Passwords


@pytest.fixture
def passwords() -> Passwords:
    return Passwords(threads=2, memory_kib=64, passes=1)


async def test_a_right_password_needs_no_better_hash(passwords: Passwords) -> None:
    stored = await passwords.hash("right")
    assert await passwords.verify("right", stored) == (True, None)


@pytest.mark.parametrize("given", ["wrong", "", "right ", "RIGHT"])
async def test_a_wrong_password_is_refused(passwords: Passwords, given: str) -> None:
    stored = await passwords.hash("right")
    assert await passwords.verify(given, stored) == (False, None)


@pytest.mark.parametrize("given", ["", "right", "x" * 5000])
async def test_nobody_has_a_password(passwords: Passwords, given: str) -> None:
    assert await passwords.verify(given, None) == (False, None)


async def test_the_longest_password_works_and_a_longer_one_is_wrong(passwords: Passwords) -> None:
    stored = await passwords.hash("x" * 4096)
    assert (await passwords.verify("x" * 4096, stored))[0]
    assert not (await passwords.verify("x" * 4097, stored))[0]


async def test_an_overlong_password_does_not_pass_for_an_empty_one(passwords: Passwords) -> None:
    stored = await passwords.hash("")
    assert await passwords.verify("x" * 5000, stored) == (False, None)


@pytest.mark.parametrize("scheme", ["older parameters", "another scheme"])
async def test_a_hash_made_otherwise_is_replaced_when_its_password_is_right(passwords: Passwords, scheme: str) -> None:
    older = Passwords(threads=1, memory_kib=32, passes=1)
    stored = await older.hash("right") if scheme == "older parameters" else pbkdf2_sha256.hash("right")
    right, better = await passwords.verify("right", stored)
    assert right
    assert better is not None
    assert better.startswith("$argon2id$")
    assert await passwords.verify("right", better) == (True, None)
    assert await passwords.verify("wrong", stored) == (False, None)


async def test_hashes_are_argon2id_with_the_recommended_cost() -> None:
    passwords = Passwords(threads=1)
    assert (await passwords.hash("right")).startswith("$argon2id$v=19$m=19456,t=2,p=1$")


async def test_an_unknown_user_costs_as_much_time_as_a_wrong_password() -> None:
    passwords = Passwords(threads=1)
    stored = await passwords.hash("right")

    async def seconds(known: str | None) -> float:
        started = time.thread_time()
        passwords._verify("wrong", known)
        return time.thread_time() - started

    known = sorted([await seconds(stored) for _ in range(9)])
    unknown = sorted([await seconds(None) for _ in range(9)])
    assert 0.5 < unknown[4] / known[4] < 2


async def test_the_loop_is_free_while_passwords_are_hashed() -> None:
    passwords = Passwords(threads=1)
    hashing = asyncio.gather(*(passwords.hash("right") for _ in range(5)))
    turns = 0
    while not hashing.done():
        await asyncio.sleep(0.001)
        turns += 1
    await hashing
    assert turns > 5
