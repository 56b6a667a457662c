"""`python -m employee_api` serves; `migrate` brings the database up to date; `add-user` adds a user."""

import argparse
import asyncio
import os
import random
import sys
from getpass import getpass

import structlog
import uvloop
from sqlalchemy.ext.asyncio import AsyncEngine

from chassis import database, logging, otlp
from chassis.errors import DomainError
from chassis.settings import load
from chassis.telemetry import Telemetry
from employee_api import process
from employee_api.composition import MIGRATIONS, compose, now
from employee_api.passwords import Passwords
from employee_api.repository import NewUser, UserRepository
from employee_api.settings import AuthMode, EmployeeApiSettings

log = structlog.get_logger()


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m employee_api", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("migrate", help="run the database's migrations and end")
    adding = commands.add_parser("add-user", help="add a user, such as the first leader; reads the password from stdin")
    adding.add_argument("--name", required=True)
    adding.add_argument("--email", required=True)
    adding.add_argument("--role", required=True)
    given = parser.parse_args()
    settings = load(EmployeeApiSettings)
    if given.command is None:
        _serve(settings)
        return
    logging.configure("employee-api", level=settings.log_level)
    database.migrate(settings.database_url.get_secret_value(), MIGRATIONS)
    if given.command == "add-user":
        asyncio.run(_add_user(settings, given))


def _serve(settings: EmployeeApiSettings) -> None:
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http,database")  # names that will stay
    measured = otlp.configure("employee-api")
    logging.configure("employee-api", level=settings.log_level, logger=measured.logger)
    if settings.auth_mode is AuthMode.OFF:
        log.warning("AUTH_MODE is off: everybody who reaches this API may do everything")
    url = settings.database_url.get_secret_value()
    database.migrate(url, MIGRATIONS)
    try:
        uvloop.run(_run(settings, measured))
    except OSError as error:
        sys.exit(str(error))
    finally:
        measured.shutdown()


async def _run(settings: EmployeeApiSettings, measured: Telemetry) -> None:
    engine = database.engine(settings.database_url.get_secret_value())
    if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        _trace_sql(engine)
    composed = compose(settings, engine, Passwords(settings.password_threads), measured)
    await process.serve(composed.app, settings, composed.stopping)


def _trace_sql(engine: AsyncEngine) -> None:
    from opentelemetry.instrumentation.sqlalchemy import SQLAlchemyInstrumentor  # noqa: PLC0415 - only when exporting

    # It would refuse SQLAlchemy 2.1 without a word, though it works.
    SQLAlchemyInstrumentor().instrument(engine=engine.sync_engine, skip_dep_check=True)


async def _add_user(settings: EmployeeApiSettings, given: argparse.Namespace) -> None:
    password = getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    engine = database.engine(settings.database_url.get_secret_value())
    try:
        password_hash = await Passwords(1).hash(password)
        users = UserRepository(engine, now, random.SystemRandom())
        user = await users.add(NewUser(given.name, given.email, password_hash, given.role, ""), None)
    except DomainError as error:
        sys.exit(error.message)
    finally:
        await engine.dispose()
    log.info("added", user_id=str(user.id), role=user.role)


if __name__ == "__main__":
    main()
