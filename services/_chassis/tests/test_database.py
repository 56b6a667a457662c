import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from chassis.sql.engine import is_current, open_engine
from chassis.sql.migrate import STORED_REVISION, migrate
from chassis.sql.settings import parse_database_url
from chassis.sql.url import DatabaseUnusable, libpq_url, sqlite_path
from shop_kit.databases import execute

FIRST = """
revision = "0001"
down_revision = None

from alembic import op
import sqlalchemy as sa

def upgrade():
    op.create_table("notes", sa.Column("id", sa.Integer, primary_key=True), sa.Column("text", sa.Text, unique=True))
"""
SECOND = """
revision: str = "0002"
down_revision: str | None = "0001"

from alembic import op
import sqlalchemy as sa

def upgrade():
    with op.batch_alter_table("notes") as notes:
        notes.add_column(sa.Column("author", sa.Text))
    op.execute("INSERT INTO notes (text) VALUES ('migrated')")
"""
FAILING = """
revision = "0003"
down_revision = "0002"

from alembic import op

def upgrade():
    op.execute("INSERT INTO notes (text) VALUES ('half')")
    op.execute("INSERT INTO nowhere VALUES (1)")
"""

SERVING = """
import asyncio, sys
from pathlib import Path
from chassis.sql.opening import open_database
from chassis.sql.migrate import migrate
from chassis.sql.settings import parse_database_url

async def main(url, migrations):
    parse_database_url(url)
    migrate(url, Path(migrations))
    async with open_database(url, unavailable=OSError) as database:
        await database.read("SELECT 1", {})

asyncio.run(main(*sys.argv[1:]))
print(*{"alembic", "psycopg", "sqlalchemy", "sqlite3"} & set(sys.modules))
"""


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    (folder / "versions" / "0001_notes.py").write_text(FIRST)
    (folder / "versions" / "0002_authors.py").write_text(SECOND)
    return folder


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/folder/notes.db"
    postgres: str = request.getfixturevalue("postgres_url")
    return postgres


@pytest.fixture
async def opened(url: str, migrations: Path) -> AsyncIterator[AsyncEngine]:
    with ThreadPoolExecutor(4) as replicas:
        list(replicas.map(lambda _: migrate(url, migrations), range(4)))
    engine = open_engine(url)
    yield engine
    await engine.dispose()


async def texts(engine: AsyncEngine) -> list[str]:
    async with engine.connect() as connection:
        return list((await connection.exec_driver_sql("SELECT text FROM notes ORDER BY id")).scalars())


async def test_concurrent_migrations_run_once(opened: AsyncEngine) -> None:
    assert await texts(opened) == ["migrated"]


async def test_a_failed_migration_is_rolled_back(url: str, migrations: Path, opened: AsyncEngine) -> None:
    (migrations / "versions" / "0003_failing.py").write_text(FAILING)
    with pytest.raises(Exception, match="nowhere"):
        migrate(url, migrations)
    assert execute(url, STORED_REVISION) == [("0002",)]
    assert await texts(opened) == ["migrated"]


async def test_a_database_is_current_unless_a_migration_is_pending_and_one_of_a_newer_release_is_not_changed(
    url: str, migrations: Path, opened: AsyncEngine
) -> None:
    assert await is_current(opened, migrations)
    (migrations / "versions" / "0003_more.py").write_text('revision = "0003"\ndown_revision = "0002"\n')
    assert not await is_current(opened, migrations)
    async with opened.begin() as connection:
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0099'")
    migrate(url, migrations)
    assert execute(url, STORED_REVISION) == [("0099",)]
    assert await is_current(opened, migrations)


def test_two_newest_revisions_are_an_error(tmp_path: Path, migrations: Path) -> None:
    (migrations / "versions" / "0002_other.py").write_text('revision = "0002b"\ndown_revision = "0001"\n')
    with pytest.raises(ValueError, match="one newest revision"):
        migrate(f"sqlite:///{tmp_path}/notes.db", migrations)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
