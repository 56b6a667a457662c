"""The log of changes to users and tasks."""
