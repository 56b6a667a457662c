"""The pages, by feature."""
