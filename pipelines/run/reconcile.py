"""Look up rows in the service's own list of events: compare field by field, match, and record what was found.

Nothing is known about the fields of a list item in advance: what it lacks neither agrees nor differs.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import orjson

from connectors.event_api.client import EventApi
from connectors.event_api.lists import EventList, ListedEvent
from mappings.errors import SyncError
from pipelines.run.options import Advance
from pipelines.run.signals import run_async
from state.ledger.decisions import Found, ReconcileCandidate

KEY_FIELDS = ("idempotencyKey", "idempotency_key")
"""Fields for the key that an event was created under; another key there is another row's event."""
REFERENCE_FIELDS = ("externalId", "external_id", "sourceId", "reference")
"""Further fields for it; anything else there proves nothing."""
_CHANNEL = ("channelId", "channel")
_NAMES_OF_A_THING = ("id", "slug", "name")
_MISSING: tuple[object, ...] = (None, "", [], {})
_CHANGES_LATER = frozenset({"status"})
"""A draft is published by hand later, or taken back: another status is the same event's."""
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")


class Strength(StrEnum):
    """How strongly an item resembles a row's event. `certain`: it shows the row's very key; `strong`: title and start
    agree, and nothing differs; `weak`: one of the two is not shown, and nothing differs; `near`: title and start agree, and
    something else than the channel differs, as after an edit by hand.
    """

    CERTAIN = "certain"
    STRONG = "strong"
    WEAK = "weak"
    NEAR = "near"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Likeness:
    """The names of our fields that agree and that differ; what the item lacks, or what cannot be compared, is neither."""

    strength: Strength
    agree: tuple[str, ...]
    differ: tuple[str, ...]


def likeness(payload: Mapping[str, Any], key: str, item: Mapping[str, Any]) -> Likeness:
    """Compare a row's payload and key with an item."""
    alike = {name: _is_alike(ours, _shown(name, item)) for name, ours in payload.items()}
    agree = tuple(name for name, is_alike in alike.items() if is_alike)
    differ = tuple(name for name, is_alike in alike.items() if is_alike is False and name not in _CHANGES_LATER)
    if shows_key(item, key):
        return Likeness(Strength.CERTAIN, ("idempotency key", *agree), differ)
    if any(item.get(name) not in _MISSING for name in KEY_FIELDS):
        differ = (*differ, "idempotency key")
    return Likeness(_strength(agree, differ), agree, differ)


def shows_key(item: Mapping[str, Any], key: str) -> bool:
    """Whether an item shows this idempotency key."""
    return any(item.get(name) == key for name in (*KEY_FIELDS, *REFERENCE_FIELDS))


def words(value: object) -> str:
    """Return a text without regard to case, spaces and Unicode form; "" for what is no text."""
    return " ".join(unicodedata.normalize("NFKC", value).casefold().split()) if isinstance(value, str) else ""


def moment(value: object) -> datetime | None:
    """Return the instant that a text names; None without a time zone."""
    if not isinstance(value, str) or not _MOMENT.match(value):
        return None
    try:
        told = datetime.fromisoformat(value)
    except ValueError:
        return None
    return told if told.tzinfo is not None else None


def _strength(agree: tuple[str, ...], differ: tuple[str, ...]) -> Strength:
    shown = {"title", "startAt"} & set(agree)
    if differ:
        is_another = {"idempotency key", *_CHANNEL} & set(differ)
        return Strength.NEAR if len(shown) == 2 and not is_another else Strength.NONE
    return Strength.STRONG if len(shown) == 2 else Strength.WEAK if shown else Strength.NONE


def _shown(name: str, item: Mapping[str, Any]) -> object:
    """Return the item's value for a field of ours; the channel may be an object."""
    if name in _CHANNEL:
        return next((item[other] for other in _CHANNEL if item.get(other) not in _MISSING), None)
    return item.get(name)


