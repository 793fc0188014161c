"""The state of one read: its rules, the known entries that it has met, row digests, and the index of duplicates.

Row digests, by which the next read recognises unchanged rows before mapping (budget 2), are sorted arrays, split by the first
byte and searched by bisection: 16 bytes a row. A database index would be fetched row by row (1 us each), and a Python set of a
million would take half of the memory of budget 8.

A database index of the duplicate digests would be rewritten entry by entry, and cost more than the entries themselves (budget
4). So they are stored separately, as marks that are written in sorted order, many at a time.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, Select, bindparam, cast, delete, func, insert, null, select, union_all, update

from mappings.delivery import split_destination
from mappings.outcome import Gone, RowOutcome, Skipped
from mappings.row_key import FeedName, RowKey
from state.database import in_pages, insert_if_new, reading, rounded
from state.enums import EntryState, GateState
from state.ledger.accounts import Candidate, ReadKind, StagePolicy, Tally
from state.ledger.entries import IS_NEVER_SENT, MARK, MARK_BYTES, MAY_BE_OUT, SOME, WITHOUT_EVENT, count_entries, count_to_come
from state.ledger.lease import FencedTransaction
from state.ledger.problems import ListedProblems, stem_of
from state.tables import DUPLICATE_MARK, ENTRY, ROW_DIGESTS, SCOPE, SIDE_BY_SIDE, storable

_AT_A_TIME = 16_384
_SCOPES_AT_A_TIME = 100  # SQLite allows 500 SELECTs in a UNION
_SERVICE_LOCK = 0x6576_7365
"""An arbitrary number of our own, which names PostgreSQL's advisory lock."""
_MAY_HAVE_EVENT = [state.value for state in EntryState if state.value not in WITHOUT_EVENT]
_BY_ID = select(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.scope_id, ENTRY.c.twin_digest)
_MARKED = select(DUPLICATE_MARK.c.entry_id).where(DUPLICATE_MARK.c.mark.in_(bindparam("marks", expanding=True)))
_WITH_EVENT = _BY_ID.where(SOME, ENTRY.c.state.not_in(WITHOUT_EVENT), ENTRY.c.removed_at.is_(None)).order_by(ENTRY.c.id)


# All states there are: by the index of states, that leads to the youngest entries of a feed and to no other ones.
_IN_ANY_STATE = ENTRY.c.state.in_([state.value for state in EntryState])
_UNMARKED = (ENTRY.c.scope_id == bindparam("scope"), _IN_ANY_STATE, ENTRY.c.id > bindparam("after"))
_MISSING = select(MARK, ENTRY.c.id).where(*_UNMARKED, ENTRY.c.state != EntryState.HELD.value).order_by(MARK, ENTRY.c.id)
_NO_ENTRY = cast(null(), ENTRY.c.id.type)
_STAGED = select(ENTRY.c.twin_digest, ENTRY.c.id.label("entry_id"), _NO_ENTRY.label("other_id"))
_STAGED = _STAGED.where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.id > bindparam("boundary"), IS_NEVER_SENT)
_SHOWN = select(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.origin, ENTRY.c.scope_id).where(SOME)
_BESIDE = select(ENTRY.c.twin_digest, _NO_ENTRY, ENTRY.c.id)
_BESIDE = _BESIDE.where(ENTRY.c.state.in_(_MAY_HAVE_EVENT), ENTRY.c.removed_at.is_(None))


class Neighbour(NamedTuple):
    """A scope of the service whose events a row may duplicate, including the feed's own. `marked_id`: the highest entry with
    marks; `is_staging`: a read is being recorded, or was cut short.
    """

    feed: FeedName
    namespace: str
    marked_id: int
    is_staging: bool
    whole_read_at: datetime | None


@dataclass(frozen=True, slots=True)
class OrphanedFeed:
    """Rows delivered under a name that is no longer used: those of `feed`, in another `namespace` unless it is "".

    `rows`: for a feed without a mapping file its future events, otherwise all that may be at the service.
    """

    feed: str
    namespace: str
    rows: int


