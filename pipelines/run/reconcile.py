"""Match rows with the service's own list of events: compare field by field, decide, and record what was found.

The fields of a list item are not known in advance: a field that it lacks neither agrees nor differs.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import orjson

from connectors.event_api.delivery import EventApi
from connectors.event_api.lists import EventList, ListedEvent
from pipelines.run.options import Advance
from pipelines.run.signals import run_async
from state.ledger.decisions import Found
from state.ledger.standing import RowRecord

KEY_FIELDS = ("idempotencyKey", "idempotency_key")
"""Fields that show the idempotency key of an event; another key means another row's event."""
REFERENCE_FIELDS = ("externalId", "external_id", "sourceId", "reference")
"""Further fields that may show the key; another value there proves nothing."""
MOVED_ON = "an event was found, but the row changed while the list was read"
_CHANNEL = ("channelId", "channel")
_NAMES_OF_A_THING = ("id", "slug", "name")
_MISSING: tuple[object, ...] = (None, "", [], {})
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")
_STORED = 20
"""Matches of one strength that are stored per row; further ones are only counted."""
_FIELDS_NAMED = 200


class Strength(StrEnum):
    """How strongly an item resembles a row's event.

    `certain`: it shows the row's idempotency key. `strong`: title and start agree, and nothing differs. `possible`: one of the
    two is not shown, and nothing differs; or both agree, and a field other than the channel differs, as after an edit by hand.
    `edited`: one of the two and the place agree, as where the row was edited after its ledger was lost.
    """

    CERTAIN = "certain"
    STRONG = "strong"
    POSSIBLE = "possible"
    EDITED = "edited"
    NONE = "none"


class Verdict(StrEnum):
    """The result for a row. `found`: one event is the row's; `candidate`: a person must decide; `absent`: no event matches."""

    FOUND = "found"
    CANDIDATE = "candidate"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class RowVerdict:
    """The result for one row: the first few matching events, and the reason as a sentence.

    `shown`: the body that a found event shows, if it is the source's current one and not the pinned one. `may_be_resent`: no
    event of the list can be the row's.
    """

    row: RowRecord
    verdict: Verdict
    event_ids: tuple[int, ...]
    why: str
    shown: bytes | None = None
    may_be_resent: bool = False


@dataclass(frozen=True, slots=True)
class ListRead:
    """What was read of the list. `is_whole`: as many events as the service counts; `fields`: the fields that items have."""

    events: int
    total: int | None
    is_whole: bool
    without_id: int
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Match:
    """An event that resembles a row: our fields that agree, those that differ, and the body compared with.

    Fields that the item lacks, or that cannot be compared, are in neither list.
    """

    event_id: int
    body: bytes
    strength: Strength
    agree: tuple[str, ...]
    differ: tuple[str, ...]


@dataclass(slots=True)
class _Search:
    """A row, the payloads that its event may show (by body), and its matches: all counted, the first few stored."""

    row: RowRecord
    is_rival: bool
    payloads: Mapping[bytes, Mapping[str, Any]]
    counts: Counter[Strength] = field(default_factory=Counter)
    matches: dict[Strength, list[_Match]] = field(default_factory=lambda: defaultdict(list))

    def compare(self, event: ListedEvent) -> _Match:
        """Compare an event with each payload, and return the strongest match; of equal ones that with the pinned body."""
        found = [self._compare(body, payload, event) for body, payload in self.payloads.items()]
        order = tuple(Strength)
        return min(found, key=lambda one: (order.index(one.strength), len(one.differ)))

    def add(self, match: _Match) -> None:
        self.counts[match.strength] += 1
        if len(self.matches[match.strength]) < _STORED:
            self.matches[match.strength].append(match)

    def meet_edited(self, event: ListedEvent) -> bool:
        """Add an event that the row may have had before an edit; return whether there are enough."""
        match = self.compare(event)
        if match.strength is Strength.EDITED:
            self.add(match)
        return self.counts[Strength.EDITED] >= _STORED

    def _compare(self, body: bytes, payload: Mapping[str, Any], event: ListedEvent) -> _Match:
        item, key = event.fields, self.row.key
        alike = {name: _is_alike(ours, _shown(name, item)) for name, ours in payload.items()}
        agree = [name for name, is_alike in alike.items() if is_alike]
        # The status may differ for the same event: a draft is published by hand later, or taken back.
        differ = [name for name, is_alike in alike.items() if is_alike is False and name != "status"]
        agreeing = len({"title", "startAt"}.intersection(agree))
        if any(item.get(name) == key for name in (*KEY_FIELDS, *REFERENCE_FIELDS)):
            strength, agree = Strength.CERTAIN, ["idempotency key", *agree]
        else:
            if any(item.get(name) not in _MISSING for name in KEY_FIELDS):
                differ.append("idempotency key")
            if differ:
                is_another = not {"idempotency key", *_CHANNEL}.isdisjoint(differ)
                is_edited = agreeing == 1 and _place(payload) == _place(item) is not None
                likely = Strength.POSSIBLE if agreeing == 2 else Strength.EDITED if is_edited else Strength.NONE
                strength = Strength.NONE if is_another else likely
            else:
                strength = (Strength.NONE, Strength.POSSIBLE, Strength.STRONG)[agreeing]
        return _Match(event.event_id, body, strength, tuple(agree), tuple(differ))


