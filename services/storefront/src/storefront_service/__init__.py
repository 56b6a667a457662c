"""The web shop: pages, sessions and forms."""
