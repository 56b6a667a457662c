"""SQL databases: URLs, migrations, SQLite and PostgreSQL."""
