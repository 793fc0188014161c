"""Read marks: what one read of a source has met so far, one byte of flags for each ledger entry."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from sqlalchemy import Connection, bindparam, delete, insert, select

from mappings.outcome import Gone, RowOutcome, Skipped
from state.enums import EntryState
from state.ledger.accounts import ListedProblems, Tally, stem_of
from state.ledger.duplicates import DuplicateIndex
from state.tables import ENTRY, ROW_DIGESTS, storable

_PRESENT, _MAPPED, _UNCHANGED, _STAGED, _CONFLICTING, _DELETED, _VANISHED, _DOUBTFUL = (1 << bit for bit in range(8))


class ReadMarks:
    """Flags of entries, by id. `boundary` is the highest id before this read: whatever is above is new in it.

    `conflicting`: entries that two rows of this read claim; `deleted`: those whose rows the source says are gone; `past`: those
    whose rows are gone after their event; `dropped`: gone ones of which no event can be out.
    """

    def __init__(self, boundary: int) -> None:
        self.boundary = boundary
        self.conflicting = array("q")
        self.deleted = array("q")
        self.past = array("q")
        self.dropped = array("q")
        self._flags = bytearray(boundary + 1)

    def mark_present(self, entry_id: int) -> None:
        """The source has the row, though perhaps not in a shape that can be used."""
        if entry_id <= self.boundary:
            self._flags[entry_id] |= _PRESENT

    def mark_mapped(self, entry_id: int) -> None:
        """The source has the row and it maps to an event."""
        if entry_id <= self.boundary:
            self._flags[entry_id] |= _PRESENT | _MAPPED

    def mark_unchanged(self, entries: Iterable[int]) -> None:
        """The source has these rows as they were, known by their digests."""
        flags = self._flags
        for entry_id in entries:
            flags[entry_id] |= _PRESENT | _MAPPED | _UNCHANGED

    def mark_staged(self, entry_id: int) -> None:
        """This read has staged a known entry anew."""
        self.mark_mapped(entry_id)
        self._put(entry_id, _STAGED)

    def mark_conflicting(self, entry_id: int) -> None:
        """Two rows of this read claim the entry, and nothing of it was ever sent."""
        self._put(entry_id, _CONFLICTING)
        self.conflicting.append(entry_id)

    def mark_deleted(self, entry_id: int) -> None:
        """The source says that the row is gone; should the row come in this read all the same, that counts."""
        if not self._has(entry_id, _DELETED):
            self._put(entry_id, _DELETED)
            self.deleted.append(entry_id)

    def mark_vanished(self, entry_id: int) -> None:
        """The row is newly gone from its source, and its event is to come."""
        self._put(entry_id, _VANISHED)

    def mark_doubtful(self, entry_id: int) -> None:
        """A row of this entry has to be mapped, even if it is as it was."""
        self._put(entry_id, _DOUBTFUL)

    def only_unmarked(self, entries: Iterable[int]) -> list[int]:
        """Put 0 in place of each entry that the read has met something of, or that stands there a second time."""
        flags, chosen = self._flags, list[int]()
        met = {0}
        for entry_id in entries:
            chosen.append(0 if flags[entry_id] or entry_id in met else entry_id)
            met.add(entry_id)
        return chosen

    def is_present(self, entry_id: int) -> bool:
        """Whether the source has the row."""
        return entry_id > self.boundary or self._has(entry_id, _PRESENT)

    def is_mapped(self, entry_id: int) -> bool:
        """Whether a row of this read has already mapped to the entry's event."""
        return entry_id > self.boundary or self._has(entry_id, _MAPPED)

    def only_unchanged(self, pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the pairs of a digest and an entry whose row was known by its digest."""
        flags = self._flags
        return [pair for pair in pairs if flags[pair[1]] & _UNCHANGED]

    def is_staged(self, entry_id: int) -> bool:
        """Whether this read has staged the entry."""
        return entry_id > self.boundary or self._has(entry_id, _STAGED)

    def is_conflicting(self, entry_id: int) -> bool:
        """Whether two rows of this read claim the entry."""
        return self._has(entry_id, _CONFLICTING)

    def is_deleted(self, entry_id: int) -> bool:
        """Whether the source has said that the row is gone, and nothing else of it."""
        return self._has(entry_id, _DELETED) and not self.is_present(entry_id)

    def is_vanished(self, entry_id: int) -> bool:
        """Whether the row is newly gone from its source, its event being to come."""
        return self._has(entry_id, _VANISHED)

    def vanished(self) -> Iterator[int]:
        """Yield the entries newly gone from their source whose events are to come, oldest first."""
        return (entry_id for entry_id, flags in enumerate(self._flags) if flags & _VANISHED)

    def count_vanished(self) -> int:
        """Count what `vanished` yields."""
        return self._count(_VANISHED)

    def count_present(self) -> int:
        """Count the entries of before this read that the source has."""
        return self._count(_PRESENT)

    def _put(self, entry_id: int, flags: int) -> None:
        if entry_id >= len(self._flags):
            self._flags.extend(bytes(entry_id + 1 - len(self._flags)))
        self._flags[entry_id] |= flags

    def _has(self, entry_id: int, flag: int) -> bool:
        return entry_id < len(self._flags) and bool(self._flags[entry_id] & flag)

    def _count(self, flag: int) -> int:
        return self._flags.translate(bytes(bool(flags & flag) for flags in range(256))).count(1)


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

    @property
    def is_any(self) -> bool:
        """Whether there is anything of which this read says nothing."""
        return self._days is not None or bool(self._after)

    def note(self, outcome: RowOutcome) -> None:
        """Note what a row says nothing of."""
        silence = outcome.part.silence
        if silence is not None:
            self._after[storable(silence.stem)] = silence.after

    def covers(self, row_key: str) -> bool:
        """Whether the absence of this entry means nothing."""
        ends = list(_ends_of_stems(row_key))
        day = row_key[ends[-1] :] if ends else ""
        is_day = _DAY.fullmatch(day) is not None
        if is_day and self._days is not None and not self._days[0] <= day <= self._days[1]:
            return True
        latest = day if is_day else "\uffff"
        return any((after := self._after.get(row_key[: end - 1])) is not None and latest > after for end in ends)


def _ends_of_stems(row_key: str) -> Iterator[int]:
    """Yield where each part after the first begins; a bar that belongs to a part is escaped."""
    found = _SEPARATOR.match(row_key)
    while found:
        yield found.end()
        found = _SEPARATOR.match(row_key, found.end())


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
    entries are held. `drafts_only`: whatever this read pins is a draft. `accepted`: the brakes that this run may pass.
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
_PARTS = range(256)
_USED_BYTES = 8
_CREATED = (
    select(ENTRY.c.id)
    .where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.state == EntryState.PENDING.value, ENTRY.c.id > bindparam("after"))
    .order_by(ENTRY.c.id)
)
_UNSETTLED = tuple(state.value for state in EntryState if state is not EntryState.DELIVERED)


def _numbers(stored: bytes = b"") -> array[int]:
    numbers = array("Q")
    numbers.frombytes(stored)
    return numbers


class RowDigests:
    """The digests of rows which each say what an entry says, with the ids of the entries.

    `boundary` is the highest entry id before the read; `is_kept`: this read leaves its digests to the next one.
    """

    def __init__(self, boundary: int = 0, *, is_kept: bool = False) -> None:
        self._is_kept = is_kept
        self._known = [(_numbers(), _numbers()) for _ in _PARTS]
        self._added = [_numbers() for _ in _PARTS]  # digest, entry, digest, entry, ...
        self._created: list[bytes] = []
        self._newest = boundary

    def load(self, connection: Connection, scope_id: int, marks: ReadMarks) -> None:
        """Load what the last read has left, and mark the entries of which a row has to be mapped even if it is as it was.

        Vanished entries are none of them: the last read did not have their rows.
        """
        for row in connection.execute(select(ROW_DIGESTS).where(ROW_DIGESTS.c.scope_id == scope_id)):
            self._known[row.part] = _numbers(row.digests), _numbers(row.entries)
        for is_doubtful in (ENTRY.c.state.in_(_UNSETTLED), ENTRY.c.drift_kind.is_not(None)):  # by an index each
            for entry_id in connection.execute(select(ENTRY.c.id).where(ENTRY.c.scope_id == scope_id, is_doubtful)).scalars():
                marks.mark_doubtful(entry_id)

    def unchanged(self, digests: Iterable[bytes], marks: ReadMarks) -> list[int]:
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
        return marks.only_unmarked(entries)

    def add(self, digest: bytes, entry_id: int) -> None:
        """Remember a row that says what an entry says; b"": one that has to be mapped in every read."""
        if digest and self._is_kept:
            self._added[digest[0]].extend((int.from_bytes(digest[:_USED_BYTES]), entry_id))

    def add_created(self, digest: bytes) -> None:
        """Remember a row that is to get a new entry; call it for all such rows, in the order in which they are written."""
        if self._is_kept:
            self._created.append(digest)

    def settle(self, connection: Connection, scope_id: int) -> None:
        """Assign the new entries of a batch that has been written: their ids follow the order of its rows."""
        if self._created:
            ids = connection.execute(_CREATED, {"scope": scope_id, "after": self._newest}).scalars().all()
            for digest, entry_id in zip(self._created, ids, strict=True):
                self.add(digest, entry_id)
            self._newest = ids[-1]
            self._created.clear()

    def keep(self, connection: Connection, scope_id: int, marks: ReadMarks) -> None:
        """Write the digests of this read in place of those of the last, in the transaction that opens the gate."""
        if not self._is_kept:
            return
        connection.execute(delete(ROW_DIGESTS).where(ROW_DIGESTS.c.scope_id == scope_id))
        rows = [row for part in _PARTS if (row := self._row(part, marks))["digests"]]
        if rows:
            connection.execute(insert(ROW_DIGESTS).values(scope_id=scope_id), rows)

    def _row(self, part: int, marks: ReadMarks) -> dict[str, object]:
        added = self._added[part]
        pairs = marks.only_unchanged(zip(*self._known[part], strict=True))
        pairs += zip(added[::2], added[1::2], strict=True)
        pairs.sort()
        if marks.conflicting:
            pairs = [pair for pair in pairs if not marks.is_conflicting(pair[1])]
        digests, entries = array("Q", [pair[0] for pair in pairs]), array("Q", [pair[1] for pair in pairs])
        return {"part": part, "digests": digests.tobytes(), "entries": entries.tobytes()}


"""Every difference is reported, every copy held, every row sent as it is mapped."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of one read: its policy, what it has met, counted and gathered so far."""

    marks: ReadMarks
    tally: Tally
    policy: StagePolicy
    unread: UnreadEvents
    listed: ListedProblems
    digests: RowDigests
    duplicates: DuplicateIndex
    left_out: dict[int, str] = field(default_factory=dict)
    """The known entries that a rule of the mapping now leaves out, with the rule."""
    stems: set[str] = field(default_factory=set)
    """The rows that this read has met, where each stands for all of its events, and the others of its source are not read."""
    left_out_stems: dict[str, str] = field(default_factory=dict)
    """The rows of several events that a rule of the mapping now leaves out, with the rule."""

    def note(self, outcomes: Sequence[RowOutcome]) -> None:
        """Note which events these rows stand for, and of which they say nothing."""
        policy = self.policy
        for outcome in outcomes:
            rule = "" if policy.kind is ReadKind.CHOSEN else _rule_of_all(outcome)
            if not rule:
                self.unread.note(outcome)
            if policy.row_parts is None or not (outcome.row_key or rule):
                continue
            stem = stem_of(outcome.row_key, policy.row_parts)
            if rule:
                self.left_out_stems[stem] = rule
            if outcome.row_key and (policy.kind is ReadKind.INCREMENTAL or (isinstance(outcome, Gone) and outcome.is_stem)):
                self.stems.add(stem)


def _rule_of_all(outcome: RowOutcome) -> str:
    """Return the rule that leaves out all events of a row that stands for several, "" if none does."""
    if isinstance(outcome, Skipped) and outcome.rule and not outcome.is_cancelled and outcome.part.silence is not None:
        return _name_rule(outcome)
    return ""


def _name_rule(row: Skipped) -> str:
    return f"rule {row.rule}: {row.because}"
