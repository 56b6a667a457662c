"""Alembic's own command line (`alembic check`, `alembic revision --autogenerate`); the service migrates without it."""

import os

from alembic import context
from sqlalchemy import NullPool, create_engine

from chassis.database import libpq_url, sqlite_path
from employee_api import models


def _address() -> str:
    url = os.environ.get("DATABASE_URL", "sqlite:///.shop/employee-api.db")
    return url if sqlite_path(url) else libpq_url(url).replace("postgresql://", "postgresql+psycopg://", 1)


with create_engine(_address(), poolclass=NullPool).connect() as connection:
    context.configure(
        connection=connection, target_metadata=models.User.metadata, render_as_batch=True, compare_server_default=True
    )
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()