class Matching:
    """One search: takes the rows, then every event once, then gives the verdicts. Memory grows with the rows, not with the
    events.
    """

    def __init__(self, rows: Iterable[tuple[RowRecord, bool]]) -> None:
        self._searches: list[_Search] = []
        self._by_look: dict[tuple[str, datetime | None], list[_Search]] = defaultdict(list)
        self._by_place: dict[tuple[object, ...], list[_Search]] = defaultdict(list)
        for row, is_rival in rows:
            bodies = (row.body, row.baseline_body, row.drift_body)
            one = _Search(row, is_rival, {body: orjson.loads(body) for body in bodies if body is not None})
            self._searches.append(one)
            looks, places = set[tuple[str, datetime | None]](), set[tuple[object, ...]]()
            for payload in one.payloads.values():
                title, start = _words(payload.get("title")), _moment(payload.get("startAt"))
                looks |= {(title, start), (title, None), ("", start)}  # an item may not show the one or the other
                places.update(_looks_at(_place(payload), title, start))
            for look in looks:
                self._by_look[look].append(one)
            for at in places:
                self._by_place[at].append(one)
        self._by_key = {str(one.row.key): one for one in self._searches}
        self._unreadable = 0
        self._claims: Counter[int] = Counter()
        self.fields: set[str] = set()

    def meet(self, event: ListedEvent) -> None:
        """Match one event of the list with the rows. An event that shows a row's key is compared with that row only."""
        if len(self.fields) < _FIELDS_NAMED:
            self.fields.update(event.fields)
        keys = (event.fields.get(name) for name in (*KEY_FIELDS, *REFERENCE_FIELDS))
        owner = next((self._by_key[key] for key in keys if isinstance(key, str) and key in self._by_key), None)
        if owner is not None:
            owner.add(replace(owner.compare(event), strength=Strength.CERTAIN))
            return
        title, start = _words(event.fields.get("title")), _moment(event.fields.get("startAt"))
        self._unreadable += not title and start is None
        for one in self._by_look.get((title, start), ()):
            match = one.compare(event)
            if match.strength is not Strength.NONE:
                one.add(match)
                self._claims[event.event_id] += match.strength is Strength.STRONG
        for look in _looks_at(_place(event.fields), title, start):
            if sought := self._by_place.get(look):
                self._by_place[look] = [one for one in sought if not one.meet_edited(event)]

    def candidates(self) -> set[int]:
        """Return the ids of all matching events, to find out which of them belong to rows already."""
        return {match.event_id for one in self._searches for matches in one.matches.values() for match in matches}

    def verdicts(self, owners: Mapping[int, str]) -> Iterator[RowVerdict]:
        """Yield the verdict on every row that is not a rival. `owners`: by event id, the row that an event belongs to already."""
        return (self._verdict(one, owners) for one in self._searches if not one.is_rival)

    def _verdict(self, one: _Search, owners: Mapping[int, str]) -> RowVerdict:
        for strength in (Strength.CERTAIN, Strength.STRONG):
            if matches := one.matches[strength]:
                return self._strong_verdict(one, matches, [match for match in matches if match.event_id not in owners], owners)
        possible = one.matches[Strength.POSSIBLE]
        edited = [match for match in one.matches[Strength.EDITED] if not self._claims[match.event_id]]
        if free := [match for match in (*possible, *edited) if match.event_id not in owners]:
            agree, differ = ", ".join(free[0].agree), ", ".join(free[0].differ)
            why = f"{agree} agree, but not {differ}" if differ else f"only {agree} can be compared"
            return RowVerdict(one.row, Verdict.CANDIDATE, _ids(free), why)
        if possible:
            taken = owners[possible[0].event_id]
            return RowVerdict(one.row, Verdict.ABSENT, (), f"each similar event belongs to another row: {taken}")
        if self._unreadable:
            why = f"the list shows neither title nor start of {self._unreadable:,} events, so the row's event may be one of them"
            return RowVerdict(one.row, Verdict.ABSENT, (), why)
        if one.counts[Strength.EDITED] >= _STORED:
            why = f"at least {_STORED} events of its place are similar, so the row's event may be one of them"
            return RowVerdict(one.row, Verdict.ABSENT, (), why)
        return RowVerdict(one.row, Verdict.ABSENT, (), "no event of the list is similar", may_be_resent=True)

    def _strong_verdict(
        self, one: _Search, matches: Sequence[_Match], free: Sequence[_Match], owners: Mapping[int, str]
    ) -> RowVerdict:
        """Return the verdict for a row with certain or strong matches."""
        first = matches[0]
        count, is_certain = one.counts[first.strength], first.strength is Strength.CERTAIN
        shared = next((self._claims[match.event_id] for match in free if self._claims[match.event_id] > 1), 0)
        if shared and not is_certain:
            why = f"title and start agree, but {shared} rows without an event match it"
            return RowVerdict(one.row, Verdict.CANDIDATE, _ids(free), why)
        if not free and count <= _STORED:
            return RowVerdict(one.row, Verdict.ABSENT, (), f"the similar event belongs to {owners[first.event_id]}")
        if len(free) > 1 or count > _STORED:
            return RowVerdict(one.row, Verdict.CANDIDATE, _ids(free), f"{count} events match")
        why = (
            "the event shows the row's idempotency key" if is_certain else f"{', '.join(first.agree)} agree, and nothing differs"
        )
        shows_news = not free[0].differ and free[0].body not in {one.row.body, one.row.baseline_body}
        return RowVerdict(one.row, Verdict.FOUND, _ids(free), why, free[0].body if shows_news else None)


