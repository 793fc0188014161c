"""Rows of one key found together, wherever they stand in the source: in memory, or as they come where the file is sorted.

What becomes of rows that were found together is `engine`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from mappings.errors import ConfigError
from mappings.vocabulary import RowKey, SourceRow

HELD_AT_MOST = 100_000
"""So many rows wait in memory for the end of the file; some 100 MB."""


class TooManyHeldError(ConfigError):
    """More rows wait for others of their key than memory should hold."""


@dataclass(frozen=True, slots=True)
class Lot:
    """Rows of one key in the order of the source; a row that no other can join stands alone, without a key."""

    key: RowKey | None
    rows: tuple[SourceRow, ...]


def lots(
    rows: Iterable[SourceRow], key_of: Callable[[SourceRow], RowKey | None], *, is_sorted: bool, held_at_most: int = HELD_AT_MOST
) -> Iterator[Lot]:
    """Yield every row in exactly one lot. `key_of` gives the key of a row that others may join, None for any other.

    Raises:
        TooManyHeldError: the file is not said to be sorted, and is too long to be held.
    """
    return _adjacent(rows, key_of) if is_sorted else _far_apart(rows, key_of, held_at_most)


def _adjacent(rows: Iterable[SourceRow], key_of: Callable[[SourceRow], RowKey | None]) -> Iterator[Lot]:
    for key, together in groupby(rows, key_of):
        if key is None:
            yield from (Lot(None, (row,)) for row in together)
        else:
            yield Lot(key, tuple(together))


def _far_apart(rows: Iterable[SourceRow], key_of: Callable[[SourceRow], RowKey | None], held_at_most: int) -> Iterator[Lot]:
    held: dict[RowKey, list[SourceRow]] = {}
    count = 0
    for row in rows:
        key = key_of(row)
        if key is None:
            yield Lot(None, (row,))
            continue
        held.setdefault(key, []).append(row)
        count += 1
        if count > held_at_most:
            raise TooManyHeldError(
                f"rows of one key are put together, so all have to be held to the end of the file: more than {held_at_most:,}",
                hint="have the file sorted by its key, and write `sorted: true` beside that rule",
            )
    yield from (Lot(key, tuple(together)) for key, together in held.items())
