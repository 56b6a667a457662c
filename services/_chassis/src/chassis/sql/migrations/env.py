"""Alembic runs this for an upgrade, on a connection of `chassis.sql.upgrade` with a transaction in progress."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], render_as_batch=True)
context.run_migrations()
