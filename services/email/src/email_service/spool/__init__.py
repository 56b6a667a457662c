"""The spool, which stores messages in a SQLite file or a PostgreSQL database."""