def _is_alike(ours: object, theirs: object) -> bool | None:  # noqa: PLR0911  # a table, one line a kind
    """Compare two values; None where theirs is missing or of a kind that cannot be compared."""
    if ours in _MISSING or theirs in _MISSING:
        return None
    match ours, theirs:
        case dict(), dict():
            return _all_alike([_is_alike(value, theirs.get(name)) for name, value in ours.items()])
        case list(), list():
            return _is_list_alike(ours, theirs)
        case ((int() | str()), dict()):
            told = (theirs[name] for name in _NAMES_OF_A_THING if type(theirs.get(name)) is type(ours))
            return next((_is_alike(ours, value) for value in told), None)
        case str(), str():
            return _is_text_alike(ours, theirs)
        case int(), str() if theirs.strip().isdecimal():
            return ours == int(theirs)
        case ((int() | float()), (int() | float())):
            return ours == theirs
        case _:
            return None


def _is_text_alike(ours: str, theirs: str) -> bool | None:
    ours_at, theirs_at = moment(ours), moment(theirs)
    if ours_at is not None:
        return ours_at == theirs_at if theirs_at is not None else None
    return words(ours) == words(theirs)


def _is_list_alike(ours: list[Any], theirs: list[Any]) -> bool | None:
    if all(isinstance(one, str) for one in (*ours, *theirs)):
        return set(map(words, ours)) == set(map(words, theirs))
    if any(isinstance(one, str) for one in ours) and any(isinstance(one, dict) for one in theirs):
        return None  # slugs and things, perhaps in another order
    if len(ours) != len(theirs):
        return False
    return _all_alike([_is_alike(one, other) for one, other in zip(ours, theirs, strict=True)])


def _all_alike(verdicts: list[bool | None]) -> bool | None:
    if False in verdicts:
        return False
    return True if True in verdicts else None


_KEPT = 20
_FIELDS_NAMED = 200
_ORDER = tuple(Strength)


class Verdict(StrEnum):
    """`found`: one event of the list is the row's; `candidate`: a person decides which is; `absent`: none, as far as it shows."""

    FOUND = "found"
    CANDIDATE = "candidate"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class RowVerdict:
    """The verdict on one row: the events in question, the first few, and why, for people.

    `shown`: the body that a found event shows, where it is what the source asks for now and not the pinned one.
    `may_be_resent`: no event of the list can be the row's.
    """

    row: ReconcileCandidate
    verdict: Verdict
    event_ids: tuple[int, ...]
    why: str
    shown: bytes | None = None
    may_be_resent: bool = False


@dataclass(slots=True)
class _Met:
    """Events of one strength that were met: how many, and the first few with how each is alike, and with which body."""

    count: int = 0
    ids: dict[int, tuple[Likeness, bytes]] = field(default_factory=dict)

    def note(self, event_id: int, alike: tuple[Likeness, bytes]) -> None:
        self.count += 1
        if len(self.ids) < _KEPT:
            self.ids[event_id] = alike

    @property
    def first(self) -> Likeness:
        """How the first one is alike."""
        return next(iter(self.ids.values()))[0]

    def free(self, owners: Mapping[int, str]) -> list[int]:
        """Return the events that are no other row's."""
        return [event_id for event_id in self.ids if event_id not in owners]


@dataclass(slots=True)
class _Wanted:
    """A row, the payloads that its event may show, by their bodies, and the events that were met for it."""

    row: ReconcileCandidate
    payloads: Mapping[bytes, Mapping[str, Any]]
    met: dict[Strength, _Met] = field(default_factory=dict)

    def likeness(self, event: ListedEvent) -> tuple[Likeness, bytes]:
        """Compare with the body that the event is most alike; of several the pinned one."""
        found = ((likeness(payload, self.row.key, event.fields), body) for body, payload in self.payloads.items())
        return min(found, key=lambda one: (_ORDER.index(one[0].strength), len(one[0].differ)))


