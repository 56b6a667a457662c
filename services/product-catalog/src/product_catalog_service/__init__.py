"""The products on sale."""
