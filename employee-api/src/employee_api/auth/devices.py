"""Devices from which users have logged in, recognised by a cookie that lasts a year."""

import uuid
from datetime import timedelta

from sqlalchemy import delete, insert, or_, select, update
from sqlmodel import col

from employee_api.database import Repository, transaction
from employee_api.models import Device, User
from employee_api.tokens import hash_token, new_token

DEVICE_LIFETIME = timedelta(days=365)
_MAX_DEVICES = 50


class DeviceRepository(Repository):
    """A device's token gives no access: it exempts its user from the delays that failed logins of others cause."""

    async def find(self, token: str | None, email_key: str) -> bytes | None:
        """Return what identifies the device, if it is a known one of the user with this e-mail."""
        if not token:
            return None
        device = hash_token(token)
        query = (
            select(col(Device.token_hash))
            .join(User, col(User.id) == col(Device.user_id))
            .where(col(Device.token_hash) == device, col(User.email_key) == email_key)
            .where(col(Device.last_used_at) > self.clock() - DEVICE_LIFETIME)
        )
        return device if await self._find(query) else None

    async def use(self, device: bytes) -> None:
        """Extend the lifetime of a known device."""
        used = update(Device).where(col(Device.token_hash) == device).values(last_used_at=self.clock())
        async with transaction(self.engine) as connection:
            await connection.execute(used)

    async def add(self, user_id: uuid.UUID) -> str:
        """Add a device and return its token. Deletes expired devices, and the user's oldest ones if there are many."""
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