class DuplicateIndex:
    """The duplicate digests of a service during a read: marks of committed entries, and the read's latest ones in memory.

    `apart`: scopes of the service whose entries do not cause rows to be held.
    """

    def __init__(self, connection: Connection, scope_id: int) -> None:
        """Open the index, and write all missing marks."""
        self._scope_id = scope_id
        self._recent: dict[bytes, RowKey] = {}
        self.apart: set[int] = set()
        self.write(connection)
        self._at_first = read_neighbours(connection, scope_id)
        self._is_blank = not any(each.marked_id for each in self._at_first.values())

    def find(self, connection: Connection, digests: Collection[bytes]) -> dict[bytes, Candidate]:
        """Return, by duplicate digest, the oldest entry with it that has an event or may still get one.

        Two look-ups: while these tables are filled, PostgreSQL's statistics may say that they are empty, and of a join it would
        make a nested loop over all pairs of entries and marks.
        """
        wanted = frozenset(digests)
        found: dict[bytes, Candidate] = {}
        if wanted and not self._is_blank:
            marks = rounded([digest[:MARK_BYTES] for digest in wanted])
            marked = sorted(set(connection.execute(_MARKED, {"marks": marks}).scalars()))
            pages = (connection.execute(_WITH_EVENT, {"entries": rounded(page)}) for page in in_pages(marked))
            for row in chain.from_iterable(pages):
                if row.twin_digest in wanted and row.scope_id in self._at_first and row.scope_id not in self.apart:
                    found.setdefault(row.twin_digest, self._candidate(row))
        for digest in wanted & self._recent.keys():
            found.setdefault(digest, Candidate(0, self._recent[digest]))
        return found

    def by_id(self, connection: Connection, entries: Collection[int]) -> dict[int, Candidate]:
        """Return entries as candidates, by id."""
        rows = connection.execute(_BY_ID.where(SOME), {"entries": rounded(entries)}) if entries else ()
        return {row.id: self._candidate(row) for row in rows}

    def create(self, digest: bytes, row_key: RowKey) -> None:
        """Record a new row, whose mark is written later."""
        self._recent[digest] = row_key

    def keep_up(self, connection: Connection) -> None:
        """Write the marks of new rows if there are many; each write changes nearly every page of the marks."""
        if len(self._recent) >= _AT_A_TIME:
            self.write(connection)

    def write(self, connection: Connection) -> None:
        """Write all missing marks, including those of a read that was cut short."""
        after = connection.execute(select(SCOPE.c.marked_id).where(SCOPE.c.id == self._scope_id)).scalar_one()
        unmarked = {"scope": self._scope_id, "after": after}
        newest = connection.execute(select(func.max(ENTRY.c.id)).where(*_UNMARKED), unmarked).scalar()
        if newest is not None:
            fill = insert_if_new(connection, DUPLICATE_MARK).from_select(("mark", "entry_id"), _MISSING)
            connection.execute(fill, unmarked)
            connection.execute(update(SCOPE).where(SCOPE.c.id == self._scope_id).values(marked_id=newest))
            self._is_blank = False
        self._recent.clear()

    def find_staged_beside(self, connection: Connection, boundary: int) -> Iterator[tuple[int, RowKey, str, Candidate]]:
        """Yield the read's new entries, after `boundary`, that resemble entries staged by other feeds meanwhile, with id, key
        and place.

        No other feed of the service may end a stage. The window function sorts, and the entries are looked up by their ids: of
        a join of tables that were just filled PostgreSQL makes a nested loop over all pairs of rows.
        """
        neighbours, beside = read_neighbours(connection, self._scope_id), list[Select[Any]]()
        for other_id, other in neighbours.items():
            after = self._at_first[other_id].marked_id if other_id in self._at_first else 0
            if other_id != self._scope_id and (other.is_staging or other.marked_id != after or not after):
                beside.append(_BESIDE.where(ENTRY.c.scope_id == other_id, ENTRY.c.id > after))
        for page in (beside[start : start + _SCOPES_AT_A_TIME] for start in range(0, len(beside), _SCOPES_AT_A_TIME)):
            staged = union_all(_STAGED, *page).subquery()
            oldest = func.min(staged.c.other_id).over(partition_by=staged.c.twin_digest).label("other_id")
            alike = select(staged.c.entry_id, oldest).subquery()
            found = select(alike).where(alike.c.entry_id.is_not(None), alike.c.other_id.is_not(None)).order_by(alike.c.entry_id)
            pairs = connection.execute(found, {"scope": self._scope_id, "boundary": boundary}).all()
            for some in in_pages(pairs):
                ids = {entry_id for pair in some for entry_id in pair}
                entries = {row.id: row for row in connection.execute(_SHOWN, {"entries": rounded(ids)})}
                for entry, like in ((entries[entry_id], entries[other_id]) for entry_id, other_id in some):
                    of = neighbours[like.scope_id]
                    yield entry.id, entry.row_key, entry.origin, Candidate(like.id, like.row_key, of.feed, of.namespace)

    def _candidate(self, row: Row[*tuple[Any, ...]]) -> Candidate:
        place = self._at_first.get(row.scope_id) if row.scope_id != self._scope_id else None
        return Candidate(row.id, row.row_key, place.feed, place.namespace) if place else Candidate(row.id, row.row_key)


