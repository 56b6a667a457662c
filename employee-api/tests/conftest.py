import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from alembic.config import Config
from psycopg import sql
from sqlalchemy import make_url

from chassis.sql.migrate import migrate
from employee_api.database import MIGRATIONS
from shop_kit.employee_api import Api, Clock, StartApi, api_starter


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy, which is faster than migrating one for each test."""
    file = tmp_path_factory.mktemp("sqlite") / "employee-api.db"
    migrate(f"sqlite:///{file}", MIGRATIONS)
    return file


@pytest.fixture
def sqlite_url(migrated_sqlite: Path, tmp_path: Path) -> str:
    """The URL of a migrated, empty SQLite database."""
    shutil.copy(migrated_sqlite, tmp_path)
    return f"sqlite:///{tmp_path / migrated_sqlite.name}"


@pytest.fixture(scope="session")
def migrated_postgres(postgres_process: str) -> Iterator[str]:
    """The URL of a migrated PostgreSQL database for this test process."""
    name = f"employee_api_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_process, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    url = make_url(postgres_process).set(database=name).render_as_string(hide_password=False)
    migrate(url, MIGRATIONS)
    yield url
    with psycopg.connect(postgres_process, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def emptied_postgres(migrated_postgres: str) -> str:
    """The same database, with its tables emptied."""
    with psycopg.connect(migrated_postgres) as connection:
        connection.execute("TRUNCATE users, tasks, activities, failure_counts, stored_responses CASCADE")
    return migrated_postgres


@pytest.fixture(params=["sqlite_url", "emptied_postgres"], ids=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database: a test runs once with each kind."""
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables, of each kind; the folder of the SQLite file does not exist."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/new/folder/employee-api.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def alembic(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The configuration of Alembic's command line."""
    monkeypatch.setenv("DATABASE_URL", empty_url)
    return Config(Path(__file__).parents[1] / "alembic.ini")


@pytest.fixture
def start_api(database_url: str, clock: Clock) -> StartApi:
    """Starts an API with the given settings, on each kind of database."""
    return api_starter(database_url, clock)


@pytest.fixture
def start_api_on_sqlite(sqlite_url: str, clock: Clock) -> StartApi:
    """Starts an API with the given settings, where the kind of database does not matter."""
    return api_starter(sqlite_url, clock)


@pytest.fixture
async def api(start_api: StartApi) -> AsyncIterator[Api]:
    """An API with default settings, on each kind of database."""
    async with start_api() as running:
        yield running


@pytest.fixture
async def api_on_sqlite(start_api_on_sqlite: StartApi) -> AsyncIterator[Api]:
    """An API with default settings, where the kind of database does not matter."""
    async with start_api_on_sqlite() as running:
        yield running
