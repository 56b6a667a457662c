"""The manifest's adapters: a SQLite file or a PostgreSQL database."""
