"""The log of attempts to sign in, by account."""

import uuid
from datetime import timedelta
from enum import StrEnum

from sqlalchemy import delete, insert, literal, select
from sqlmodel import SQLModel, col

from employee_api.access import Caller
from employee_api.auth.schemas import SignInOutput, SignInPage
from employee_api.database import Repository, transaction
from employee_api.errors import UserNotFound
from employee_api.models import SignIn, User
from employee_api.pagination import PageQuery, fetch_page

_COLUMNS = [getattr(SignIn, name) for name in SignInOutput.model_fields]
_TABLE = SQLModel.metadata.tables["sign_ins"]
_RETENTION = timedelta(days=90)


class Outcome(StrEnum):
    """What became of an attempt to sign in."""

    SUCCESS = "success"
    WRONG_PASSWORD = "wrong_password"  # noqa: S105 - not a password
    DEACTIVATED = "deactivated"
    LIMITED = "limited"


class SignInRepository(Repository):
    """Attempts are kept for 90 days. Those with an unknown e-mail are not recorded."""

    async def record(self, email_key: str, outcome: Outcome, caller: Caller) -> None:
        """Record an attempt if a user has this e-mail, and delete those that are too old.

        It takes as long if no user has it: response times must not reveal which e-mails are registered.
        """
        now = self.clock()
        row = {
            "id": uuid.uuid4(),
            "outcome": outcome,
            "address": caller.address,
            "user_agent": caller.user_agent,
            "created_at": now,
        }
        values = [literal(value, _TABLE.c[name].type) for name, value in row.items()]
        attempt = select(*values, col(User.id)).where(col(User.email_key) == email_key)
        async with transaction(self.engine) as connection:
            await connection.execute(insert(SignIn).from_select([*row, "user_id"], attempt))
            await connection.execute(delete(SignIn).where(col(SignIn.created_at) <= now - _RETENTION))

    async def search(self, user_id: uuid.UUID, page: PageQuery) -> SignInPage:
        """Return a page of a user's attempts. Raises UserNotFound."""
        if await self._find(select(col(User.id)).where(col(User.id) == user_id)) is None:
            raise UserNotFound
        own = select(*_COLUMNS).where(col(SignIn.user_id) == user_id)
        return await fetch_page(self._reads, own, SignIn, page, SignInPage)
