"""The spool's adapters: a SQLite file or a PostgreSQL database."""
