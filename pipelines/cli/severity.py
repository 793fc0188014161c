"""Of several exit codes, the one that a command ends with. What each code means is `pipelines.outcomes`'."""

from __future__ import annotations

from collections.abc import Collection

SEVERITY = (130, 2, 3, 5, 1, 4, 6, 0)
"""The first of these that occurred is the command's."""


def worst(codes: Collection[int]) -> int:
    """Return the gravest of several exit codes, 0 if there are none."""
    return next((code for code in SEVERITY if code in codes), 0)
