"""One read of a source: its rules, and what it has met so far of the entries that the ledger knows.

The digests by which the next read knows rows that are as they were, before it maps them (budget 2), are kept as sorted arrays,
cut by their first byte, and found by bisection: 16 bytes a row. A database index of them would have to be fetched row by row
(1 us each), and a Python set of a million would take half of the memory of budget 8.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from sqlalchemy import Connection, Row, bindparam, delete, insert, select

from mappings.outcome import Gone, RowOutcome, Skipped
from state.enums import EntryState
from state.ledger.accounts import ListedProblems, Tally, stem_of
from state.ledger.duplicates import DuplicateIndex
from state.ledger.lease import FencedTransaction
from state.tables import ENTRY, ROW_DIGESTS, storable

OnChange = Literal["report", "ignore", "create_draft_again"]
OnVanish = Literal["report", "ignore"]


class ReadKind(StrEnum):
    """What a read takes in: all that its source has now, what changed since the bookmark, or rows that a person named."""

    FULL = "full"
    INCREMENTAL = "incremental"
    CHOSEN = "chosen"


@dataclass(frozen=True, slots=True)
class StagePolicy:
    """The rules of one read.

    `on_change`: a delivered row that changed is listed as drift, only counted as such, or drafted again as a new event;
    `on_vanish`: a row that is gone is marked and listed, or not. `holds_copies`: rows that look like copies of known
    entries are held. `drafts_only`: all that this read pins is a draft. `accepted`: the brakes that this run may pass.
    `days`: the first and the last ISO day of recurring events of which this read says anything; None where no event recurs.
    `row_parts`: of how many parts a row's own key is, where a row may stand for several events whose keys begin with it; None: a
    row is an event. `key_definition`: what makes the feed's keys, "" where that is not compared.
    """

    on_change: OnChange = "report"
    on_vanish: OnVanish = "report"
    holds_copies: bool = True
    drafts_only: bool = False
    accepted: tuple[str, ...] = ()
    days: tuple[str, str] | None = None
    kind: ReadKind = ReadKind.FULL
    row_parts: int | None = None
    key_definition: str = ""


DEFAULT_POLICY = StagePolicy()
"""Every difference is reported, every copy held, every row sent as it is mapped."""


class Mark:
    """Flags of an entry: the source has its row; in a usable shape; as it was; this read has staged it; two rows claim it; the
    source says that its row is gone; that row is newly gone, its event being to come; its row has to be mapped even if unchanged.
    """

    PRESENT, MAPPED, UNCHANGED, STAGED, CONFLICTING, DELETED, VANISHED, DOUBTFUL = (1 << bit for bit in range(8))


_NEW = Mark.PRESENT | Mark.MAPPED | Mark.STAGED


class ReadMarks:
    """One byte of flags for each entry, `known` for those of before this read.

    `boundary` is their highest id: what is above is new in it.
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
        """Whether a flag of an entry is set."""
        flags = self.known[entry_id] if entry_id <= self.boundary else self._new.get(entry_id, _NEW)
        return bool(flags & flag)

    def is_deleted(self, entry_id: int) -> bool:
        """Whether the source has said that the row is gone, and nothing else of it."""
        return self.flags(entry_id) & (Mark.DELETED | Mark.PRESENT) == Mark.DELETED

    def count(self, flag: int) -> int:
        """Count the entries of before this read that have a flag."""
        return self.known.translate(bytes(bool(flags & flag) for flags in range(256))).count(1)

    def find(self, flag: int) -> Iterator[int]:
        """Yield the entries that have a flag, oldest first."""
        if self.count(flag):
            yield from (entry_id for entry_id, flags in enumerate(self.known) if flags & flag)
        yield from (entry_id for entry_id, flags in self._new.items() if flags & flag)


_SEPARATOR = re.compile(r"(?:[^\\|]|\\.)*+\|", re.DOTALL)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class UnreadEvents:
    """The events of which a read says nothing, so that their absence means nothing: those of unusable rows, days out of reach.

    `days`: the first and the last ISO day that recurring events were looked for on. The key of such an event ends in its day. A
    day that is over, or beyond the feed's horizon, is in no read. Memory: the rows that were refused or left out whole.
    """

    def __init__(self, days: tuple[str, str] | None) -> None:
        self._days = days
        self._after: dict[str, str] = {}

    def note(self, outcome: RowOutcome) -> None:
        """Note what a row says nothing of."""
        silence = outcome.part.silence
        if silence is not None:
            self._after[storable(silence.stem)] = silence.after

    def covers(self, row_key: str) -> bool:
        """Whether the absence of this entry means nothing."""
        if self._days is None and not self._after:
            return False
        ends: list[int] = []  # of each part but the last; a bar that belongs to a part is escaped
        while found := _SEPARATOR.match(row_key, ends[-1] if ends else 0):
            ends.append(found.end())
        day = row_key[ends[-1] :] if ends else ""
        is_day = _DAY.fullmatch(day) is not None
        if is_day and self._days is not None and not self._days[0] <= day <= self._days[1]:
            return True
        latest = day if is_day else "\uffff"
        return any((after := self._after.get(row_key[: end - 1])) is not None and latest > after for end in ends)


