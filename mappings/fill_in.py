"""The words by which a drafted mapping says that something is still to be filled in: written by `infer_file`, found by `lint`."""

from __future__ import annotations

FILL_IN = "fill-in"
"""Stands for a text that only the author can know: a channel, a classification, a place."""
FILL_IN_NAME = "fill_in_"
"""A named value that begins so stands for something that had to have some value."""
