"""The journal on a SQLite file or a PostgreSQL database."""
