"""The migrations, and connections for worker threads; `chassis.database` opens the pool and migrates."""

from pathlib import Path

from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import NullPool

MIGRATIONS = Path(__file__).parent / "migrations"


def blocking_engine(engine: AsyncEngine) -> Engine:
    """Return an engine for the same database whose connections are opened and closed by the thread that uses them."""
    url = engine.url if engine.dialect.name == "postgresql" else engine.url.set(drivername="sqlite")
    return create_engine(url, poolclass=NullPool)
