"""Which column plays which part of an event, and which columns identify a row: by their names first, if the cells fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from mappings.draft.columns import ColumnSeen, Role
from mappings.draft.formats import TimesSeen
from mappings.refusals import Refusal
from mappings.steps.step import Run
from mappings.steps.zones import NamedZone

Surety = Literal["sure", "likely", "unsure"]
Fits = Callable[[ColumnSeen], bool]
_FEW = 40


@dataclass(frozen=True, slots=True)
class RoleGuess:
    """The column that seems to play a part, how sure that is, and why."""

    column: ColumnSeen
    surety: Surety
    why: str


def _is_day(column: ColumnSeen) -> bool:
    return column.times is not None and not column.times.is_time


def _is_zone(column: ColumnSeen) -> bool:
    return bool(column.filled) and all(_names_a_zone(text) for text in list(column.counts)[:_FEW])


def _names_a_zone(text: str) -> bool:
    """As the step `zone` reads it, by which the draft reads the column."""
    try:
        return bool(_zone_reader()(text))
    except Refusal:
        return False


@cache
def _zone_reader() -> Run:
    return NamedZone(zone=True).function()


def _is_picture(column: ColumnSeen) -> bool:
    return column.urls >= 0.5 and (Role.IMAGE in column.roles or column.pictures * 2 >= len(column.filled))


def _is_few(column: ColumnSeen) -> bool:
    return column.is_text and 0 < len(column.parts) <= _FEW


def _is_words(column: ColumnSeen) -> bool:
    return column.is_text and not column.is_counting


_FRIENDS = frozenset({Role.TITLE, Role.START, Role.CLOCK, Role.END, Role.VENUE})
"""Words that stand beside a telling one without speaking against it: event_url, end date, venue city."""
_PARTS: tuple[tuple[Role, frozenset[Role], Fits], ...] = (
    (Role.IMAGE, frozenset(), _is_picture),
    (Role.URL, frozenset(), lambda column: column.urls >= 0.5 and column.pictures * 2 < len(column.filled)),
    (Role.ZONE, frozenset(), _is_zone),
    (Role.END_CLOCK, frozenset({Role.END}), lambda column: column.times is not None and column.times.is_time),
    (Role.CLOCK, frozenset({Role.START}), lambda column: column.times is not None and column.times.is_time),
    (Role.END, frozenset(), lambda column: _is_day(column) and not (column.times and column.times.has_several)),
    (Role.START, frozenset({Role.CLOCK}), _is_day),
    (Role.CITY, frozenset(), _is_words),
    (Role.COUNTRY, frozenset(), _is_words),
    (Role.CATEGORY, frozenset(), _is_few),
    (Role.STATUS, frozenset(), _is_few),
    (Role.PRICE, frozenset(), lambda column: bool(column.filled)),
    *((role, frozenset[Role](), _is_words) for role in (Role.DESCRIPTION, Role.VENUE, Role.ADDRESS, Role.TITLE)),
)
"""Each part, the other names that speak for it, and what its cells must look like, the clearest names first."""


def guess_roles(columns: Sequence[ColumnSeen]) -> dict[Role, RoleGuess]:
    """Return the parts that are played, each by one column."""
    free = [column for column in columns if column.filled and Role.ASIDE not in column.roles]
    found: dict[Role, RoleGuess] = {}
    for role, other_names, fits in _PARTS:
        names = other_names | {role}
        named = [column for column in free if names & column.roles.keys() and fits(column)]
        if named:
            best = max(named, key=lambda column: _clearness(column, names))
            found[role] = _by_name(best, names)
            free.remove(best)
    _by_cells(Role.START, found, [column for column in free if _is_day(column)])
    _by_cells(Role.TITLE, found, sorted(filter(_is_words, free), key=lambda column: -column.mean_length * len(column.counts)))
    if Role.URL not in found:
        _by_cells(Role.URL, found, [column for column in free if column.urls >= 0.9 and not column.pictures])
    return found


def agreed_order(columns: Sequence[ColumnSeen]) -> tuple[str, str]:
    """Return the order of day and month that the file's columns prove, and the column that does; "" where they do not agree."""
    proofs = {column.times.order: column.name for column in columns if column.times is not None and column.times.proving}
    proofs.pop("", None)
    return next(iter(proofs.items())) if len(proofs) == 1 else ("", "")


def in_order(times: TimesSeen, order: str) -> TimesSeen:
    """Return what a column says once it is known whether the day or the month comes first."""
    return times if times.order == order or not times.order else times.in_other_order()


def _clearness(column: ColumnSeen, names: frozenset[Role]) -> tuple[float, float]:
    """Return how clearly a name speaks for a part: other parts in the same name speak against it."""
    clear = max(weight for role, weight in column.roles.items() if role in names)
    other = max((weight for role, weight in column.roles.items() if role not in names), default=0.0)
    return clear - other / 4, len(column.filled) / len(column.cells)


def _by_name(column: ColumnSeen, names: frozenset[Role]) -> RoleGuess:
    clear = sum(weight for role, weight in column.roles.items() if role in names | _FRIENDS)
    return RoleGuess(column, "sure" if clear >= 0.99 else "likely", f'"{column.name}" is called so')


def _by_cells(role: Role, found: dict[Role, RoleGuess], columns: Sequence[ColumnSeen]) -> None:
    if role not in found and columns:
        found[role] = RoleGuess(columns[0], "unsure", f'no name says so, but the cells of "{columns[0].name}" look like it')


_MOST_PARTS = 4
_TELLING = (Role.START, Role.CLOCK, Role.VENUE, Role.CITY, Role.END, Role.TITLE, Role.URL)
"""What distinguishes rows where no identifier does, the best first."""


@dataclass(frozen=True, slots=True)
class KeyGuess:
    """The columns of a key. `clashes`: rows that share their key with another; `why` and `is_sure` are reported to the author."""

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
    """Add one distinguishing column after the other, as long as rows clash and the next makes some of them differ."""
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