def read_neighbours(connection: Connection, scope_id: int) -> Mapping[int, Neighbour]:
    """Return the scopes of the feed's service, except those that a person lets deliver side by side with it."""
    own = connection.execute(select(SCOPE.c.service, SCOPE.c.namespace).where(SCOPE.c.id == scope_id)).one()
    apart = select(SIDE_BY_SIDE.c.other_id).where(SIDE_BY_SIDE.c.scope_id == scope_id)
    columns = (SCOPE.c.id, SCOPE.c.feed, SCOPE.c.namespace, SCOPE.c.marked_id, SCOPE.c.gate, SCOPE.c.whole_read_at)
    rows = connection.execute(select(*columns).where(SCOPE.c.service == own.service, SCOPE.c.id.not_in(apart)))
    return {row.id: as_neighbour(row, own.namespace) for row in rows}


def as_neighbour(scope: Row[*tuple[Any, ...]], namespace: str) -> Neighbour:
    """Return a scope as a feed of this namespace sees it."""
    place = "" if scope.namespace == namespace else scope.namespace
    return Neighbour(scope.feed, place, scope.marked_id, scope.gate == GateState.STAGING.value, scope.whole_read_at)


def lock_service(connection: Connection, scope_id: int) -> None:
    """Lock the service until the transaction ends, so that no other feed ends a stage: two would not see each other's rows.

    Call it first in a transaction: it waits as long as it takes, and heartbeats would wait for a lease that is locked already.
    SQLite allows only one writer anyway.
    """
    if connection.dialect.name == "postgresql":
        service = select(func.hashtext(SCOPE.c.service)).where(SCOPE.c.id == scope_id).scalar_subquery()
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
        connection.execute(select(func.pg_advisory_xact_lock(_SERVICE_LOCK, service)))
        connection.exec_driver_sql("SET LOCAL lock_timeout TO DEFAULT")


