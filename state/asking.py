"""Asking for many rows in one statement, by lists of names whose lengths are few.

Which rows, and what of them, is the statement's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

_STEP = 256

T = TypeVar("T")


def rounded(names: Collection[T]) -> Sequence[T]:
    """Return the names, the last one repeated until there are a round number of them: a power of two, or a multiple of 256.

    A statement with a list of another length is another statement, and both the driver and SQLite keep the last hundred and
    more of them, each as large as its list is long: 50 MB of a read whose chunks all ask for another number of rows.
    """
    listed = list(names)
    count = len(listed)
    wanted = 1 << (count - 1).bit_length() if count <= _STEP else -(-count // _STEP) * _STEP
    return listed + listed[-1:] * (wanted - count)
