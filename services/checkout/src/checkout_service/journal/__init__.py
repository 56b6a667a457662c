"""The journal, in a SQLite file or a PostgreSQL database."""