class Matching:
    """One search: rows first, then every event once, then the verdicts. Memory grows with the rows, not with the events."""

    def __init__(self, rows: Iterable[ReconcileCandidate]) -> None:
        self._wanted = [_Wanted(row, _payloads(row)) for row in rows]
        self._by_key = {str(one.row.key): one for one in self._wanted}
        self._alike: dict[tuple[str, datetime | None], list[_Wanted]] = defaultdict(list)
        for one in self._wanted:
            for place in _places(one):
                self._alike[place].append(one)
        self._unreadable = 0
        self._claims: dict[int, int] = defaultdict(int)
        self.fields: set[str] = set()

    def meet(self, event: ListedEvent) -> None:
        """Take one event of the list into account. One that shows a row's key is compared with no other row."""
        if len(self.fields) < _FIELDS_NAMED:
            self.fields.update(event.fields)
        if not self._meet_key(event):
            self._meet_likeness(event)

    def candidates(self) -> set[int]:
        """Return the ids of all events in question, to ask which of them are rows already."""
        return {event_id for one in self._wanted for met in one.met.values() for event_id in met.ids}

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
        for one in self._alike.get((title, start), ()):
            found = one.likeness(event)
            strength = found[0].strength
            if strength is not Strength.NONE:
                one.met.setdefault(strength, _Met()).note(event.event_id, found)
                self._claims[event.event_id] += strength is Strength.STRONG

    def _verdict(self, one: _Wanted, owners: Mapping[int, str]) -> RowVerdict:
        met = one.met
        certain = met.get(Strength.CERTAIN, _Met())
        if certain.count:
            return _settled(one, certain, certain.free(owners), "it shows the row's idempotency key", owners)
        strong = met.get(Strength.STRONG, _Met())
        if strong.count:
            free = strong.free(owners)
            shared = [event_id for event_id in free if self._claims[event_id] > 1]
            if shared:
                why = f"title and start agree, but {self._claims[shared[0]]} rows without an event look like it"
                return RowVerdict(one.row, Verdict.CANDIDATE, tuple(free), why)
            return _settled(one, strong, free, f"{', '.join(strong.first.agree)} agree, and nothing differs", owners)
        return self._unsure(one, met, owners)

    def _unsure(self, one: _Wanted, met: Mapping[Strength, _Met], owners: Mapping[int, str]) -> RowVerdict:
        for strength in (Strength.WEAK, Strength.NEAR):
            alike = met.get(strength, _Met())
            if free := alike.free(owners):
                return RowVerdict(one.row, Verdict.CANDIDATE, tuple(free), _why_unsure(alike.first))
        if taken := [owners[event_id] for alike in met.values() for event_id in alike.ids]:
            return RowVerdict(one.row, Verdict.ABSENT, (), f"each one that looks like it is another row's: {taken[0]}")
        if self._unreadable:
            why = f"the list shows neither title nor start of {self._unreadable:,} events: nothing can be said"
            return RowVerdict(one.row, Verdict.ABSENT, (), why)
        return RowVerdict(one.row, Verdict.ABSENT, (), "no event of the list looks like it", may_be_resent=True)


def _payloads(row: ReconcileCandidate) -> dict[bytes, Mapping[str, Any]]:
    bodies = (row.body, row.baseline, row.asked)
    return {body: orjson.loads(body) for body in bodies if body is not None}


def _places(one: _Wanted) -> Iterable[tuple[str, datetime | None]]:
    """Return what a row is looked up by: title and start, and either of them for items that do not show the other."""
    found: dict[tuple[str, datetime | None], None] = {}
    for payload in one.payloads.values():
        title, start = words(payload.get("title")), moment(payload.get("startAt"))
        found |= dict.fromkeys(((title, start), (title, None), ("", start)))
    return found


def _settled(one: _Wanted, met: _Met, free: list[int], why: str, owners: Mapping[int, str]) -> RowVerdict:
    if not free and met.count <= _KEPT:
        owner = owners.get(next(iter(met.ids)), "another row")
        return RowVerdict(one.row, Verdict.ABSENT, (), f"the one that looks like it is {owner}")
    if len(free) == 1 and met.count <= _KEPT:
        alike = met.ids[free[0]]
        is_asked = not alike[0].differ and alike[1] not in {one.row.body, one.row.baseline}
        return RowVerdict(one.row, Verdict.FOUND, (free[0],), why, alike[1] if is_asked else None)
    return RowVerdict(one.row, Verdict.CANDIDATE, tuple(free), f"{met.count} events look like it")


