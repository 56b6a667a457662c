import threading

import pytest
from passlib.hash import pbkdf2_sha256

from employee_api.users.passwords import HashingQueue, PasswordHasher
from shop_kit.employee_api import password_hasher


@pytest.fixture
def hasher() -> PasswordHasher:
    return password_hasher()


async def test_a_correct_password_with_current_parameters_needs_no_new_hash(hasher: PasswordHasher) -> None:
    stored = await hasher.hash("right")
    assert await hasher.verify("right", stored) == (True, None)
    for wrong in ("wrong", "", "right ", "RIGHT"):
        assert await hasher.verify(wrong, stored) == (False, None)


async def test_a_password_longer_than_the_maximum_is_wrong(hasher: PasswordHasher) -> None:
    stored = await hasher.hash("x" * 4096)
    assert (await hasher.verify("x" * 4096, stored))[0]
    for hashed in (stored, await hasher.hash("")):
        assert await hasher.verify("x" * 4097, hashed) == (False, None)


@pytest.mark.parametrize("scheme", ["older parameters", "another scheme"])
async def test_a_correct_password_replaces_a_hash_with_other_parameters(hasher: PasswordHasher, scheme: str) -> None:
    older = PasswordHasher(threads=1, memory_kib=16, passes=1)
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


async def test_an_unknown_user_costs_as_many_hashes_as_a_wrong_password(
    hasher: PasswordHasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, verified = await hasher.hash("right"), []
    verify = hasher._context.verify_and_update

    def verify_and_note(password: str, stored: str) -> object:
        verified.append(stored.rpartition("$")[0].rpartition("$")[0])  # the cost
        return verify(password, stored)

    monkeypatch.setattr(hasher._context, "verify_and_update", verify_and_note)
    costs = []
    for user in (stored, None):
        for password in ("", "right", "wrong", "cafe\u0301", "x" * 5000):
            correct, _ = await hasher.verify(password, user)
            assert correct == (password == "right" and user is not None)
        costs.append(list(verified))
        verified.clear()
    assert costs[0] == costs[1]


async def test_passwords_are_not_hashed_in_the_thread_of_the_event_loop(hasher: PasswordHasher) -> None:
    assert await hasher.run(HashingQueue.LOGIN, threading.get_ident) != threading.get_ident()
