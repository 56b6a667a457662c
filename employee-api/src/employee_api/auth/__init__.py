"""Logins, sessions, API tokens, and the log of sign-ins."""
