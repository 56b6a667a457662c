"""Transactions that a request shares."""

import random
from contextlib import suppress

import pytest

from employee_api.clock import utc_now
from employee_api.database import shared_transaction
from employee_api.errors import EmailTaken
from employee_api.users.repository import NewUser, UserRepository
from shop_lab.world.employee_api import Api


def new_user(email: str) -> NewUser:
    return NewUser("Ada", email, "hash", "ceo", "")


async def emails(users: UserRepository) -> list[str]:
    return [user.email for user in await users.list_all()]


async def test_changes_in_a_shared_transaction_are_committed_together(api: Api) -> None:
    users = UserRepository(api.engine, utc_now, random.SystemRandom())
    async with shared_transaction():
        await users.add(new_user("a@x"), None)
        with suppress(EmailTaken):
            await users.add(new_user("a@x"), None)
        await users.add(new_user("b@x"), None)
    assert await emails(users) == ["a@x", "b@x"]


async def test_an_error_reverts_every_change_of_a_shared_transaction(api: Api) -> None:
    users = UserRepository(api.engine, utc_now, random.SystemRandom())
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the error must follow the change
        async with shared_transaction():
            await users.add(new_user("a@x"), None)
            raise ZeroDivisionError
    await users.add(new_user("b@x"), None)
    assert await emails(users) == ["b@x"]
