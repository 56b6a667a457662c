"""The manifest on a SQLite file or a PostgreSQL database."""
