"""The mapping file as pydantic models: feed, source, values, conditions, rules, publishing policy.

The docstrings of models and fields are the text of the reference pages and of the published JSON Schema.
"""
