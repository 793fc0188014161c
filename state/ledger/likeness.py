"""Likeness of events: which rows are probably events that the ledger knows under another key, feed or namespace.

Two events of one channel are alike if they agree in two of title, start and place. That is weaker than a duplicate, which agrees
in all three: it finds rows that were renumbered, or feeds that were renamed, and edited at once.

Pairs of values are compared as hashes, so that memory is bounded by the entries that are compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, Engine, select

from mappings.delivery import split_destination
from mappings.row_key import FeedName
from state.database import in_pages, reading
from state.enums import Outcome
from state.ledger.accounts import Alongside
from state.ledger.copies import Neighbour, as_neighbour, read_neighbours
from state.ledger.entries import IS_UNDECIDED, MAY_GET_EVENT, PAYLOAD, SOME, count_entries
from state.tables import ENTRY, SCOPE

MOST_COMPARED = 100_000
"""How many of the newest entries, and of the new rows, are compared: some 25 MB, and at most a second."""
AT_LEAST = 3
"""The least number of rows that can trip a brake."""
_MOST_TRIED = 50
Event = tuple[str, bytes]
"""A row key and its payload."""
_Values = tuple[Any, Any, Any, tuple[str, str] | None]
_ROW = select(ENTRY.c.id, ENTRY.c.row_key, PAYLOAD)


def pairs(*bodies: bytes | None) -> Iterator[int]:
    """Yield a number for each pair of title, start and place in these payloads of an entry.

    Title, place and day come first: of several showings, that of the day is the likeliest.
    """
    for body in filter(None, bodies):
        yield from _pairs_of(body)


def _pairs_of(body: bytes) -> Iterator[int]:
    channel, title, start, place = _values(body)
    if title and place and start:
        yield hash((channel, title, place, start[: len("2031-05-03")]))
    for first, second in ((title, start), (title, place), (start, place)):
        if first and second:
            yield hash((channel, first is title, second is place, first, second))


def pairs_elsewhere(row_key: str, body: bytes, *, is_namesake: bool) -> Iterator[int]:
    """Yield a number for each pair of values by which a row may be known to another feed.

    A row key is a value like the others, and alone enough for a feed of the same name. A start in a city without a place is not:
    feeds of one city share many.
    """
    values = _values(body)
    yield from _named_pairs(row_key, values, is_namesake=is_namesake)
    yield from _timed_pairs(row_key, values)


def _named_pairs(row_key: str, values: _Values, *, is_namesake: bool) -> Iterator[int]:
    """Yield those of `pairs_elsewhere` that name the event, the surest first."""
    if is_namesake:
        yield hash(row_key)
    channel, title, start, place = values
    for number, other in enumerate((row_key, start, place)):
        if title and other:
            yield hash((channel, number, title, other))


def _timed_pairs(row_key: str, values: _Values) -> Iterator[int]:
    """Yield those of `pairs_elsewhere` that give only its time: unrelated events of one time may share them."""
    channel, _, start, place = values
    for number, other in enumerate((place if place and place[1] else None, row_key), 3):
        if start and other:
            yield hash((channel, number, start, other))


def _values(body: bytes) -> _Values:
    """Return channel, title, start and place of a payload."""
    event = orjson.loads(body or b"{}")
    city = (event.get("approxLocation") or {}).get("city") or {}
    place = (city["placeId"], event.get("locationName") or "") if city.get("placeId") else None
    return event.get("channelId"), event.get("title"), event.get("startAt"), place


class Candidates:
    """The entries that rows may be alike, by pair; each is given to one row as far as possible."""

    def __init__(self) -> None:
        self._given: set[int] = set()
        self._entries: dict[int, deque[int]] = {}
        self._stems: dict[int, str] = {}

    def add(self, entry_id: int, of_entry: Iterable[int], stem: str = "") -> None:
        """Add an entry with its pairs; `stem`: the row that gives it and other events."""
        if stem:
            self._stems[entry_id] = stem
        for pair in of_entry:
            self._entries.setdefault(pair, deque()).append(entry_id)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._entries)

    def has(self, of_row: Iterable[int]) -> bool:
        """Return whether a row with these pairs is like an entry."""
        return any(pair in self._entries for pair in of_row)

    def give(self, of_row: Iterable[int], stem: str = "") -> int:
        """Return the entry that a row with these pairs is like, 0 if there is none; one that no row was given, if possible.

        A new event of a row is none that the row had before.
        """
        found = 0
        for entries in filter(None, map(self._entries.get, of_row)):
            while len(entries) > 1 and entries[0] in self._given:
                entries.popleft()
            others = [one for one in islice(entries, _MOST_TRIED) if not stem or self._stems.get(one) != stem]
            first = next((one for one in others if one not in self._given), others[0] if others else 0)
            if first and (not found or (found in self._given and first not in self._given)):
                found = first
        self._given.add(found)
        return found


@dataclass(frozen=True, slots=True)
class KnownElsewhere:
    """Another scope that has most rows of a feed, and the entries there that the rows are like."""

    found: Alongside
    candidates: Candidates


def find_elsewhere(connection: Connection, scope_id: int) -> KnownElsewhere | None:
    """Return the scope that has most of a feed's rows, if at least 3 and more than half of them; None if there is none.

    Rows about which a person has decided do not count: those that have taken over their event, and those to send.
    """
    others = dict(read_neighbours(connection, scope_id))
    feed = others.pop(scope_id).feed
    undecided = (ENTRY.c.scope_id == scope_id, ENTRY.c.outcome != Outcome.MOVED.value, IS_UNDECIDED)
    count = min(count_entries(connection, *undecided), MOST_COMPARED) if others else 0
    return _find(connection, others, feed, lambda: (row[1:] for row in _newest(connection, *undecided)), count)


def foresee_elsewhere(engine: Engine, destination: str, feed: FeedName, events: Sequence[Event]) -> Alongside | None:
    """Return the scope that has most of these rows of a feed, None also if the feed has sent rows before."""
    service, namespace = split_destination(destination)
    with reading(engine) as connection:
        scopes = connection.execute(select(SCOPE).where(SCOPE.c.service == service)).all()
        own = next((one for one in scopes if (one.destination, one.feed) == (destination, feed)), None)
        if own is not None and own.released_id:
            return None
        others = {one.id: as_neighbour(one, namespace) for one in scopes} if own is None else read_neighbours(connection, own.id)
        others = {other_id: other for other_id, other in others.items() if own is None or other_id != own.id}
        known = _find(connection, others, feed, lambda: events, len(events))
    return known.found if known else None


def _find(
    connection: Connection, others: Mapping[int, Neighbour], feed: FeedName, rows: Callable[[], Iterable[Event]], count: int
) -> KnownElsewhere | None:
    """Return the scope that has most of `count` rows.

    Rows that are like one entry together count once, as do rows of one time of which nothing else is known.
    """
    if count < AT_LEAST:
        return None
    best: KnownElsewhere | None = None
    asked = {pair for row in rows() for pair in pairs_elsewhere(*row, is_namesake=True)}
    for other_id, other in others.items():
        of_other = (ENTRY.c.scope_id == other_id, MAY_GET_EVENT)
        if not other.marked_id or not _are_most(count_entries(connection, *of_other), count):
            continue
        candidates, is_namesake, entries = Candidates(), other.feed == feed, 0
        for entry_id, row_key, body in _newest(connection, *of_other):
            agreeing = asked.intersection(pairs_elsewhere(row_key, body, is_namesake=is_namesake))
            candidates.add(entry_id, agreeing)
            entries += bool(agreeing)
        known, starts = 0, set[str]()
        for row_key, body in rows() if _are_most(entries, count) else ():
            values = _values(body)
            if candidates.has(_named_pairs(row_key, values, is_namesake=is_namesake)):
                known += 1
            elif candidates.has(_timed_pairs(row_key, values)):
                starts.add(values[2])
        known = min(known + len(starts), entries)
        if _are_most(known, count) and (best is None or known > best.found.known):
            renamed_from = "" if is_namesake else other.feed
            best = KnownElsewhere(Alongside(other_id, renamed_from, other.namespace, known, count, 0), candidates)
    return best


def _are_most(some: int, count: int) -> bool:
    return some >= AT_LEAST and some * 2 > count


def _newest(connection: Connection, *which: ColumnElement[bool]) -> Iterator[tuple[int, str, bytes]]:
    """Yield id, row key and baseline of the newest entries under these conditions.

    The ids are looked up first: the entries themselves are large, and would be sorted for each page.
    """
    newest = select(ENTRY.c.id).where(*which).order_by(ENTRY.c.id.desc()).limit(MOST_COMPARED)
    for page in in_pages(connection.execute(newest).scalars().all()):
        yield from map(tuple, connection.execute(_ROW.where(SOME), {"entries": page}))
