import hashlib
import random
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlmodel import col

from employee_api.breached_passwords import is_breached, parse_breached_passwords_file
from employee_api.models import User
from employee_api.settings import AuthMode, EmployeeApiSettings
from shop_kit.employee_api import PASSWORD, Api, StartApi, password_hasher
from shop_kit.settings import load_settings

COMPOSED, DECOMPOSED = "caf\u00e9 au lait noir", "cafe\u0301 au lait noir"
REGISTER, LOGIN = "/api/auth/register", "/api/auth/login"


def sha1_lines(passwords: list[str], count: str = ":42") -> bytes:
    hashes = sorted(hashlib.sha1(password.encode()).hexdigest().upper() for password in passwords)  # noqa: S324
    return "".join(f"{digest}{count}\r\n" for digest in hashes).encode()


def plain_lines(passwords: list[str]) -> bytes:
    return b"".join(sorted(password.encode() + b"\n" for password in passwords))


@pytest.mark.parametrize("lines", [sha1_lines, lambda some: sha1_lines(some, "").lower(), plain_lines])
@pytest.mark.parametrize("count", [1, 2, 3, 500])
def test_every_password_of_a_file_is_found_and_no_other(tmp_path: Path, lines: object, count: int) -> None:
    assert callable(lines)
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


def test_a_file_without_a_final_newline_is_searched_whole(tmp_path: Path) -> None:
    file = tmp_path / "breached"
    file.write_bytes(b"a\nb\nc")
    assert is_breached("c", file)


@pytest.mark.parametrize(("mode", "length"), [("off", 1), ("observe", 12), ("enforce", 12)])
def test_the_default_minimum_length_depends_on_the_mode(mode: AuthMode, length: int) -> None:
    assert load_settings(EmployeeApiSettings, {"auth_mode": mode}).min_password_length == length


async def test_a_short_password_is_refused(start_api_on_sqlite: StartApi) -> None:
    async with start_api_on_sqlite(auth_mode="enforce") as api:
        # Eleven characters, one of them entered as two.
        new = {"name": "Ada", "email": "ada@x", "password": "e\u0301" + "x" * 10}
        response = await api.client.post(REGISTER, json=new)
        assert (response.status_code, response.json()) == (400, {"error": "Password must have at least 12 characters"})
        new["password"] += "x"
        assert (await api.client.post(REGISTER, json=new)).status_code == 201


async def test_a_breached_password_is_refused(start_api_on_sqlite: StartApi, tmp_path: Path) -> None:
    file = tmp_path / "breached"
    file.write_bytes(sha1_lines([COMPOSED, "password"]))
    async with start_api_on_sqlite(breached_passwords_file=file) as api:
        for path in (REGISTER, "/api/auth/users"):
            new = {"name": "Ada", "email": "ada@x", "password": DECOMPOSED}
            response = await api.client.post(path, json=new)
            assert (response.status_code, response.json()) == (400, {"error": "Password is known from a data breach"})


async def test_a_password_that_normalization_lengthens_beyond_the_limit_is_refused(api_on_sqlite: Api) -> None:
    new = {"name": "Ada", "email": "ada@x", "password": "\N{MUSICAL SYMBOL HALF NOTE}" * 4000}
    response = await api_on_sqlite.client.post(REGISTER, json=new)
    assert (response.status_code, response.json()) == (400, {"error": "Password must have at most 4096 characters"})


@pytest.mark.parametrize(("first", "second"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)])
async def test_a_password_may_be_entered_in_any_unicode_composition(
    api_on_sqlite: Api, first: str, second: str
) -> None:
    await api_on_sqlite.add_user(email="ada@x", password=first)
    for password in (first, second):
        login = await api_on_sqlite.client.post(LOGIN, json={"email": "ada@x", "password": password})
        assert login.status_code == 200


async def test_a_hash_of_a_password_as_it_was_entered_is_replaced_at_login(api: Api) -> None:
    await api.add_user(email="ada@x")
    old_hash = password_hasher()._context.hash(DECOMPOSED)
    async with api.engine.begin() as connection:
        await connection.execute(update(User).values(password_hash=old_hash))
    for password, status in [(COMPOSED, 401), (DECOMPOSED, 200), (COMPOSED, 200)]:
        login = await api.client.post(LOGIN, json={"email": "ada@x", "password": password})
        assert login.status_code == status
    async with api.engine.connect() as connection:
        assert (await connection.execute(select(col(User.password_hash)))).scalar_one() != old_hash


async def test_an_email_with_white_space_around_it_is_the_same(api: Api) -> None:
    await api.add_user(email="ada@x")
    login = await api.client.post(LOGIN, json={"email": " Ada@x ", "password": PASSWORD})
    assert login.status_code == 200
    again = await api.client.post(REGISTER, json={"name": "B", "email": "ada@x\t", "password": PASSWORD})
    assert again.status_code == 409


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"password": "x" * 4097}, "password is too long: at most 4096 characters"),
        ({"email": "x" * 321}, "email is too long: at most 320 characters"),
        ({"dept": "x" * 65_536}, "Request body is too long: at most 65536 bytes"),
        (
            {"name": "Ada\u202e", "email": "x" * 321},
            "name has a character that is not allowed; email is too long: at most 320 characters",
        ),
        ({"email": " \t"}, "Name, email and password required"),
        ({"email": "x" * 321, "name": ""}, "Name, email and password required"),
    ],
)
async def test_what_is_too_long_is_named_when_authorization_is_enforced(
    start_api_on_sqlite: StartApi, changed: dict[str, str], text: str
) -> None:
    new = {"name": "Ada", "email": "ada@x", "password": PASSWORD} | changed
    async with start_api_on_sqlite(auth_mode="enforce") as api:
        response = await api.client.post(REGISTER, json=new)
    assert (response.status_code, response.json()) == (400, {"error": text})


@pytest.mark.parametrize(
    "changed", [{"password": "x" * 4097}, {"email": "x" * 321}, {"dept": "x" * 65_536}, {"role": 1}, {"dept": 1}]
)
async def test_what_is_invalid_gets_the_documented_text_without_authorization(
    api_on_sqlite: Api, changed: dict[str, Any]
) -> None:
    new = {"name": "Ada", "email": "ada@x", "password": PASSWORD} | changed
    response = await api_on_sqlite.client.post(REGISTER, json=new)
    assert (response.status_code, response.json()) == (400, {"error": "Name, email and password required"})
