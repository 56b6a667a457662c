import asyncio
import random
from concurrent.futures import ThreadPoolExecutor

from alembic import command
from alembic.config import Config
from sqlalchemy import column, create_engine, insert, inspect, literal_column, make_url, table

from chassis.sql.engine import open_engine
from chassis.sql.migrate import migrate
from employee_api.clock import utc_now
from employee_api.database import MIGRATIONS
from employee_api.users.repository import NewUser, UserRepository
from shop_lab.world.employee_api import Api

TABLES = {
    "activities",
    "api_tokens",
    "comments",
    "devices",
    "failure_counts",
    "sessions",
    "sign_ins",
    "single_use_links",
    "stored_responses",
    "tasks",
    "users",
}


def tables(url: str) -> set[str]:
    driver = "sqlite" if url.startswith("sqlite") else "postgresql+psycopg"
    engine = create_engine(make_url(url).set(drivername=driver))
    try:
        return set(inspect(engine).get_table_names()) - {"alembic_version"}
    finally:
        engine.dispose()


def test_migrating_creates_every_table(empty_url: str) -> None:
    migrate(empty_url, MIGRATIONS)
    assert tables(empty_url) == TABLES


def test_the_migrations_agree_with_the_models(empty_url: str, alembic: Config) -> None:
    migrate(empty_url, MIGRATIONS)
    command.check(alembic)


def test_every_migration_can_be_reverted_and_applied_again(empty_url: str, alembic: Config) -> None:
    migrate(empty_url, MIGRATIONS)
    command.downgrade(alembic, "base")
    assert tables(empty_url) == set()
    command.upgrade(alembic, "head")
    assert tables(empty_url) == TABLES


def test_white_space_around_stored_emails_is_removed_from_their_keys(empty_url: str, alembic: Config) -> None:
    command.upgrade(alembic, "0002")
    driver = "sqlite" if empty_url.startswith("sqlite") else "postgresql+psycopg"
    engine = create_engine(make_url(empty_url).set(drivername=driver))
    names = ("id", "name", "email", "email_key", "password_hash", "role", "color", "avatar", "dept", "created_at")
    users = table("users", *(column(name) for name in names))
    keys = [" ada@x", "bob@x", "\tbob@x", "eve@x "]
    with engine.begin() as connection:
        for number, key in enumerate(keys):
            row = dict.fromkeys(names, "") | {"id": f"{number:032x}", "email_key": key, "created_at": "2026-01-01"}
            connection.execute(insert(users).values({name: literal_column(f"'{row[name]}'") for name in names}))
    command.upgrade(alembic, "head")
    with engine.connect() as connection:
        stored = connection.exec_driver_sql("SELECT email_key FROM users ORDER BY id").scalars().all()
    engine.dispose()
    assert stored == ["ada@x", "bob@x", "\tbob@x", "eve@x"]


def test_replicas_may_migrate_concurrently(empty_url: str) -> None:
    with ThreadPoolExecutor(4) as replicas:
        list(replicas.map(lambda _: migrate(empty_url, MIGRATIONS), range(4)))
    assert tables(empty_url) == TABLES


def test_migrating_again_preserves_stored_rows(empty_url: str) -> None:
    async def add_and_count(email: str) -> int:
        migrate(empty_url, MIGRATIONS)
        engine = open_engine(empty_url)
        users = UserRepository(engine, utc_now, random.SystemRandom())
        await users.add(NewUser("Ada", email, "hash", "ceo", ""), None)
        count = len(await users.list_all())
        await engine.dispose()
        return count

    assert [asyncio.run(add_and_count(email)) for email in ("a@x", "b@x")] == [1, 2]


async def test_readiness_requires_that_the_migrations_have_run(api: Api) -> None:
    assert (await api.client.get("/readyz")).json() == {"status": "ok"}
    async with api.engine.begin() as connection:
        await connection.exec_driver_sql("ALTER TABLE alembic_version RENAME TO hidden")
    try:
        response = await api.client.get("/readyz")
        assert (response.status_code, response.json()) == (503, {"error": "Not ready"})
    finally:
        async with api.engine.begin() as connection:
            await connection.exec_driver_sql("ALTER TABLE hidden RENAME TO alembic_version")


async def test_a_process_that_shuts_down_is_alive_but_not_ready(api_on_sqlite: Api) -> None:
    api_on_sqlite.service.is_draining = True
    assert (await api_on_sqlite.client.get("/readyz")).status_code == 503
    assert (await api_on_sqlite.client.get("/healthz")).json() == {"status": "ok"}
