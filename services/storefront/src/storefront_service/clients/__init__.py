"""Adapters: the services that pages read from, and the trace store."""
