import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from chassis.values.networks import network
from employee_api.access import DEVICE_COOKIE
from employee_api.auth.login_limiter import LoginLimiter
from employee_api.failure_counts import FailureCounts
from employee_api.models import Device, FailureCount
from shop_kit.employee_api import PASSWORD, Api, StartApi, on_each_database, started_with

EMAIL = "ada@x"
ENFORCED: dict[str, Any] = {"auth_mode": "enforce", "failed_logins_per_email": 3}


async def log_in(api: Api, password: str = PASSWORD, email: str = EMAIL, device: str | None = None) -> Any:
    """Try to log in, with the cookie of a known device if there is one, and return the response."""
    return await api.attempt_login(email, password, **{"cookie": f"{DEVICE_COOKIE}={device}"} if device else {})


async def fail(api: Api, count: int, email: str = EMAIL, device: str | None = None) -> list[int]:
    return [(await log_in(api, "wrong", email, device)).status_code for _ in range(count)]


async def fail_for_each(api: Api, count: int) -> list[int]:
    """Fail to log in once for each of as many e-mails."""
    return [(await fail(api, 1, f"{number}@x"))[0] for number in range(count)]


async def succeeds(api: Api, device: str | None = None) -> bool:
    """Return whether a correct login succeeds; else there were too many failed ones."""
    response = await log_in(api, device=device)
    assert response.status_code in (200, 429)
    return bool(response.status_code == 200)


async def guess_concurrently(api: Api, guesses: list[tuple[str, str]]) -> list[int]:
    """Return the statuses of concurrent logins with these e-mails and passwords."""
    responses = await asyncio.gather(*(api.attempt_login(email, password) for email, password in guesses))
    return [response.status_code for response in responses]


async def rows(api: Api, table: type[Any]) -> int:
    [row] = await api.execute(select(func.count().label("rows")).select_from(table))
    return int(row["rows"])


@on_each_database
@pytest.mark.parametrize("email", [EMAIL, "nobody@x"])
async def test_failed_logins_are_limited_for_known_and_unknown_emails(start_api: StartApi, email: str) -> None:
    async with start_api(**ENFORCED) as api:
        await api.store_user(EMAIL)
        assert await fail(api, 4, email) == [401, 401, 401, 429]
        response = await log_in(api, email=email)
        assert (response.status_code, response.json()) == (429, {"error": "Too many failed logins"})
        assert 0 < int(response.headers["retry-after"]) <= 5
        api.clock.now += timedelta(seconds=int(response.headers["retry-after"]))
        if email == EMAIL:
            assert await succeeds(api)
            assert await fail(api, 3) == [401, 401, 401]  # it has reset the count


async def test_each_further_failure_doubles_the_wait_up_to_a_minute(start_api: StartApi) -> None:
    async with start_api(**ENFORCED) as api:
        await fail(api, 3)
        for wait in (5, 10, 20, 40, 60, 60):
            assert (await log_in(api)).headers["retry-after"] == str(wait)
            api.clock.now += timedelta(seconds=wait - 1)
            assert await fail(api, 1) == [429]  # which does not prolong the wait
            api.clock.now += timedelta(seconds=1)
            assert await fail(api, 1) == [401]


@on_each_database
async def test_a_limit_ends_with_its_window_and_its_counts_are_deleted(start_api: StartApi) -> None:
    async with start_api(**ENFORCED, failed_logins_window_seconds=60) as api:
        await fail(api, 3)
        await fail(api, 1, "another@x")
        api.clock.now += timedelta(seconds=60)
        assert await fail(api, 1) == [401]
        assert await rows(api, FailureCount) == 3  # of the e-mail, of the address, and of the e-mail from there
        assert await fail(api, 3) == [401, 401, 429]


async def test_failed_logins_on_one_replica_count_on_the_other(start_api: StartApi) -> None:
    async with start_api(**ENFORCED) as one, start_api(**ENFORCED) as other:
        assert await fail(one, 2) + await fail(other, 2) == [401, 401, 401, 429]
        assert await fail(one, 1) == [429]


async def test_an_attacker_behind_a_shared_address_is_slowed_down_and_the_others_log_in(start_api: StartApi) -> None:
    async with start_api(**ENFORCED, failed_logins_per_address=4) as api:
        await api.store_user(EMAIL)
        assert [await fail_for_each(api, 6) for _ in range(2)] == [[401] * 6, [429] * 6]
        assert await succeeds(api)
        assert await fail(api, 2) == [401, 429]  # a typing error costs seconds
        api.clock.now += timedelta(seconds=5)
        assert await succeeds(api)


async def test_of_a_thousand_users_behind_the_address_of_an_attacker_none_waits(api: Api) -> None:
    counts = FailureCounts(api.engine, api.clock, timedelta(minutes=15))
    limiter = LoginLimiter(counts, per_email=10, per_address=100)
    attempts = [limiter.attempt(f"{number}@x", "192.0.2.1") for number in range(1000)]
    for attempt in attempts[:200]:  # one guess for each, as if all had one proxy
        assert await limiter.exceeded(attempt) is None
        await counts.add(attempt.slots)
    waiting = [await limiter.exceeded(attempt) is not None for attempt in attempts[100:300]]
    assert waiting == [True] * 100 + [False] * 100
    elsewhere = limiter.attempt("0@x", "192.0.2.2")
    await counts.add(elsewhere.slots)  # a typing error
    assert await limiter.exceeded(elsewhere) is None
    api.clock.now += timedelta(seconds=5)
    assert await limiter.exceeded(attempts[0]) is None


