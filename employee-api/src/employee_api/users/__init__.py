"""Employees: their accounts, registration, invitations and passwords."""
