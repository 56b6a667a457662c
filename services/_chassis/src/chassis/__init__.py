"""Infrastructure shared by all services, one module per concern."""