def find_orphaned_feeds(engine: Engine, destination: str, feeds: Collection[str], now: datetime) -> tuple[OrphanedFeed, ...]:
    """Return the feeds with a mapping file that never delivered here but in another namespace, and those with future events and
    no mapping file.
    """
    service, namespace = split_destination(destination)
    found = []
    with reading(engine) as connection:
        listed = select(SCOPE).where(SCOPE.c.service == service).order_by(SCOPE.c.feed, SCOPE.c.namespace)
        scopes = connection.execute(listed).all()
        let_out = {scope.feed for scope in scopes if scope.namespace == namespace and scope.released_id}
        apart = set(connection.execute(select(SIDE_BY_SIDE.c.scope_id)).scalars())
        for scope in scopes:
            is_here, is_known = scope.namespace == namespace, scope.feed in feeds
            if is_here and not is_known:
                found.append(OrphanedFeed(scope.feed, "", count_to_come(connection, scope.id, now)))
            elif not is_here and is_known and scope.feed not in let_out and scope.id not in apart:
                rows = count_entries(connection, ENTRY.c.scope_id == scope.id, MAY_BE_OUT)
                found.append(OrphanedFeed(scope.feed, scope.namespace, rows))
    return tuple(one for one in found if one.rows)


class Mark:
    """Flags of an entry in a read: its row is in the source; was mapped without a problem; is unchanged; was staged by this
    read; is claimed by two rows; was reported as deleted; vanished newly before its event; must be mapped even if unchanged.
    """

    PRESENT, MAPPED, UNCHANGED, STAGED, CONFLICTING, DELETED, VANISHED, DOUBTFUL = (1 << bit for bit in range(8))


_NEW = Mark.PRESENT | Mark.MAPPED | Mark.STAGED


class ReadMarks:
    """One byte of flags for each entry; `known`: those from before this read.

    `boundary`: the highest id of those; entries above it are new in this read.
    """

    def __init__(self, boundary: int) -> None:
        self.boundary = boundary
        self.known = bytearray(boundary + 1)
        self._new: dict[int, int] = {}

    def mark(self, entry_id: int, flags: int) -> None:
        """Set these flags of an entry."""
        if entry_id <= self.boundary:
            self.known[entry_id] |= flags
        elif flags & ~_NEW:
            self._new[entry_id] = self.flags(entry_id) | flags

    def flags(self, entry_id: int) -> int:
        """Return all flags of an entry."""
        return self.known[entry_id] if entry_id <= self.boundary else self._new.get(entry_id, _NEW)

    def has(self, entry_id: int, flag: int) -> bool:
        """Return whether an entry has a flag."""
        flags = self.known[entry_id] if entry_id <= self.boundary else self._new.get(entry_id, _NEW)
        return bool(flags & flag)

    def is_deleted(self, entry_id: int) -> bool:
        """Return whether the source reported the row as deleted, and has no other row of it."""
        return self.flags(entry_id) & (Mark.DELETED | Mark.PRESENT) == Mark.DELETED

    def count(self, flag: int) -> int:
        """Count the entries from before this read with a flag."""
        return self.known.translate(bytes(bool(flags & flag) for flags in range(256))).count(1)

    def find(self, flag: int) -> Iterator[int]:
        """Yield the entries with a flag, oldest first."""
        if self.count(flag):
            yield from (entry_id for entry_id, flags in enumerate(self.known) if flags & flag)
        yield from (entry_id for entry_id, flags in self._new.items() if flags & flag)


_SEPARATOR = re.compile(r"(?:[^\\|]|\\.)*+\|", re.DOTALL)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_OCCURRENCE = re.compile(rf"({_DAY.pattern})T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}Z?")


