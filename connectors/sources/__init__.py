"""Rows in: one module per kind of source, all keeping the promise of `contract`."""
