"""The order journal, stored in a SQLite file or a PostgreSQL database."""
