"""Databases: what their drivers differ in, and tables or queries as a source."""
