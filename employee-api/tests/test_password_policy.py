import hashlib
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from passlib.hash import pbkdf2_sha256
from sqlalchemy import select, update

from employee_api.breached_passwords import is_breached, parse_breached_passwords_file
from employee_api.models import User
from employee_api.settings import EmployeeApiSettings
from employee_api.users.passwords import HashingQueue, PasswordHasher
from shop_kit.employee_api import MODES, Api, StartApi, password_hasher
from shop_kit.settings import load_settings

COMPOSED, DECOMPOSED = "caf\u00e9 au lait noir", "cafe\u0301 au lait noir"


def sha1_lines(passwords: list[str], count: str = ":42") -> bytes:
    hashes = sorted(hashlib.sha1(password.encode()).hexdigest().upper() for password in passwords)  # noqa: S324
    return "".join(f"{digest}{count}\r\n" for digest in hashes).encode()


def plain_lines(passwords: list[str]) -> bytes:
    return b"\n".join(sorted(password.encode() for password in passwords))  # without a final newline


@pytest.mark.parametrize("lines", [sha1_lines, lambda some: sha1_lines(some, "").lower(), plain_lines])
@pytest.mark.parametrize("count", [1, 2, 3, 500])
def test_every_password_of_a_file_is_found_and_no_other(
    tmp_path: Path, lines: Callable[[list[str]], bytes], count: int
) -> None:
    randomness = random.Random(count)  # noqa: S311 - a seed makes the test repeatable
    passwords = [f"{'x' * randomness.randrange(30)}{number}" for number in range(count)]
    file = tmp_path / "breached"
    file.write_bytes(lines(passwords))
    assert [password for password in passwords if not is_breached(password, file)] == []
    assert [password for password in passwords if is_breached(f"{password}!", file)] == []
    assert not is_breached("", file)
    assert not is_breached("\U0010ffff", file)


@pytest.mark.parametrize(
    ("content", "message"), [(None, "can't be read: No such file"), (b"", "is empty"), (b"b\na\n", "must be sorted")]
)
def test_a_file_that_cannot_be_searched_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "breached"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        parse_breached_passwords_file(str(file))


def test_the_default_minimum_length_depends_on_the_mode() -> None:
    settings = [load_settings(EmployeeApiSettings, {"auth_mode": mode}) for mode in MODES]
    assert [found.min_password_length for found in settings] == [1, 12, 12]


async def test_a_short_or_breached_password_is_refused(start_api: StartApi, tmp_path: Path) -> None:
    file = tmp_path / "breached"
    file.write_bytes(sha1_lines([COMPOSED, "password"]))
    async with start_api(password_min_length=12, breached_passwords_file=file) as api:
        for password, text in (
            ("e\u0301" + "x" * 10, "must have at least 12 characters"),  # eleven, one of them entered as two
            ("\N{MUSICAL SYMBOL HALF NOTE}" * 4000, "must have at most 4096 characters"),  # normalization lengthens it
            (DECOMPOSED, "is known from a data breach"),
        ):
            new = {"name": "Ada", "email": "ada@x", "password": password}
            for operation in ("POST /api/auth/register", "POST /api/auth/users"):
                assert await api.answer(operation, new) == (400, {"error": f"Password {text}"})
        assert (await api.register(password="e\u0301" + "x" * 11))[0] == 201


async def test_a_password_may_be_entered_in_any_unicode_composition(api: Api) -> None:
    for number, first in enumerate((COMPOSED, DECOMPOSED)):
        await api.add_user(email=f"{number}@x", password=first)
        for password in (COMPOSED, DECOMPOSED):
            assert (await api.attempt_login(f"{number}@x", password)).status_code == 200


async def test_a_hash_of_a_password_as_it_was_entered_is_replaced_at_login(api: Api) -> None:
    await api.add_user(email="ada@x")
    old_hash = api.hasher._context.hash(DECOMPOSED)
    await api.execute(update(User).values(password_hash=old_hash))
    for password, status in [(COMPOSED, 401), (DECOMPOSED, 200), (COMPOSED, 200)]:
        assert (await api.attempt_login("ada@x", password)).status_code == status
    [user] = await api.execute(select(User))
    assert user["password_hash"] != old_hash


@pytest.fixture
def hasher() -> PasswordHasher:
    return password_hasher()


async def test_a_correct_password_with_current_parameters_needs_no_new_hash(hasher: PasswordHasher) -> None:
    for right in ("right", "x" * 4096):  # the longest one
        stored = await hasher.hash(right)
        assert await hasher.verify(right, stored) == (True, None)
        for wrong in ("wrong", "", f"{right} ", right.upper()):
            assert await hasher.verify(wrong, stored) == (False, None)
    assert await hasher.verify("x" * 4097, await hasher.hash("")) == (False, None)


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
    assert (await PasswordHasher(threads=1).hash("right")).startswith("$argon2id$v=19$m=19456,t=2,p=1$")


async def test_an_unknown_user_costs_as_many_hashes(hasher: PasswordHasher, monkeypatch: pytest.MonkeyPatch) -> None:
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
