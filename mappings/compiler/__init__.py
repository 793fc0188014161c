"""The compiler: a mapping file becomes a RowMapper, a pure function from source rows to outcomes.

Everything that can be decided once for a file is decided here: names are resolved, patterns and date formats compiled.
"""
