"""The operations, in groups that are served by the same parts."""
