"""Compiler from a mapping file to a RowMapper, a pure function from source rows to outcomes.

It resolves names and compiles patterns and date formats once per file.
"""
