"""Logs sign-in attempts, and recognizes users' devices by a cookie that lasts a year."""

import uuid
from datetime import timedelta
from enum import StrEnum

from sqlalchemy import delete, insert, literal, or_, select, update
from sqlmodel import SQLModel, col

from employee_api.access import Access, hash_token, new_token
from employee_api.auth.schemas import SignInOutput, SignInPage
from employee_api.auth.sessions import user_of
from employee_api.database import Repository, transaction
from employee_api.http.operations import Call, operation
from employee_api.models import Device, SignIn, User
from employee_api.pagination import PageQuery, fetch_page

_TABLE = SQLModel.metadata.tables["sign_ins"]
_RETENTION = timedelta(days=90)
DEVICE_LIFETIME = timedelta(days=365)
_MAX_DEVICES = 50


class Outcome(StrEnum):
    SUCCESS = "success"
    WRONG_PASSWORD = "wrong_password"  # noqa: S105 - not a password
    DEACTIVATED = "deactivated"
    LIMITED = "limited"


class SignInHandlers(Repository):
    """Lists sign-in attempts, and stores them for 90 days. Attempts with an unknown e-mail are not stored."""

    async def record(self, email_key: str, outcome: Outcome, origin: dict[str, str]) -> None:
        """Record an attempt if a user has this e-mail, and delete attempts older than 90 days.

        This takes just as long for unknown e-mails: response times must not reveal which e-mails are registered.
        """
        now = self.clock()
        row = {"id": uuid.uuid4(), "outcome": outcome, **origin, "created_at": now}
        values = [literal(value, _TABLE.c[name].type) for name, value in row.items()]
        attempt = select(*values, col(User.id)).where(col(User.email_key) == email_key)
        async with transaction(self.engine) as connection:
            await connection.execute(insert(SignIn).from_select([*row, "user_id"], attempt))
            await connection.execute(delete(SignIn).where(col(SignIn.created_at) <= now - _RETENTION))

    @operation(
        "GET", "/api/auth/sign-ins", "List the attempts to sign in to your account, newest first", Access.SELF,
        named="list_own_sign_ins",
    )  # fmt: skip
    @operation(
        "GET", "/api/auth/users/{id}/sign-ins", "List the attempts to sign in to an account, newest first",
        Access.SUBORDINATE,
    )  # fmt: skip
    async def list_sign_ins(self, call: Call[PageQuery]) -> SignInPage:
        of_user = select(*SignInOutput.columns(SignIn)).where(col(SignIn.user_id) == await user_of(call, self))
        return await fetch_page(self, of_user, SignIn, call.input, SignInPage)


class DeviceRepository(Repository):
    """Stores the devices users have logged in from. Failed logins elsewhere don't delay logins from these devices."""

    async def find(self, token: str | None, email_key: str) -> bytes | None:
        """Return the token's hash if this user has logged in from the device before, or else None."""
        if not token:
            return None
        device = hash_token(token)
        query = (
            select(col(Device.token_hash))
            .join(User, col(User.id) == col(Device.user_id))
            .where(col(Device.token_hash) == device, col(User.email_key) == email_key)
            .where(col(Device.last_used_at) > self.clock() - DEVICE_LIFETIME)
        )
        return device if await self.find_row(query) else None

    async def use(self, device: bytes) -> None:
        await self.execute(update(Device).where(col(Device.token_hash) == device).values(last_used_at=self.clock()))

    async def add(self, user_id: uuid.UUID) -> str:
        """Add a device and return its token. Delete expired devices; keep only the user's 50 most recently used."""
        now = self.clock()
        token = new_token()
        own = col(Device.user_id) == user_id
        newest = select(col(Device.token_hash)).where(own).order_by(col(Device.last_used_at).desc()).limit(_MAX_DEVICES)
        superfluous = own & col(Device.token_hash).not_in(newest)
        row = {"token_hash": hash_token(token), "user_id": user_id, "created_at": now, "last_used_at": now}
        async with transaction(self.engine) as connection:
            await connection.execute(insert(Device).values(row))
            expired = col(Device.last_used_at) <= now - DEVICE_LIFETIME
            await connection.execute(delete(Device).where(or_(expired, superfluous)))
        return token
