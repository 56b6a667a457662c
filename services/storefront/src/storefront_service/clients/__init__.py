"""Clients of the services that pages read from, and of the trace store."""
