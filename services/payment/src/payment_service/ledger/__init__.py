"""The payment ledger, stored in a SQLite file or a PostgreSQL database."""
