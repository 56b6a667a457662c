"""The probes, which the chassis serves: their description, and the check behind `/readyz`."""

from dataclasses import dataclass
from typing import Literal

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine
from typing_extensions import override

from chassis.errors import Unavailable
from chassis.sql import database
from employee_api.database import MIGRATIONS
from employee_api.http.inputs import NoInput
from employee_api.http.operations import OperationDescription
from employee_api.http.outputs import JsonOutput
from employee_api.schemas import Output


class NotReady(Unavailable):
    """The database does not answer, its migrations have not run, or the process is shutting down."""

    def __init__(self) -> None:
        super().__init__("Not ready")


class Health(Output):
    """The state of the process."""

    status: Literal["ok"] = "ok"


@dataclass(frozen=True)
class Probe(OperationDescription):
    @property
    @override
    def name(self) -> str:
        return self.path.removeprefix("/")


_HEALTH: JsonOutput[Health] = JsonOutput(Health)
PROBES = (
    Probe("GET", "/healthz", "Whether the process is alive", NoInput(ignores_query=True), _HEALTH),
    Probe(
        "GET", "/readyz", "Whether the database answers and its migrations have run",
        NoInput(ignores_query=True), _HEALTH, failures=(NotReady(),),
    ),
)  # fmt: skip


async def check_database(engine: AsyncEngine) -> None:
    """Raise NotReady while the database does not answer or lacks a migration."""
    try:
        current = await database.is_current(engine, MIGRATIONS)
    except SQLAlchemyError as error:
        raise NotReady from error
    if not current:
        raise NotReady
