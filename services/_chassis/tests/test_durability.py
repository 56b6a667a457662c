"""A crash of the machine cannot be tested here; these are the settings by which databases survive it."""

from pathlib import Path

from chassis.sql.database import open_database
from chassis.sql.sqlite import connect

FULL = 2


def test_a_commit_to_sqlite_is_flushed(tmp_path: Path) -> None:
    connection = connect(tmp_path / "any.db")
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    connection.close()
    assert level == FULL


async def test_a_commit_to_postgresql_is_flushed(postgres_url: str) -> None:
    async with open_database(postgres_url, unavailable=OSError) as server:
        (row,) = await server.read("SHOW synchronous_commit", {})
    assert row["synchronous_commit"] == "on"