async def test_an_account_waits_everywhere_only_if_it_is_attacked_from_many_networks(start_api: StartApi) -> None:
    async with start_api(**ENFORCED | {"failed_logins_per_email": 2}, trusted_proxies="127.0.0.1") as api:
        await api.store_user(EMAIL)
        for number in range(10):
            api.client.headers["x-forwarded-for"] = "198.51.100.1"
            assert await succeeds(api)
            api.client.headers["x-forwarded-for"] = f"192.0.2.{number}"
            assert await fail(api, 3) == [401, 401, 429]
        api.client.headers["x-forwarded-for"] = "198.51.100.1"
        assert not await succeeds(api)


async def test_a_known_device_has_a_limit_of_its_own(start_api: StartApi) -> None:
    async with start_api(**ENFORCED, failed_logins_per_address=3) as api:
        await api.store_user(EMAIL)
        device = (await log_in(api)).cookies[DEVICE_COOKIE]
        assert (await fail(api, 5))[-1] == 429
        assert await succeeds(api, device)
        assert not await succeeds(api)  # which does not help those who guess
        assert await fail(api, 4, device=device) == [401, 401, 401, 429]
        assert not await succeeds(api, device)
        api.clock.now += timedelta(minutes=15)
        assert (await fail(api, 3, device=device))[-1] == 401
        assert await succeeds(api)  # elsewhere


async def test_a_device_is_known_for_its_user_alone_and_a_year_after_the_last_login(start_api: StartApi) -> None:
    async with start_api(**ENFORCED) as api:
        await api.store_user(EMAIL)
        await api.store_user("mallory@x")
        device, of_mallory = [(await log_in(api, email=email)).cookies[DEVICE_COOKIE] for email in (EMAIL, "mallory@x")]
        api.clock.now += timedelta(days=300)
        assert (await log_in(api, device=device)).cookies[DEVICE_COOKIE] == device
        await fail(api, 3)
        assert [await succeeds(api, other) for other in (of_mallory, "invented", device)] == [False, False, True]
        api.clock.now += timedelta(days=366)
        await fail(api, 3)
        assert not await succeeds(api, device)


async def test_the_devices_of_a_user_are_bounded(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce") as api:
        await api.store_user(EMAIL)
        for _ in range(53):
            await log_in(api)
        assert await rows(api, Device) == 50


@on_each_database
async def test_concurrent_guesses_do_not_exceed_the_limit_of_an_email(start_api: StartApi) -> None:
    async with start_api(**ENFORCED | {"failed_logins_per_email": 10}) as api:
        await api.store_user(EMAIL)
        statuses = await guess_concurrently(api, [(EMAIL, f"guess {number}") for number in range(300)])
    assert statuses.count(401) == 10
    assert set(statuses) == {401, 429, 503}


async def test_concurrent_guesses_beyond_the_limit_of_their_address_are_one_for_each_email(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce", failed_logins_per_address=10) as api:
        await fail_for_each(api, 10)
        statuses = await guess_concurrently(api, [(f"{number % 20}@x", "guess") for number in range(100)])
    assert statuses.count(401) == 10


async def test_correct_logins_are_not_counted_even_if_they_are_concurrent(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce", failed_logins_per_email=1, failed_logins_per_address=1) as api:
        await api.store_user(EMAIL)
        assert set(await guess_concurrently(api, [(EMAIL, PASSWORD)] * 30)) == {200}


async def test_registrations_from_one_address_are_limited_for_a_window(start_api: StartApi) -> None:
    limits = {"registrations_per_address": 3, "failed_logins_per_address": 1}
    async with start_api(auth_mode="enforce", trusted_proxies="127.0.0.1", **limits) as api:
        assert [(await api.register(f"{number}@x"))[0] for number in range(4)] == [201, 201, 201, 429]
        new = {"name": "Ada", "email": "4@x", "password": PASSWORD}
        refused = await api.client.post("/api/auth/register", json=new)
        assert (refused.status_code, refused.json()) == (429, {"error": "Too many registrations"})
        assert 880 < int(refused.headers["retry-after"]) <= 900
        assert (await api.register("5@x", {"x-forwarded-for": "198.51.100.7"}))[0] == 201
        assert await fail(api, 1, "1@x") == [401]  # logins are counted apart
        api.clock.now += timedelta(seconds=900)
        assert (await api.register("4@x"))[0] == 201


async def test_registrations_with_an_invitation_have_limits_of_their_own(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", registrations_per_address=1, registration="open") as (api, _):
        token = (await api.invite())["token"]
        assert [(await api.register(f"{number}@x"))[0] for number in (1, 2)] == [201, 429]
        assert [(await api.register("0@x", invite=token))[0] for _ in range(2)] == [409, 429]  # each costs a hash


async def test_attempts_that_fail_count_with_an_idempotency_key_and_repetitions_do_not(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce", registrations_per_address=3) as api:
        keys = ("one", "one", "two", "one", "three", "four")
        statuses = [(await api.register(headers={"idempotency-key": key}))[0] for key in keys]
        assert statuses == [201, 201, 409, 201, 409, 429]


@on_each_database
async def test_concurrent_registrations_do_not_exceed_the_limit(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce", registrations_per_address=5) as api:
        answers = await asyncio.gather(*(api.register(f"{number}@x") for number in range(30)))
        assert [status for status, _ in answers].count(201) == 5


def test_addresses_that_one_client_can_choose_from_count_as_one() -> None:
    assert network("2001:db8::1") == network("2001:db8::ffff:1") == "2001:db8::/64"
    assert network("fe80::1%eth0") == "fe80::/64"
    assert network("::ffff:203.0.113.9") == network("203.0.113.9") == "203.0.113.9"
    assert network("") == ""
