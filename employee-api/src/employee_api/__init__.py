"""HTTP API for employees, their tasks and CSV exports."""
