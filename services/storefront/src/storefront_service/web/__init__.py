"""HTTP code that all pages share: sessions, forms, templates, static files and headers."""
