"""The ledger, in a SQLite file or a PostgreSQL database."""
