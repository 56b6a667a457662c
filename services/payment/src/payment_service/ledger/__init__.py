"""The ledger on a SQLite file or a PostgreSQL database."""
