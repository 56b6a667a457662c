"""The journal's adapters: SQL on a SQLite file or a PostgreSQL database."""
