"""The description of the probes, which the chassis serves, and the check behind `/readyz`."""

from typing import Literal

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from chassis.sql.engine import is_current
from employee_api.database import MIGRATIONS
from employee_api.errors import NotReady
from employee_api.http.inputs import ANY_QUERY
from employee_api.http.operations import Call, Operation
from employee_api.schemas import Output


class Health(Output):
    """The state of the process."""

    status: Literal["ok"] = "ok"


async def probe(_call: Call[None]) -> Health:
    """Describe what the chassis responds while the process is alive, or ready."""
    return Health()


def operations() -> list[Operation]:
    return [
        Operation(
            "GET", "/healthz", "Whether the process is alive", probe, named="healthz", reads=ANY_QUERY, served=False
        ),
        Operation(
            "GET", "/readyz", "Whether the database answers and its migrations have run", probe,
            named="readyz", reads=ANY_QUERY, failures=(NotReady(),), served=False,
        ),
    ]  # fmt: skip


async def check_database(engine: AsyncEngine) -> None:
    """Raise NotReady while the database does not answer or lacks a migration."""
    try:
        current = await is_current(engine, MIGRATIONS)
    except SQLAlchemyError as error:
        raise NotReady from error
    if not current:
        raise NotReady
