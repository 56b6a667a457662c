"""The shipment manifest, stored in a SQLite file or a PostgreSQL database."""
