"""The check behind `/readyz`, which the chassis serves."""

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from chassis.sql.engine import is_current
from employee_api.database import MIGRATIONS
from employee_api.errors import NotReady


async def check_database(engine: AsyncEngine) -> None:
    """Raise NotReady if the database does not answer or lacks a migration."""
    try:
        current = await is_current(engine, MIGRATIONS)
    except SQLAlchemyError as error:
        raise NotReady from error
    if not current:
        raise NotReady
