"""Employees and their tasks, over HTTP."""
