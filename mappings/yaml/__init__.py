"""Mapping files loaded from YAML: positions, includes, lookup files, and every problem of a file at once."""
