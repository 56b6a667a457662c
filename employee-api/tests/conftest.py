import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from chassis import database
from employee_api.composition import MIGRATIONS
from shop_testkit.employee_api import Api, Clock, Start, start_on


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file to copy: faster than to migrate for each test."""
    file = tmp_path_factory.mktemp("sqlite") / "employee-api.db"
    database.migrate(f"sqlite:///{file}", MIGRATIONS)
    return file


@pytest.fixture
def sqlite_url(migrated_sqlite: Path, tmp_path: Path) -> str:
    """The URL of a migrated SQLite file without rows."""
    shutil.copy(migrated_sqlite, tmp_path)
    return f"sqlite:///{tmp_path / migrated_sqlite.name}"


@pytest.fixture(scope="session")
def migrated_postgres(postgres_process: str) -> Iterator[str]:
    """The URL of a migrated PostgreSQL database for this test process."""
    name = f"employee_api_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_process, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    url = make_url(postgres_process).set(database=name).render_as_string(hide_password=False)
    database.migrate(url, MIGRATIONS)
    yield url
    with psycopg.connect(postgres_process, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def emptied_postgres(migrated_postgres: str) -> str:
    """The same database without rows."""
    with psycopg.connect(migrated_postgres) as connection:
        connection.execute("TRUNCATE users, tasks, comments, activities, sessions")
    return migrated_postgres


@pytest.fixture(params=["sqlite_url", "emptied_postgres"], ids=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A database without rows, once of each kind."""
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture
def start(database_url: str, clock: Clock) -> Start:
    """Starts an API with settings, on each kind of database."""
    return start_on(database_url, clock)


@pytest.fixture
def start_on_sqlite(sqlite_url: str, clock: Clock) -> Start:
    """Starts an API with settings where the kind of database can't matter."""
    return start_on(sqlite_url, clock)


@pytest.fixture
async def api(start: Start) -> AsyncIterator[Api]:
    """The API as it is by default, on each kind of database."""
    async with start() as running:
        yield running


@pytest.fixture
async def api_on_sqlite(start_on_sqlite: Start) -> AsyncIterator[Api]:
    """The API as it is by default, where the kind of database can't matter."""
    async with start_on_sqlite() as running:
        yield running
