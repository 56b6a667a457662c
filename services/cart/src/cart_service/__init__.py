"""Shopping carts, stored in memory, in Valkey, or in a SQL database."""
