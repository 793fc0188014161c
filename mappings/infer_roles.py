"""Which column plays which part of an event: by its name first, if its cells fit the part; by its cells alone where no name says.

What a name speaks for is `infer_words`'s, what cells look like `infer_columns`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from mappings.infer_columns import ColumnSeen
from mappings.infer_times import TimesSeen
from mappings.infer_words import Role
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


def _is_last_day(column: ColumnSeen) -> bool:
    return column.times is not None and not column.times.is_time and not column.times.has_several


def _is_clock(column: ColumnSeen) -> bool:
    return column.times is not None and column.times.is_time


def _is_few(column: ColumnSeen) -> bool:
    return column.is_text and 0 < len(column.parts) <= _FEW


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


def _is_link(column: ColumnSeen) -> bool:
    return column.urls >= 0.5 and column.pictures * 2 < len(column.filled)


def _is_picture(column: ColumnSeen) -> bool:
    return column.urls >= 0.5 and (Role.IMAGE in column.roles or column.pictures * 2 >= len(column.filled))


def _is_words(column: ColumnSeen) -> bool:
    return column.is_text and not column.is_counting


_FRIENDS = frozenset({Role.TITLE, Role.START, Role.CLOCK, Role.END, Role.VENUE})
"""Words that stand beside a telling one without speaking against it: event_url, end date, venue city."""
_PARTS: tuple[tuple[Role, frozenset[Role], Fits], ...] = (
    (Role.IMAGE, frozenset({Role.IMAGE}), _is_picture),
    (Role.URL, frozenset({Role.URL}), _is_link),
    (Role.ZONE, frozenset({Role.ZONE}), _is_zone),
    (Role.END_CLOCK, frozenset({Role.END}), _is_clock),
    (Role.CLOCK, frozenset({Role.CLOCK, Role.START}), _is_clock),
    (Role.END, frozenset({Role.END}), _is_last_day),
    (Role.START, frozenset({Role.START, Role.CLOCK}), _is_day),
    (Role.CITY, frozenset({Role.CITY}), _is_words),
    (Role.COUNTRY, frozenset({Role.COUNTRY}), _is_words),
    (Role.CATEGORY, frozenset({Role.CATEGORY}), _is_few),
    (Role.STATUS, frozenset({Role.STATUS}), _is_few),
    (Role.PRICE, frozenset({Role.PRICE}), lambda column: bool(column.filled)),
    (Role.DESCRIPTION, frozenset({Role.DESCRIPTION}), _is_words),
    (Role.VENUE, frozenset({Role.VENUE}), _is_words),
    (Role.ADDRESS, frozenset({Role.ADDRESS}), _is_words),
    (Role.TITLE, frozenset({Role.TITLE}), _is_words),
)
"""Each part, the names that speak for it, and what its cells must look like, the most telling names first."""


def guess_roles(columns: Sequence[ColumnSeen]) -> dict[Role, RoleGuess]:
    """Return the parts that are played, each by one column."""
    free = [column for column in columns if column.filled and Role.ASIDE not in column.roles]
    found: dict[Role, RoleGuess] = {}
    for role, names, fits in _PARTS:
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
