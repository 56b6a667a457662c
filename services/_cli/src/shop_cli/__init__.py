"""The shop command."""
