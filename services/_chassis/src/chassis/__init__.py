"""Infrastructure that all services share, one module per concern."""
