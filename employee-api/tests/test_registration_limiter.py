import asyncio
from datetime import timedelta
from typing import Any

import pytest

from shop_lab.world.employee_api import PASSWORD, Api, StartApi


async def register(api: Api, number: int, **headers: str) -> Any:
    new = {"name": "Ada", "email": f"{number}@x", "password": PASSWORD}
    return await api.client.post("/api/auth/register", json=new, headers=headers)


async def test_registrations_from_one_address_are_limited(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce", registrations_per_address=3, trusted_proxies="127.0.0.1") as api:
        assert [(await register(api, number)).status_code for number in range(4)] == [201, 201, 201, 429]
        refused = await register(api, 4)
        assert (refused.status_code, refused.json()) == (429, {"error": "Too many registrations"})
        assert 880 < int(refused.headers["retry-after"]) <= 900
        assert (await register(api, 5, **{"x-forwarded-for": "198.51.100.7"})).status_code == 201


async def test_the_limit_ends_with_its_window(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce", registrations_per_address=1) as api:
        assert [(await register(api, number)).status_code for number in range(2)] == [201, 429]
        api.clock.now += timedelta(seconds=900)
        assert (await register(api, 1)).status_code == 201


async def test_attempts_that_fail_count_even_with_an_idempotency_key(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce", registrations_per_address=3) as api:
        keys = ("one", "two", "three", "four")
        statuses = [(await register(api, 1, **{"idempotency-key": key})).status_code for key in keys]
        assert statuses == [201, 409, 409, 429]


async def test_repetitions_with_an_idempotency_key_do_not_count(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce", registrations_per_address=1) as api:
        repeated = [(await register(api, 1, **{"idempotency-key": "one"})).status_code for _ in range(3)]
        assert repeated == [201, 201, 201]


async def test_concurrent_registrations_do_not_exceed_the_limit(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce", registrations_per_address=5) as api:
        responses = await asyncio.gather(*(register(api, number) for number in range(30)))
        assert [response.status_code for response in responses].count(201) == 5


@pytest.mark.parametrize("mode", ["off", "observe"])
async def test_registrations_are_not_limited_in_other_modes(start_api_on_sqlite: StartApi, mode: str) -> None:
    async with start_api_on_sqlite(auth_mode=mode, registrations_per_address=1) as api:
        assert [(await register(api, number)).status_code for number in range(3)] == [201] * 3


async def test_failed_logins_and_registrations_are_counted_apart(start_api_on_sqlite: StartApi) -> None:
    limits: dict[str, Any] = {"registrations_per_address": 1, "failed_logins_per_address": 1}
    async with start_api_on_sqlite(auth_mode="enforce", **limits) as api:
        assert (await register(api, 1)).status_code == 201
        login = await api.client.post("/api/auth/login", json={"email": "1@x", "password": "wrong"})
        assert login.status_code == 401
