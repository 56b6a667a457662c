"""Login and logout, sessions, and the authorization of requests."""