def differing(row: RowRecord, event: ListedEvent) -> tuple[str, ...]:
    """Return which of title and start an event shows otherwise than its row."""
    payload = orjson.loads(row.shown)
    return tuple(name for name in ("title", "startAt") if _is_alike(payload.get(name), event.fields.get(name)) is False)


def _ids(matches: Iterable[_Match]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(match.event_id for match in matches))


def _words(value: object) -> str:
    """Return a text normalised for comparison (case, spaces, Unicode form); "" for any other value."""
    return " ".join(unicodedata.normalize("NFKC", value).casefold().split()) if isinstance(value, str) else ""


def _moment(value: object) -> datetime | None:
    """Parse an ISO date and time; None for anything else, and without a time zone."""
    if not isinstance(value, str) or not _MOMENT.match(value):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _shown(name: str, item: Mapping[str, Any]) -> object:
    """Return the item's value for a field of ours; a channel may be named differently."""
    if name in _CHANNEL:
        return next((item[other] for other in _CHANNEL if item.get(other) not in _MISSING), None)
    return item.get(name)


def _place(fields: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the city's identifier and the venue, None where a payload or item shows no city."""
    location = fields.get("approxLocation")
    city = location.get("city") if isinstance(location, dict) else None
    place_id = _words(city.get("placeId")) if isinstance(city, dict) else ""
    return (place_id, _words(fields.get("locationName"))) if place_id else None


def _looks_at(place: tuple[str, str] | None, title: str, start: datetime | None) -> Iterator[tuple[object, ...]]:
    """Yield what an event at a place looks like where its title or its start was edited."""
    if place is not None:
        yield from ((place, one) for one in (title, start) if one)


def _is_alike(ours: object, theirs: object) -> bool | None:  # noqa: PLR0911  # a table, one line a kind
    """Compare two values; None where theirs is missing or of a kind that cannot be compared."""
    if ours in _MISSING or theirs in _MISSING:
        return None
    match ours, theirs:
        case dict(), dict():
            return _are_alike((value, theirs.get(name)) for name, value in ours.items())
        case list(), list() if all(isinstance(one, str) for one in (*ours, *theirs)):
            return set(map(_words, ours)) == set(map(_words, theirs))
        case list(), list() if any(isinstance(one, str) for one in ours) and any(isinstance(one, dict) for one in theirs):
            return None  # slugs and objects, perhaps in another order
        case list(), list():
            return _are_alike(zip(ours, theirs, strict=True)) if len(ours) == len(theirs) else False
        case ((int() | str()), dict()):
            values = (theirs[name] for name in _NAMES_OF_A_THING if type(theirs.get(name)) is type(ours))
            return next((_is_alike(ours, value) for value in values), None)
        case str(), str():
            start, other = _moment(ours), _moment(theirs)
            return _words(ours) == _words(theirs) if start is None else None if other is None else start == other
        case int(), str() if theirs.strip().isdecimal():
            return ours == int(theirs)
        case ((int() | float()), (int() | float())):
            return ours == theirs
        case _:
            return None


def _are_alike(pairs: Iterable[tuple[object, object]]) -> bool | None:
    verdicts = [_is_alike(ours, theirs) for ours, theirs in pairs]
    return False if False in verdicts else True if True in verdicts else None


def reconcile(
    rows: Iterable[tuple[RowRecord, bool]],
    open_api: Callable[[], AbstractAsyncContextManager[EventApi]],
    owners: Callable[[Collection[int]], Mapping[int, str]],
    record: Callable[[Sequence[Found]], Collection[Found]] | None,
    advance: Advance,
) -> tuple[ListRead, Sequence[RowVerdict]]:
    """Read the list, match the rows and their rivals, and record what was found; return the verdicts, oldest row first.

    `owners`: returns by event id the rows that events belong to already. `record`: records found rows as delivered and returns
    those it could; None to record nothing; a row that changed meanwhile is left to a person.

    Raises:
        SyncError: the list cannot be read, or the state DB cannot record; nothing was recorded.
    """
    matching = Matching(rows)

    async def read() -> EventList:
        async with open_api() as api:
            listed = api.events()
            async for page in listed.pages():
                for event in page:
                    matching.meet(event)
                advance(len(page))
            return listed

    listed = run_async(read)
    verdicts = list(matching.verdicts(owners(matching.candidates())))
    if record is not None:
        how = "found in the service's list as event"
        found = [
            Found(one.row.entry_id, one.row.revision, event_id, f"{how} {event_id}: {one.why}", one.shown)
            for one in verdicts
            if one.verdict is Verdict.FOUND
            for event_id in one.event_ids
        ]
        lost = {one.entry_id for one in found} - {one.entry_id for one in (record(found) if found else ())}
        for number, one in enumerate(verdicts):
            if one.row.entry_id in lost:
                verdicts[number] = replace(one, verdict=Verdict.CANDIDATE, why=MOVED_ON)
    return ListRead(listed.read, listed.total, listed.is_whole, listed.without_id, tuple(sorted(matching.fields))), verdicts


def look_up(open_api: Callable[[], AbstractAsyncContextManager[EventApi]], event_id: int) -> ListedEvent | EventList:
    """Search the list for one event; return it if it is there, else the list that was read.

    Raises:
        SyncError: the list cannot be read.
    """

    async def look() -> ListedEvent | EventList:
        async with open_api() as api:
            listed = api.events()
            async for page in listed.pages():
                if found := next((event for event in page if event.event_id == event_id), None):
                    return found
            return listed

    return run_async(look)
