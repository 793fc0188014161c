"""Loads mapping files from YAML: positions, includes, lookup files, and all problems of a file at once."""
