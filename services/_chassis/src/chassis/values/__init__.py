"""Value types and validation shared by all services: amounts, fields, pages, keys."""
