"""The probes, which the chassis serves: their description, and the check behind `/readyz`."""

from typing import Literal

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from chassis.sql.engine import is_current
from employee_api.database import MIGRATIONS
from employee_api.errors import NotReady
from employee_api.http.operations import Call
from employee_api.schemas import Output


class Health(Output):
    """The state of the process."""

    status: Literal["ok"] = "ok"


async def probe(_call: Call[None]) -> Health:
    """Return what the chassis does while the service is alive, or ready."""
    return Health()


async def check_database(engine: AsyncEngine) -> None:
    """Raise NotReady while the database does not answer or lacks a migration."""
    try:
        current = await is_current(engine, MIGRATIONS)
    except SQLAlchemyError as error:
        raise NotReady from error
    if not current:
        raise NotReady
