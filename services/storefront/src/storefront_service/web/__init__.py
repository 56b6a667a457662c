"""What all pages need from HTTP: sessions, forms, templates, static files, headers."""
