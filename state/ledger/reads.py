"""The state of one read: its rules, the known entries that it has met, and row digests.

Row digests, by which the next read recognises unchanged rows before mapping (budget 2), are sorted arrays, split by the first
byte and searched by bisection: 16 bytes a row. A database index would be fetched row by row (1 us each), and a Python set of a
million would take half of the memory of budget 8.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select

from mappings.outcome import Gone, RowOutcome, Skipped
from state.enums import Decision
from state.ledger.accounts import ReadKind, StagePolicy, Tally
from state.ledger.copies import DuplicateIndex
from state.ledger.entries import IS_LAST_DECISION, IS_OPEN
from state.ledger.lease import FencedTransaction
from state.ledger.problems import ListedProblems, stem_of
from state.tables import DECISION, ENTRY, OBSERVATION, ROW_DIGESTS, storable


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


class RowDigests:
    """The digests of rows that match their entry, with the entries' ids.

    `is_kept`: this read stores its digests for the next one.
    """

    def __init__(self, marks: ReadMarks) -> None:
        self._marks = marks
        self.is_kept = False
        self._known = [(array("Q"), array("Q")) for _ in _PARTS]
        self._added = [array("Q") for _ in _PARTS]  # digest, entry, digest, entry, ...

    def load(self, connection: Connection, scope_id: int) -> None:
        """Load the digests of the last read, and mark the entries whose row must be mapped even if unchanged.

        Vanished entries are not among them: the last read did not have their rows.
        """
        for row in connection.execute(select(ROW_DIGESTS).where(ROW_DIGESTS.c.scope_id == scope_id)):
            for numbers, stored in zip(self._known[row.part], (row.digests, row.entries), strict=True):
                numbers.frombytes(stored)
        open_ones = select(ENTRY.c.id).where(ENTRY.c.scope_id == scope_id, IS_OPEN)
        for doubtful in (open_ones, select(OBSERVATION.c.entry_id).where(OBSERVATION.c.scope_id == scope_id)):  # by an index each
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


_IGNORED = select(DECISION.c.entry_id, DECISION.c.wish).join(ENTRY, ENTRY.c.id == DECISION.c.entry_id)
_IGNORED = _IGNORED.where(ENTRY.c.scope_id == bindparam("scope"), DECISION.c.option == Decision.IGNORE, IS_LAST_DECISION)


class SourceRead:
    """The state of one read: the ledger at its start, its policy, and what it has met and counted so far.

    `scope`: the feed's scope at the start, `boundary` its highest entry; `known_before`: its released entries. `is_whole`: the
    source is read completely. `stamp`: evidence of the content's version. `ignored`: what the source said
    when a person last ignored an entry. `left_out`: the known entries that a rule now leaves out, with the rule;
    `left_out_stems`: such rows with several events. `stems`: the rows met by a read that does not cover the others of its source.
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
        self.ignored: dict[int, str] = dict(map(tuple, connection.execute(_IGNORED, {"scope": run.scope_id})))
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
