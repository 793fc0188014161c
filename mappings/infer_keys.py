"""Which columns may identify a row for life: those whose values are all different, identifiers before addresses before words.

Never a column that merely counts the rows, nor a title or a date where an identifier is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mappings.infer_columns import ColumnSeen
from mappings.infer_words import Role

_MOST_PARTS = 4
_TELLING = (Role.START, Role.CLOCK, Role.VENUE, Role.CITY, Role.END, Role.TITLE, Role.URL)
"""What tells one row from another where no identifier does, the most telling first."""


@dataclass(frozen=True, slots=True)
class KeyGuess:
    """The columns of a key. `clashes`: rows that share their key with another; `why` and `is_sure` are told to the author."""

    columns: tuple[ColumnSeen, ...]
    clashes: int
    why: str
    is_sure: bool


def guess_key(columns: Sequence[ColumnSeen], roles: Mapping[Role, ColumnSeen]) -> KeyGuess:
    """Return the best key that the sample allows; there is always one to look at."""
    single = next((column for column in _singles(columns) if column.is_unique), None)
    if single is not None:
        return _single(single)
    different = _different_rows(columns)
    grown = [_grown(base, roles, different) for base in _bases(columns, roles)]
    if not grown:
        fullest = max(columns, key=lambda column: (not column.is_nameless, len(column.counts)))
        return _several((fullest,), _clashes((fullest,), different), len(different))
    best = min(grown, key=lambda parts: _clashes(parts, different))
    return _several(best, _clashes(best, different), len(different))


def _singles(columns: Sequence[ColumnSeen]) -> Iterator[ColumnSeen]:
    """Yield the columns that may be a key alone: identifiers by name, then codes, then addresses of the event."""
    yield from sorted(_named_ids(columns), key=lambda column: (column.is_counting, -column.roles.get(Role.ID, 0)))
    usable = [
        column for column in columns if not column.is_nameless and not column.is_counting and Role.ASIDE not in column.roles
    ]
    yield from (column for column in usable if column.is_code and not column.is_number and not column.urls)
    yield from (column for column in usable if column.urls >= 1 and Role.IMAGE not in column.roles and not column.pictures)


def _named_ids(columns: Sequence[ColumnSeen]) -> list[ColumnSeen]:
    return [column for column in columns if _is_named_id(column)]


def _is_named_id(column: ColumnSeen) -> bool:
    is_ours = not column.is_nameless and Role.ASIDE not in column.roles
    return Role.ID in column.roles and is_ours and column.times is None and bool(column.filled)


def _single(column: ColumnSeen) -> KeyGuess:
    count = len(column.cells)
    if column.is_counting:
        why = f'the values of "{column.name}" are all different, but they count the rows: are they the partner\'s, for life?'
        return KeyGuess((column,), 0, why, is_sure=False)
    why = f'all {count:,} values of "{column.name}" are there and different'
    if column.urls:
        return KeyGuess((column,), 0, f"{why}; no identifier is: an address that changes makes the row look new", is_sure=False)
    return KeyGuess((column,), 0, why, is_sure=count >= 3 and Role.ID in column.roles)


def _bases(columns: Sequence[ColumnSeen], roles: Mapping[Role, ColumnSeen]) -> Iterator[tuple[ColumnSeen, ...]]:
    """Yield what a key of several columns may begin with, the best first: identifiers, the event's page, its title and day."""
    ids = [column for column in _named_ids(columns) if not column.is_counting]
    if ids:
        yield (max(ids, key=lambda column: len(column.counts)),)
        return
    if Role.URL in roles and roles[Role.URL].is_full:
        yield (roles[Role.URL],)
    words = tuple(roles[role] for role in (Role.TITLE, Role.START) if role in roles)
    if words:
        yield words


def _grown(base: tuple[ColumnSeen, ...], roles: Mapping[Role, ColumnSeen], rows: Sequence[int]) -> tuple[ColumnSeen, ...]:
    """Add one telling column after the other, as long as rows clash and the next tells some of them apart."""
    parts, clashes = base, _clashes(base, rows)
    for column in (roles[role] for role in _TELLING if role in roles):
        if not clashes or len(parts) >= _MOST_PARTS:
            break
        fewer = _clashes((*parts, column), rows) if column not in parts else clashes
        if fewer < clashes:
            parts, clashes = (*parts, column), fewer
    return parts


def _different_rows(columns: Sequence[ColumnSeen]) -> list[int]:
    """Return the positions of rows that differ in more than a number that counts them: copies are one row."""
    telling = [column.cells for column in columns if not column.is_nameless and not column.is_counting]
    return list({cells: position for position, cells in enumerate(zip(*telling, strict=True))}.values())


def _clashes(parts: Sequence[ColumnSeen], rows: Sequence[int]) -> int:
    """Return how many rows share their key with an earlier one."""
    return len(rows) - len({tuple(part.cells[row].strip() for part in parts) for row in rows})


def _several(parts: tuple[ColumnSeen, ...], clashes: int, total: int) -> KeyGuess:
    names = " and ".join(f'"{part.name}"' for part in parts)
    if clashes:
        why = f"{clashes:,} of {total:,} different rows share {names} with another: ask the partner for an identifier"
        return KeyGuess(parts, clashes, why, is_sure=False)
    told = f"the values of {names} are different in all {total:,} rows"
    if any(map(_is_named_id, parts)):
        return KeyGuess(parts, 0, f"{told}, and not those of one column alone", is_sure=False)
    return KeyGuess(parts, 0, f"no column is an identifier; {told}; where they are edited, the row looks new", is_sure=False)