class UnreadEvents:
    """The events about which a read gives no information, so that they do not count as vanished: those of unusable rows, and
    days outside the range.

    `days`: the first and last ISO day for which recurring events were computed. The key of such an event ends in its day. Past
    days, and days beyond the feed's horizon, are in no read. Memory: the rows that were rejected or left out as a whole.
    """

    def __init__(self, days: tuple[str, str] | None) -> None:
        self._days = days
        self._after: dict[str, str] = {}

    def note(self, outcome: RowOutcome) -> None:
        """Record the events about which a row gives no information."""
        silence = outcome.part.silence
        if silence is not None:
            self._after[storable(silence.stem)] = silence.after

    def covers(self, row_key: str) -> bool:
        """Return whether the absence of this entry means nothing."""
        if self._days is None and not self._after:
            return False
        ends: list[int] = []  # of each part but the last; a bar that belongs to a part is escaped
        while found := _SEPARATOR.match(row_key, ends[-1] if ends else 0):
            ends.append(found.end())
        day = row_key[ends[-1] :] if ends else ""
        is_day = _DAY.fullmatch(day) is not None
        if is_day and self._days is not None and not self._days[0] <= day <= self._days[1]:
            return True
        occurrence = _OCCURRENCE.fullmatch(day)
        latest = day if is_day else occurrence[1] if occurrence else "\uffff"
        return any((after := self._after.get(row_key[: end - 1])) is not None and latest > after for end in ends)


_PARTS = range(256)
_USED_BYTES = 8
_CREATED = select(ENTRY.c.id).where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.state == EntryState.PENDING.value)
_CREATED = _CREATED.where(ENTRY.c.id > bindparam("after")).order_by(ENTRY.c.id)
_UNSETTLED = tuple(state.value for state in EntryState if state is not EntryState.DELIVERED)


class RowDigests:
    """The digests of rows that match their entry, with the entries' ids.

    `is_kept`: this read stores its digests for the next one.
    """

    def __init__(self, marks: ReadMarks) -> None:
        self._marks = marks
        self.is_kept = False
        self._known = [(array("Q"), array("Q")) for _ in _PARTS]
        self._added = [array("Q") for _ in _PARTS]  # digest, entry, digest, entry, ...
        self._created: list[bytes] = []
        self._newest = marks.boundary

    def load(self, connection: Connection, scope_id: int) -> None:
        """Load the digests of the last read, and mark the entries whose row must be mapped even if unchanged.

        Vanished entries are not among them: the last read did not have their rows.
        """
        for row in connection.execute(select(ROW_DIGESTS).where(ROW_DIGESTS.c.scope_id == scope_id)):
            for numbers, stored in zip(self._known[row.part], (row.digests, row.entries), strict=True):
                numbers.frombytes(stored)
        for is_doubtful in (ENTRY.c.state.in_(_UNSETTLED), ENTRY.c.drift_kind.is_not(None)):  # by an index each
            doubtful = select(ENTRY.c.id).where(ENTRY.c.scope_id == scope_id, is_doubtful)
            for entry_id in connection.execute(doubtful).scalars():
                self._marks.mark(entry_id, Mark.DOUBTFUL)

    def unchanged(self, digests: Iterable[bytes]) -> list[int]:
        """Return, for each row of a chunk, the entry that it leaves unchanged, 0 if the row must be mapped.

        Of several rows of an entry only the first can be skipped.
        """
        known, entries = self._known, list[int]()
        for digest in digests:
            entry_id = 0
            if digest:
                numbers, of_numbers = known[digest[0]]
                number = int.from_bytes(digest[:_USED_BYTES])
                place = bisect_left(numbers, number)
                if place < len(numbers) and numbers[place] == number:
                    entry_id = of_numbers[place]
            entries.append(entry_id)
        flags, met, chosen = self._marks.known, {0}, list[int]()
        if len(met.union(entries)) > len(entries) and not any(map(flags.__getitem__, entries)):
            return entries  # all are known, once each, and none is marked: as in most chunks (budget 2)
        for entry_id in entries:
            chosen.append(0 if flags[entry_id] or entry_id in met else entry_id)
            met.add(entry_id)
        return chosen

    def add(self, digest: bytes, entry_id: int) -> None:
        """Add the digest of a row that matches an entry; b"": the row must be mapped in every read."""
        if digest and self.is_kept:
            self._added[digest[0]].extend((int.from_bytes(digest[:_USED_BYTES]), entry_id))

    def add_created(self, digest: bytes) -> None:
        """Add the digest of a row that gets a new entry; call it for all such rows, in the order in which they are written."""
        if self.is_kept:
            self._created.append(digest)

    def settle(self, connection: Connection, scope_id: int) -> None:
        """Assign the ids of new entries to the digests of a written batch; ids follow the order of its rows."""
        if self._created:
            ids = connection.execute(_CREATED, {"scope": scope_id, "after": self._newest}).scalars().all()
            for digest, entry_id in zip(self._created, ids, strict=True):
                self.add(digest, entry_id)
            self._newest = ids[-1]
            self._created.clear()

    def keep(self, connection: Connection, scope_id: int) -> None:
        """Replace the digests of the last read by those of this one, in the transaction that opens the gate."""
        if not self.is_kept:
            return
        connection.execute(delete(ROW_DIGESTS).where(ROW_DIGESTS.c.scope_id == scope_id))
        rows, flags, conflicting = [], self._marks.known, set(self._marks.find(Mark.CONFLICTING))
        for part, (known, added) in enumerate(zip(self._known, self._added, strict=True)):
            pairs = [pair for pair in zip(*known, strict=True) if flags[pair[1]] & Mark.UNCHANGED]
            pairs += zip(added[::2], added[1::2], strict=True)
            if conflicting:
                pairs = [pair for pair in pairs if pair[1] not in conflicting]
            if pairs:
                pairs.sort()
                digests, entries = array("Q", [pair[0] for pair in pairs]), array("Q", [pair[1] for pair in pairs])
                rows.append({"part": part, "digests": digests.tobytes(), "entries": entries.tobytes()})
        if rows:
            connection.execute(insert(ROW_DIGESTS).values(scope_id=scope_id), rows)