_PARTS = range(256)
_USED_BYTES = 8
_CREATED = select(ENTRY.c.id).where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.state == EntryState.PENDING.value)
_CREATED = _CREATED.where(ENTRY.c.id > bindparam("after")).order_by(ENTRY.c.id)
_UNSETTLED = tuple(state.value for state in EntryState if state is not EntryState.DELIVERED)


class RowDigests:
    """The digests of rows which each say what an entry says, with the ids of the entries.

    `is_kept`: this read leaves its digests to the next one.
    """

    def __init__(self, marks: ReadMarks) -> None:
        self._marks = marks
        self.is_kept = False
        self._known = [(array("Q"), array("Q")) for _ in _PARTS]
        self._added = [array("Q") for _ in _PARTS]  # digest, entry, digest, entry, ...
        self._created: list[bytes] = []
        self._newest = marks.boundary

    def load(self, connection: Connection, scope_id: int) -> None:
        """Load what the last read has left, and mark the entries of which a row has to be mapped even if it is as it was.

        Vanished entries are none of them: the last read did not have their rows.
        """
        for row in connection.execute(select(ROW_DIGESTS).where(ROW_DIGESTS.c.scope_id == scope_id)):
            for numbers, stored in zip(self._known[row.part], (row.digests, row.entries), strict=True):
                numbers.frombytes(stored)
        for is_doubtful in (ENTRY.c.state.in_(_UNSETTLED), ENTRY.c.drift_kind.is_not(None)):  # by an index each
            doubtful = select(ENTRY.c.id).where(ENTRY.c.scope_id == scope_id, is_doubtful)
            for entry_id in connection.execute(doubtful).scalars():
                self._marks.mark(entry_id, Mark.DOUBTFUL)

    def unchanged(self, digests: Iterable[bytes]) -> list[int]:
        """Return, for each row of a chunk, the entry that it leaves as it is, 0 where the row has to be mapped.

        Of several rows of an entry only the first one need not be.
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
        for entry_id in entries:
            chosen.append(0 if flags[entry_id] or entry_id in met else entry_id)
            met.add(entry_id)
        return chosen

    def add(self, digest: bytes, entry_id: int) -> None:
        """Remember a row that says what an entry says; b"": one that has to be mapped in every read."""
        if digest and self.is_kept:
            self._added[digest[0]].extend((int.from_bytes(digest[:_USED_BYTES]), entry_id))

    def add_created(self, digest: bytes) -> None:
        """Remember a row that is to get a new entry; call it for all such rows, in the order in which they are written."""
        if self.is_kept:
            self._created.append(digest)

    def settle(self, connection: Connection, scope_id: int) -> None:
        """Assign the new entries of a batch that has been written: their ids follow the order of its rows."""
        if self._created:
            ids = connection.execute(_CREATED, {"scope": scope_id, "after": self._newest}).scalars().all()
            for digest, entry_id in zip(self._created, ids, strict=True):
                self.add(digest, entry_id)
            self._newest = ids[-1]
            self._created.clear()

    def keep(self, connection: Connection, scope_id: int) -> None:
        """Write the digests of this read in place of those of the last, in the transaction that opens the gate."""
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
    """The state of one read: what it found when it began, its policy, what it has met, counted and gathered so far.

    `scope`: the feed's scope as it was, `boundary` its highest entry; `known_before`: the entries that some run had let out.
    `is_whole`: the source is read from end to end. `stamp`: evidence of the content's version. `left_out`: the known entries
    that a rule of the mapping now leaves out, with the rule, `left_out_stems`: such rows of several events. `stems`: the rows
    that this read has met, where each stands for all of its events, and the others of its source are not read.
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
        """Note which events these rows stand for, and of which they say nothing."""
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
    """Return the rule that leaves a row out, for people; "" where that is none of the mapping's."""
    return f"rule {row.rule}: {row.because}" if row.rule else ""
