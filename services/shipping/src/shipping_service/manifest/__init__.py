"""The manifest, in a SQLite file or a PostgreSQL database."""
