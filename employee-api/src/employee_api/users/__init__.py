"""Employees: registration, listing, adding and deleting."""
