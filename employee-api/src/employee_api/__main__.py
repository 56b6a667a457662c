"""`python -m employee_api` serves the API. With `migrate`, it applies migrations; with `add-user`, it adds a user."""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from getpass import getpass
from typing import Annotated

import structlog
from starlette.applications import Starlette

from chassis.http import server as http_server
from chassis.http.server import HttpService
from chassis.settings import Parse, load
from chassis.sql.engine import open_engine
from chassis.sql.migrate import migrate
from chassis.sql.url import DatabaseUnusable
from chassis.telemetry import logging
from chassis.values.hosts import LOOPBACK, parse_host_patterns
from employee_api import app
from employee_api.access import MANAGEMENT_ROLES
from employee_api.database import MIGRATIONS, transaction, utc_now
from employee_api.errors import ApiError
from employee_api.http.inputs import JsonBody
from employee_api.settings import PASSWORD_MIN_LENGTH, AuthMode, EmployeeApiSettings
from employee_api.users.passwords import PasswordHasher
from employee_api.users.registration import NewUserPreparer
from employee_api.users.repository import add_user
from employee_api.users.schemas import UserInput

log = structlog.get_logger()

# If the database accepts no connection for this long at startup, exit and let the supervisor restart the process.
_CONNECT_SECONDS = 1.5


class ProcessSettings(EmployeeApiSettings):
    # By default, the Host header must name a loopback host. Otherwise, web pages could reach the API by DNS rebinding.
    allowed_hosts: Annotated[frozenset[str], Parse(parse_host_patterns)] = LOOPBACK


def main() -> None:
    arguments = _parse_arguments()
    if arguments.command == "add-user":
        _add_user(load(EmployeeApiSettings), arguments)
    else:  # `http_server.run` also handles the command `migrate`
        http_server.run("employee-api", ProcessSettings, build, migrations=MIGRATIONS, connect_seconds=_CONNECT_SECONDS)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m employee_api", description="Serves the API, unless there is a command."
    )
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("migrate", help="apply pending database migrations and exit")
    add_user = commands.add_parser(
        "add-user",
        help="add a user, such as the first with a management role; the password comes from a prompt or stdin",
    )
    add_user.add_argument("--name", required=True)
    add_user.add_argument("--email", required=True)
    add_user.add_argument(
        "--role", required=True, help=f"any text; management roles are {', '.join(sorted(MANAGEMENT_ROLES))}"
    )
    return parser.parse_args()


@asynccontextmanager
async def build(settings: EmployeeApiSettings, service: HttpService) -> AsyncIterator[Starlette]:
    """Build the application. After the server has drained, close the database engine and the hashing threads."""
    if settings.auth_mode is AuthMode.OFF:
        log.warning("AUTH_MODE is off: every client has full access")
    engine = open_engine(settings.database_url.get_secret_value(), service.telemetry)
    password_hasher = PasswordHasher(settings.password_threads, service.telemetry)
    service.readiness_checks.append(partial(app.check_database, engine))
    try:
        yield app.build(settings, engine, password_hasher, service.telemetry)
    finally:
        password_hasher.close()
        await engine.dispose()


def _add_user(settings: EmployeeApiSettings, arguments: argparse.Namespace) -> None:
    logging.configure("employee-api", level=settings.log_level)
    try:
        migrate(settings.database_url.get_secret_value(), MIGRATIONS, connect_seconds=_CONNECT_SECONDS)
    except DatabaseUnusable as error:
        sys.exit(str(error))
    password = getpass() if sys.stdin.isatty() else os.fsdecode(sys.stdin.buffer.readline()).rstrip("\r\n")
    fields = {"name": arguments.name, "email": arguments.email, "role": arguments.role, "password": password}
    try:
        asyncio.run(_store_user(settings, JsonBody(UserInput).validate(fields)))
    except ApiError as error:
        sys.exit(error.message)


async def _store_user(settings: EmployeeApiSettings, new: UserInput) -> None:
    engine = open_engine(settings.database_url.get_secret_value())
    try:
        # In every mode, because whoever adds the first manager is about to enforce authorization.
        shortest = settings.password_min_length or PASSWORD_MIN_LENGTH
        new_users = NewUserPreparer(PasswordHasher(1), shortest, settings.breached_passwords_file)
        password_hash = await new_users.hash(new.password)
        async with transaction(engine) as connection:
            user = await add_user(connection, new, password_hash, None, utc_now())
    finally:
        await engine.dispose()
    log.info("added", user_id=str(user.id), role=user.role)


if __name__ == "__main__":
    main()
