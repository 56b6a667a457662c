"""Tasks and comments on them."""
