"""Serves Alembic's command line (`alembic check`, `alembic revision --autogenerate`). The API doesn't use this file."""

from alembic import context

from chassis.settings import load_one
from chassis.sql.engine import open_engine
from employee_api import models
from employee_api.database import blocking_engine
from employee_api.settings import EmployeeApiSettings

engine = blocking_engine(open_engine(load_one(EmployeeApiSettings, "database_url").get_secret_value()))
with engine.connect() as connection:
    context.configure(
        connection=connection, target_metadata=models.User.metadata, render_as_batch=True, compare_server_default=True
    )
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()
