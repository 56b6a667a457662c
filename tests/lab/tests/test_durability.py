"""A crash of the machine cannot be tested here; these are the settings by which databases survive it."""

from pathlib import Path

from chassis.sql.postgres import open_postgres
from chassis.sql.sqlite import connect

FULL = 2


def test_a_commit_to_sqlite_is_flushed(tmp_path: Path) -> None:
    connection = connect(tmp_path / "any.db")
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    connection.close()
    assert level == FULL


async def test_a_commit_to_postgresql_is_flushed(postgres_url: str) -> None:
    async with open_postgres(postgres_url) as server:
        ((level,),) = await server.fetch("SHOW synchronous_commit", {})
    assert level == "on"
