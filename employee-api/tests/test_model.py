"""Random requests to the API on SQLite and on PostgreSQL, which must respond alike, and as a model in Python does.

The variable EMPLOYEE_API_MODEL_REQUESTS sets their number; without it they are the same in each run:

    EMPLOYEE_API_MODEL_REQUESTS=10000 pytest employee-api/tests/test_model.py
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from shop_lab.world.employee_api import Api, Clock
from shop_lab.world.employee_model.machine import MODES
from shop_lab.world.employee_model.model import describes_every_operation
from shop_lab.world.employee_model.people_rules import CredentialRules, PeopleRules
from shop_lab.world.employee_model.twins import SeededRandomness, Twins, start
from shop_lab.world.employee_model.work_rules import WorkRules

REQUESTS = int(os.environ.get("EMPLOYEE_API_MODEL_REQUESTS", "0"))
DEFAULT_REQUESTS = 2000
STEPS = 60
# The limits have tests of their own.
UNLIMITED = {
    "failed_logins_per_email": 10**6,
    "failed_logins_per_address": 10**6,
    "registrations_per_address": 10**6,
}


class ApiMachine(PeopleRules, CredentialRules, WorkRules):
    """Requests to all operations."""


@pytest.fixture
def twins(sqlite_url: str, emptied_postgres: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Twins]:
    randomness, clock = SeededRandomness(), Clock()
    randomness.patch(monkeypatch)
    modes = {name: UNLIMITED | changed for name, changed in MODES.items()}
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        apis = runner.run(start(stack, [sqlite_url, emptied_postgres], clock, modes))
        yield Twins(runner, randomness, clock, apis)
        runner.run(stack.aclose())


@pytest.mark.timeout(max(600, REQUESTS))  # a loaded machine takes minutes
def test_random_requests_have_the_expected_results_on_both_databases(twins: Twins) -> None:
    ApiMachine.twins = twins
    examples = settings(
        max_examples=(REQUESTS or DEFAULT_REQUESTS) // STEPS,
        stateful_step_count=STEPS,
        derandomize=not REQUESTS,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    run_state_machine_as_test(ApiMachine, settings=examples)
    assert ApiMachine.requests >= (REQUESTS or DEFAULT_REQUESTS) // 2
    print(f"{ApiMachine.requests} requests")  # noqa: T201 - with `-s`


async def test_the_model_has_every_operation(api_on_sqlite: Api) -> None:
    assert describes_every_operation((await api_on_sqlite.client.get("/openapi.json")).json())
