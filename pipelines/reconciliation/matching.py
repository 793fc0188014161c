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

from connectors.event_api.lists import ListedEvent
from pipelines.reconciliation.likeness import KEY_FIELDS, REFERENCE_FIELDS, Likeness, Strength, likeness, moment, words
from state.sought import Sought

_KEPT = 20
_FIELDS_NAMED = 200
_ORDER = tuple(Strength)
_CROWD = 50
"""Rows of one title and start (or of one title, where no start is told): more are not compared one by one."""


class Verdict(StrEnum):
    """What the list says about a row. `found`: one event, and no other row's; `candidate`: events that it may be, for a
    person to decide; `absent`: none, as far as the list shows.
    """

    FOUND = "found"
    CANDIDATE = "candidate"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class RowVerdict:
    """The verdict on one row: the events in question, the first few, and why, for people.

    `shown`: the body that a found event shows, where it is what the source asks for now and not the pinned one.
    `may_be_resent`: no event of the list can be the row's.
    """

    row: Sought
    verdict: Verdict
    event_ids: tuple[int, ...]
    why: str
    shown: bytes | None = None
    may_be_resent: bool = False


@dataclass(slots=True)
class _Met:
    """Events of one strength that were met: how many, and the first few with how each is alike, and with which body."""

    count: int = 0
    ids: dict[int, tuple[Likeness, bytes] | None] = field(default_factory=dict)

    def note(self, event_id: int, alike: tuple[Likeness, bytes] | None = None) -> None:
        self.count += 1
        if len(self.ids) < _KEPT:
            self.ids[event_id] = alike

    @property
    def first(self) -> Likeness | None:
        """How the first one is alike."""
        alike = next(iter(self.ids.values()), None)
        return alike and alike[0]


@dataclass(slots=True)
class _Wanted:
    """A row, the payloads that its event may show, by their bodies, and the events that were met for it."""

    row: Sought
    payloads: Mapping[bytes, Mapping[str, Any]]
    met: dict[Strength, _Met] = field(default_factory=dict)

    def likeness(self, event: ListedEvent) -> tuple[Likeness, bytes]:
        """Compare with the body that the event is most alike; of several the pinned one."""
        found = ((likeness(payload, self.row.key, event.fields), body) for body, payload in self.payloads.items())
        return min(found, key=lambda one: (_ORDER.index(one[0].strength), len(one[0].differ)))


@dataclass(slots=True)
class _Alike:
    """Rows that share what they are looked up by. `crowd`: events met for all of them, where they are too many."""

    rows: list[_Wanted] = field(default_factory=list)
    crowd: _Met = field(default_factory=_Met)