@pytest.mark.parametrize("rest", ["user:secret@host:1/name?sslmode=require", "u:a%40b@one:1,[::1]:2/n?host=/x,y", "/n"])
def test_every_form_of_a_postgresql_url_is_accepted(scheme: str, rest: str) -> None:
    parse_database_url(f"{scheme}://{rest}")
    assert libpq_url(f"{scheme}://{rest}") == f"postgresql://{rest}"


async def test_a_server_is_found_among_several_hosts(postgres_url: str, migrations: Path, tmp_path: Path) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(postgres_url)
    hosts = f"host={tmp_path},{parts['host']}&port=1,{parts.get('port', 5432)}&password={parts.get('password', '')}"
    url = f"postgresql://{parts['user']}@/{parts['dbname']}?{hosts}&target_session_attrs=read-write"
    migrate(url, migrations)
    engine = open_engine(url)
    assert await is_current(engine, migrations)
    await engine.dispose()


NOT_ENCODED = ("sec@ret@host/n", "sec/ret@host/n", "sec ret@host/n", "secret@[::1/n", "secret@host/n?secret=1")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        *(
            (url, "begins with sqlite:/// or postgresql://")
            for url in ("mysql://user:secret@host/name", "secret", "", "sqlite://", "sqlite:///")
        ),
        *((f"postgresql://user:{rest}", "percent-encoded") for rest in NOT_ENCODED),
        ("postgresql://user:secret@host:secret/name", "not a number"),
        *(
            (f"postgresql://host/name?{parameter}=secret", f"^the parameter {parameter} is ")
            for parameter in ("sslmode", "target_session_attrs", "connect_timeout")
        ),
    ],
)
def test_any_other_url_is_rejected_without_quoting_it(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as rejected:
        parse_database_url(url)
    assert not re.search("sec|ret|host", str(rejected.value))


def test_no_engine_is_opened_for_any_other_url() -> None:
    with pytest.raises(ValueError, match="begins with sqlite:/// or postgresql://"):
        open_engine("mysql://user:secret@host/name")


async def test_writers_wait_for_each_other_instead_of_failing(opened: AsyncEngine) -> None:
    async def count_and_add() -> None:
        async with opened.begin() as connection:
            count = (await connection.exec_driver_sql("SELECT count(*) FROM notes")).scalar_one()
            await asyncio.sleep(0)
            await connection.execute(text("INSERT INTO notes (author) VALUES (:count)"), {"count": str(count)})

    await asyncio.gather(*(count_and_add() for _ in range(30)))
    assert len(await texts(opened)) == 31


async def test_a_writer_does_not_block_readers(opened: AsyncEngine) -> None:
    reads = opened.execution_options(isolation_level="AUTOCOMMIT")
    async with opened.begin() as writer:
        await writer.exec_driver_sql("INSERT INTO notes (text) VALUES ('not yet')")
        async with reads.connect() as reader:
            assert (await reader.exec_driver_sql("SELECT count(*) FROM notes")).scalar_one() == 1


async def test_errors_do_not_contain_parameter_values(opened: AsyncEngine) -> None:
    adding = text("INSERT INTO notes (text, author) VALUES (:text, :author)")
    async with opened.connect() as connection:
        with pytest.raises(IntegrityError) as failure:
            await connection.execute(adding, {"text": "migrated", "author": "secret"})
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_sqlite_file_uses_wal_and_enforces_foreign_keys(opened: AsyncEngine) -> None:
    pragmas = {"journal_mode": "wal", "foreign_keys": 1}
    async with opened.connect() as connection:
        found = {name: (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one() for name in pragmas}
    assert found == pragmas


def test_a_serving_process_imports_its_driver_alone(url: str, migrations: Path) -> None:
    migrate(url, migrations)
    command = [sys.executable, "-c", SERVING, url, str(migrations)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["sqlite3" if sqlite_path(url) else "psycopg"]


def test_a_file_that_is_not_a_database_is_an_error(tmp_path: Path, migrations: Path) -> None:
    (tmp_path / "notes.db").write_text("not a database, but long enough to be recognized as none" * 100)
    with pytest.raises(DatabaseUnusable, match=r"^DATABASE_URL: .*notes.db: file is not a database$"):
        migrate(f"sqlite:///{tmp_path}/notes.db", migrations)
