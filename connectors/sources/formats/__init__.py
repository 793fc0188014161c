"""Formats of files: one module per format that splits a file into rows, and shared parts."""