def _why_unsure(alike: Likeness) -> str:
    if alike.differ:
        return f"{', '.join(alike.agree)} agree, but not {', '.join(alike.differ)}"
    return f"no more than {', '.join(alike.agree)} can be compared"


MOVED_ON = "it was found, but the row has changed while the list was read"


class UnaccountedRowsError(SyncError):
    """Rows that were looked for ended nowhere, or twice: the numbers cannot be trusted."""


@dataclass(frozen=True, slots=True)
class ReconcileJob:
    """`rows`: those looked for, and their rivals; `owners`: which events belong to rows already, by id.

    `record`: makes found rows delivered and returns those that it did, None to record nothing.
    """

    rows: Iterable[ReconcileCandidate]
    open_api: Callable[[], AbstractAsyncContextManager[EventApi]]
    owners: Callable[[Collection[int]], Mapping[int, str]]
    record: Callable[[Sequence[Found]], Collection[Found]] | None
    advance: Advance


@dataclass(frozen=True, slots=True)
class ListRead:
    """How the list was read. `is_whole`: as many events were read as the service counts; `fields`: what items have."""

    events: int
    total: int | None
    is_whole: bool
    without_id: int
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What the list says about every row looked for: `sought = found + candidates + absent`."""

    read: ListRead
    verdicts: tuple[RowVerdict, ...]

    def of(self, verdict: Verdict) -> list[RowVerdict]:
        """Return the rows of one verdict, oldest first."""
        return [one for one in self.verdicts if one.verdict is verdict]

    def counts(self) -> dict[str, int]:
        """Return the numbers, balanced. Raises `UnaccountedRowsError` if they are not."""
        found, candidates, absent = (len(self.of(verdict)) for verdict in Verdict)
        if found + candidates + absent != len(self.verdicts):
            raise UnaccountedRowsError("the rows looked for do not add up", hint="please report this as a fault of eventsync")
        return {"sought": len(self.verdicts), "found": found, "candidates": candidates, "absent": absent}


def reconcile(job: ReconcileJob) -> Reconciled:
    """Read the list, match, and record.

    Raises:
        SyncError: the list cannot be read, or the state DB cannot record; nothing was recorded.
    """
    matching = Matching(job.rows)
    listed = run_async(lambda: _read(job, matching))
    owners = job.owners(matching.candidates())
    verdicts = tuple(matching.verdicts(owners))
    read = ListRead(listed.read, listed.total, listed.is_whole, listed.without_id, tuple(sorted(matching.fields)))
    return Reconciled(read, verdicts if job.record is None else _recorded(job.record, verdicts))


def is_listed(open_api: Callable[[], AbstractAsyncContextManager[EventApi]], event_id: int) -> EventList | None:
    """Look for one event; return None if it is listed, else the list that was read in vain.

    Raises:
        SyncError: the list cannot be read.
    """

    async def look() -> EventList | None:
        async with open_api() as api:
            listed = api.events()
            async for page in listed.pages():
                if any(event.event_id == event_id for event in page):
                    return None
            return listed

    return run_async(look)


async def _read(job: ReconcileJob, matching: Matching) -> EventList:
    async with job.open_api() as api:
        listed = api.events()
        async for page in listed.pages():
            for event in page:
                matching.meet(event)
            job.advance(len(page))
        return listed


def _recorded(record: Callable[[Sequence[Found]], Collection[Found]], verdicts: tuple[RowVerdict, ...]) -> tuple[RowVerdict, ...]:
    """Record what was found; a row that changed meanwhile is left for a person."""
    found = {one.row.entry_id: _as_found(one) for one in verdicts if one.verdict is Verdict.FOUND}
    written = {one.entry_id for one in record(tuple(found.values()))} if found else set()
    lost = found.keys() - written
    return tuple(replace(one, verdict=Verdict.CANDIDATE, why=MOVED_ON) if one.row.entry_id in lost else one for one in verdicts)


def _as_found(one: RowVerdict) -> Found:
    (event_id,) = one.event_ids
    how = f"found in the service's list as event {event_id}: {one.why}"
    return Found(one.row.entry_id, one.row.revision, event_id, how, one.shown)
