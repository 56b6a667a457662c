"""Exports of tables as CSV files."""