class Matching:
    """One search: rows first, then every event once, then the verdicts. Memory grows with the rows, not with the events."""

    def __init__(self, rows: Iterable[Sought]) -> None:
        self._wanted = [_Wanted(row, _payloads(row)) for row in rows]
        self._by_key = {str(one.row.key): one for one in self._wanted}
        self._alike: dict[tuple[str, datetime | None], _Alike] = defaultdict(_Alike)
        for one in self._wanted:
            for place in _places(one):
                self._alike[place].rows.append(one)
        self._unreadable = 0
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
            one.met.setdefault(Strength.CERTAIN, _Met()).note(event.event_id, one.likeness(event))
        return one is not None

    def _meet_likeness(self, event: ListedEvent) -> None:
        title, start = words(event.fields.get("title")), moment(event.fields.get("startAt"))
        self._unreadable += not title and start is None
        alike = self._alike.get((title, start))
        if alike is None:
            return
        if len(alike.rows) > _CROWD:
            alike.crowd.note(event.event_id)
            return
        for one in alike.rows:
            found = one.likeness(event)
            strength = found[0].strength
            if strength is not Strength.NONE:
                one.met.setdefault(strength, _Met()).note(event.event_id, found)
                self._claims[event.event_id] += strength is Strength.STRONG

    def _all_met(self, one: _Wanted) -> dict[Strength, _Met]:
        crowds = (self._alike[place].crowd for place in _places(one))
        crowd = next((met for met in crowds if met.count), None)
        return one.met if crowd is None else {Strength.WEAK: crowd} | one.met

    def _verdict(self, one: _Wanted, owners: Mapping[int, str]) -> RowVerdict:
        met = self._all_met(one)
        certain = met.get(Strength.CERTAIN, _Met())
        if certain.count:
            return _settled(one, certain, _free(certain, owners), "it shows the row's idempotency key", owners)
        strong = met.get(Strength.STRONG, _Met())
        if strong.count and strong.first:
            free = _free(strong, owners)
            shared = [event_id for event_id in free if self._claims[event_id] > 1]
            if shared:
                why = f"title and start agree, but {self._claims[shared[0]]} rows without an event look like it"
                return RowVerdict(one.row, Verdict.CANDIDATE, tuple(free), why)
            return _settled(one, strong, free, f"{', '.join(strong.first.agree)} agree, and nothing differs", owners)
        return self._unsure(one, met, owners)

    def _unsure(self, one: _Wanted, met: Mapping[Strength, _Met], owners: Mapping[int, str]) -> RowVerdict:
        for strength in (Strength.WEAK, Strength.NEAR):
            alike = met.get(strength, _Met())
            if free := _free(alike, owners):
                return RowVerdict(one.row, Verdict.CANDIDATE, tuple(free), _why_unsure(alike.first))
        if taken := [owners[event_id] for alike in met.values() for event_id in alike.ids]:
            return RowVerdict(one.row, Verdict.ABSENT, (), f"each one that looks like it is another row's: {taken[0]}")
        if self._unreadable:
            why = f"the list shows neither title nor start of {self._unreadable:,} events: nothing can be said"
            return RowVerdict(one.row, Verdict.ABSENT, (), why)
        return RowVerdict(one.row, Verdict.ABSENT, (), "no event of the list looks like it", may_be_resent=True)


def _payloads(row: Sought) -> dict[bytes, Mapping[str, Any]]:
    bodies = (row.body, row.baseline, row.asked)
    return {body: orjson.loads(body) for body in bodies if body is not None}


def _places(one: _Wanted) -> Iterable[tuple[str, datetime | None]]:
    """Return what a row is looked up by: title and start, and either of them for items that do not show the other."""
    found: dict[tuple[str, datetime | None], None] = {}
    for payload in one.payloads.values():
        title, start = words(payload.get("title")), moment(payload.get("startAt"))
        found |= dict.fromkeys(((title, start), (title, None), ("", start)))
    return found


def _free(met: _Met, owners: Mapping[int, str]) -> list[int]:
    return [event_id for event_id in met.ids if event_id not in owners]


def _settled(one: _Wanted, met: _Met, free: list[int], why: str, owners: Mapping[int, str]) -> RowVerdict:
    if not free and met.count <= _KEPT:
        owner = owners.get(next(iter(met.ids)), "another row")
        return RowVerdict(one.row, Verdict.ABSENT, (), f"the one that looks like it is {owner}")
    if len(free) == 1 and met.count <= _KEPT:
        alike = met.ids[free[0]]
        is_asked = alike is not None and not alike[0].differ and alike[1] not in {one.row.body, one.row.baseline}
        return RowVerdict(one.row, Verdict.FOUND, (free[0],), why, alike[1] if alike is not None and is_asked else None)
    return RowVerdict(one.row, Verdict.CANDIDATE, tuple(free), f"{met.count} events look like it")


def _why_unsure(alike: Likeness | None) -> str:
    if alike is None:
        return "many rows and events are alike"
    if alike.differ:
        return f"{', '.join(alike.agree)} agree, but not {', '.join(alike.differ)}"
    return f"no more than {', '.join(alike.agree)} can be compared"
