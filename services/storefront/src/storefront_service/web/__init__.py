"""HTTP for all pages: sessions, forms, templates, static files, headers."""
