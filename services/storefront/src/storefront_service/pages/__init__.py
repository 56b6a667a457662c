"""The pages, one module per feature."""
