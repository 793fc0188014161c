"""Which of the service's events is which row's, where the ledger lacks the event's id: rows are indexed, events stream by.

Pure. How alike one row and one event are is `likeness`'; reading the list and recording what is found is `search`'s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import orjson

from connectors.event_api.event_list import ListedEvent
from pipelines.reconciliation.likeness import KEY_FIELDS, REFERENCE_FIELDS, Strength, likeness, moment, words
from state.sought import Sought

_KEPT = 20
_FIELDS_NAMED = 200
_CROWD = 50
"""Rows of one title and start (or of one title, where no start is told): more are not compared one by one."""


class Verdict(StrEnum):
    """What the list says about a row. `found`: one event, and no other row's; `candidate`: events that it may be, for a
    person to decide; `absent`: none.
    """

    FOUND = "found"
    CANDIDATE = "candidate"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class RowVerdict:
    """The verdict on one row: the events in question, the first few, and why, for people."""

    row: Sought
    verdict: Verdict
    event_ids: tuple[int, ...]
    why: str


@dataclass(slots=True)
class _Met:
    """Events of one strength that were met: how many, the first few, and what agreed with the first."""

    count: int = 0
    ids: list[int] = field(default_factory=list)
    agree: tuple[str, ...] = ()

    def note(self, event_id: int, agree: tuple[str, ...]) -> None:
        self.count += 1
        self.agree = self.agree or agree
        if len(self.ids) < _KEPT:
            self.ids.append(event_id)


@dataclass(slots=True)
class _Wanted:
    """A row and the events that were met for it."""

    row: Sought
    payload: Mapping[str, Any]
    met: dict[Strength, _Met] = field(default_factory=dict)


@dataclass(slots=True)
class _Alike:
    """Rows that share what they are looked up by. `crowd`: events met for all of them, where they are too many."""

    rows: list[_Wanted] = field(default_factory=list)
    crowd: _Met = field(default_factory=_Met)


class Matching:
    """One search: rows first, then every event once, then the verdicts. Memory grows with the rows, not with the events."""

    def __init__(self, rows: Iterable[Sought]) -> None:
        self._wanted = [_Wanted(row, orjson.loads(row.body)) for row in rows]
        self._by_key = {str(one.row.key): one for one in self._wanted}
        self._alike: dict[tuple[str, datetime | None], _Alike] = defaultdict(_Alike)
        for one in self._wanted:
            for place in _places(one.payload):
                self._alike[place].rows.append(one)
        self._claims: dict[int, int] = defaultdict(int)
        self.fields: set[str] = set()

    def meet(self, event: ListedEvent) -> None:
        """Take one event of the list into account. One that tells a row's key is compared with no other row."""
        if len(self.fields) < _FIELDS_NAMED:
            self.fields.update(event.fields)
        if not self._meet_key(event):
            self._meet_likeness(event)

    def candidates(self) -> set[int]:
        """Return the ids of all events in question, to ask which of them are rows already."""
        met = (kind for one in self._wanted for kind in self._all_met(one).values())
        return {event_id for kind in met for event_id in kind.ids}

    def verdicts(self, owners: Mapping[int, str]) -> Iterator[RowVerdict]:
        """Yield the verdict on every row that is no rival. `owners`: which events are rows already, by id."""
        return (self._verdict(one, owners) for one in self._wanted if not one.row.is_rival)

    def _meet_key(self, event: ListedEvent) -> bool:
        told = (event.fields.get(name) for name in (*KEY_FIELDS, *REFERENCE_FIELDS))
        one = next((self._by_key[key] for key in told if isinstance(key, str) and key in self._by_key), None)
        if one is not None:
            one.met.setdefault(Strength.CERTAIN, _Met()).note(event.event_id, ("idempotency key",))
        return one is not None

    def _meet_likeness(self, event: ListedEvent) -> None:
        alike = self._alike.get((words(event.fields.get("title")), moment(event.fields.get("startAt"))))
        if alike is None:
            return
        if len(alike.rows) > _CROWD:
            alike.crowd.note(event.event_id, ())
            return
        for one in alike.rows:
            found = likeness(one.payload, one.row.key, event.fields)
            if found.strength is not Strength.NONE:
                one.met.setdefault(found.strength, _Met()).note(event.event_id, found.agree)
                self._claims[event.event_id] += found.strength is Strength.STRONG

    def _all_met(self, one: _Wanted) -> dict[Strength, _Met]:
        crowds = (self._alike[place].crowd for place in _places(one.payload))
        crowd = next((met for met in crowds if met.count), None)
        return one.met if crowd is None else {Strength.WEAK: crowd} | one.met

    def _verdict(self, one: _Wanted, owners: Mapping[int, str]) -> RowVerdict:
        met = self._all_met(one)
        certain = met.get(Strength.CERTAIN, _Met())
        if certain.count:
            return _settled(one, certain, _free(certain, owners), "it tells the row's idempotency key", owners)
        strong = met.get(Strength.STRONG, _Met())
        if strong.count:
            free = _free(strong, owners)
            shared = [event_id for event_id in free if self._claims[event_id] > 1]
            if shared:
                why = f"title and start agree, but {self._claims[shared[0]]} rows without an event look like it"
                return RowVerdict(one.row, Verdict.CANDIDATE, tuple(free), why)
            return _settled(one, strong, free, f"{', '.join(strong.agree)} agree, and nothing differs", owners)
        weak = met.get(Strength.WEAK, _Met())
        return _weakly(one, weak, _free(weak, owners))


def _places(payload: Mapping[str, Any]) -> Iterator[tuple[str, datetime | None]]:
    """Return what a row is looked up by: title and start, and either of them for items that do not tell the other."""
    title, start = words(payload.get("title")), moment(payload.get("startAt"))
    yield title, start
    yield title, None
    yield "", start


def _free(met: _Met, owners: Mapping[int, str]) -> list[int]:
    return [event_id for event_id in met.ids if event_id not in owners]


def _settled(one: _Wanted, met: _Met, free: list[int], why: str, owners: Mapping[int, str]) -> RowVerdict:
    if not free and met.count <= _KEPT:
        return RowVerdict(one.row, Verdict.ABSENT, (), f"the one that looks like it is {owners.get(met.ids[0], 'another row')}")
    if len(free) == 1 and met.count <= _KEPT:
        return RowVerdict(one.row, Verdict.FOUND, (free[0],), why)
    return RowVerdict(one.row, Verdict.CANDIDATE, tuple(free), f"{met.count} events look like it")


def _weakly(one: _Wanted, met: _Met, free: list[int]) -> RowVerdict:
    if not free:
        return RowVerdict(one.row, Verdict.ABSENT, (), "no event of the list looks like it")
    why = f"no more than {', '.join(met.agree)} can be compared" if met.agree else "many rows and events are alike"
    return RowVerdict(one.row, Verdict.CANDIDATE, tuple(free), why)
