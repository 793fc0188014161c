"""Rows looked for in the service's own list."""
