"""Shopping carts, in memory, in Valkey, or in a SQL database."""
