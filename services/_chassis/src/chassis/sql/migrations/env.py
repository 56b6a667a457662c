"""What Alembic runs for an upgrade: `chassis.sql.upgrade` hands it the connection, with a transaction in progress."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], render_as_batch=True)
context.run_migrations()
