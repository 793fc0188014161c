"""The mapping file as types: feed, source, values, conditions, rules, publishing policy.

The docstrings of fields and models are the text of the reference pages and of the published JSON Schema.
"""