class SourceRead:
    """The state of one read: the ledger at its start, its policy, and what it has met and counted so far.

    `scope`: the feed's scope at the start, `boundary` its highest entry; `known_before`: its released entries. `is_whole`: the
    source is read completely. `stamp`: evidence of the content's version. `left_out`: the known entries that a rule now leaves
    out, with the rule; `left_out_stems`: such rows with several events. `stems`: the rows met by a read that does not cover the
    others of its source.
    """

    def __init__(
        self,
        connection: Connection,
        run: FencedTransaction,
        policy: StagePolicy,
        before: tuple[Row[*tuple[Any, ...]], int, int],
        *,
        is_whole: bool,
        stamp: str,
    ) -> None:
        self.run = run
        self.policy = policy
        self.scope, boundary, self.known_before = before
        self.is_whole = is_whole
        self.stamp = stamp
        self.marks = ReadMarks(boundary)
        self.digests = RowDigests(self.marks)
        self.listed = ListedProblems(policy.row_parts)
        self.duplicates = DuplicateIndex(connection, run.scope_id)
        self.unread = UnreadEvents(policy.days)
        self.tally = Tally()
        self.left_out: dict[int, str] = {}
        self.left_out_stems: dict[str, str] = {}
        self.stems: set[str] = set()

    def note(self, outcomes: Sequence[RowOutcome]) -> None:
        """Record which events these rows have, and about which they give no information."""
        kind, row_parts = self.policy.kind, self.policy.row_parts
        for outcome in outcomes:
            rule = ""
            if isinstance(outcome, Skipped) and kind is not ReadKind.CHOSEN and outcome.part.silence is not None:
                rule = "" if outcome.is_cancelled else name_rule(outcome)
            if not rule:
                self.unread.note(outcome)
            if row_parts is None or not (outcome.row_key or rule):
                continue
            stem = stem_of(outcome.row_key, row_parts)
            if rule:
                self.left_out_stems[stem] = rule
            if outcome.row_key and (kind is ReadKind.INCREMENTAL or (isinstance(outcome, Gone) and outcome.is_stem)):
                self.stems.add(stem)


def name_rule(row: Skipped) -> str:
    """Return the rule that leaves a row out as text, "" if it is not one of the mapping's."""
    return f"rule {row.rule}: {row.because}" if row.rule else ""
