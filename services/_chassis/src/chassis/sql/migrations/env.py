"""Alembic runs this module for an upgrade. `chassis.sql.upgrade` has opened the connection and begun a transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], render_as_batch=True)
context.run_migrations()
