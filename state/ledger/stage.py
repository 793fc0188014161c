"""COMMIT POINT 1: what a source says, compared with the ledger and recorded to be sent, one transaction per chunk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from mappings.outcome import Absorbed, RowOutcome
from mappings.row_key import RowKey
from state.ledger.accounts import StageReport, Tally, dump
from state.ledger.close import close_stage
from state.ledger.compare import Progress, compare
from state.ledger.duplicates import DuplicateIndex
from state.ledger.entries import entry_ids
from state.ledger.gate import AT_THE_END, Opening, ReadEnd, shut
from state.ledger.lease import FencedTransaction
from state.ledger.problems import carry_list, no_list
from state.ledger.read_marks import ReadMarks, UnreadEvents
from state.ledger.row_digests import RowDigests
from state.ledger.stage_policy import ReadKind, StagePolicy
from state.ledger.unchanged_source import is_last_read
from state.tables import storable


class Stage:
    """One read of a source on its way into the ledger. While it is open, and if it is cut short, the gate is closed.

    Memory: a byte for each ledger entry, 16 for each row of which the digest is kept, and the rows whose events are left unsaid.
    After an error the stage is over: open another one, which finds what this one wrote and goes on from there.
    """

    def __init__(self, turn: FencedTransaction, opening: Opening, progress: Progress) -> None:
        self._turn = turn
        self._opening = opening
        self._progress = progress

    def unchanged(self, digests: Sequence[bytes]) -> list[int]:
        """Return, for each row of the next chunk by its digest, the entry that it leaves as it is; 0: the row has to be mapped.

        b"" stands for a row that has to be mapped in any case.
        """
        return self._progress.digests.unchanged(digests, self._progress.marks)

    def write(
        self,
        outcomes: Sequence[RowOutcome],
        unchanged: Collection[int] = (),
        map_all: Callable[[], Sequence[RowOutcome]] = list,
    ) -> None:
        """Write one chunk of rows, about 2,000, in one transaction with the counts so far.

        `unchanged`: the entries of the chunk's other rows, as `Stage.unchanged` returned them. Where one of them is claimed by an
        outcome as well, it depends on the order of the rows what becomes of both: `map_all` then returns the outcomes of all.
        Raises `LeaseLostError` if another run has taken the feed over.
        """
        progress = self._progress
        with self._turn.transaction() as connection:
            if unchanged and not entry_ids(connection, self._turn.scope_id, _keys(outcomes)).isdisjoint(unchanged):
                outcomes, unchanged = map_all(), ()
            progress.tally.begin(outcomes)
            progress.tally.pass_over(len(unchanged))
            progress.marks.mark_unchanged(unchanged)
            progress.listed.strike(connection, outcomes)
            for batch in _without_repeats(_storable_rows(outcomes)):
                compare(connection, self._turn, progress, batch)
            progress.duplicates.keep_up(connection)
            self._turn.note(connection, read_account=dump(progress.tally.account()))

    def close(self, brake: Callable[[StageReport], Sequence[str]], end: ReadEnd = AT_THE_END) -> StageReport:
        """End the read in one transaction: mark what vanished, withdraw what is no longer asked for, set the gate.

        `brake` is shown the report and returns the names of the brakes that it trips; those that a person accepted for
        this run are set apart in the report, and the gate then stays closed for other runs. `end`: how the source says that
        the read ended; its bookmark is kept in this very transaction, if the gate opens.
        Raises `ImbalanceError` if the rows do not add up; the gate then stays closed.
        """
        with self._turn.transaction() as connection:
            return close_stage(connection, self._turn, self._opening.ended(end), self._progress, brake)


def start_stage(turn: FencedTransaction, *, is_whole: bool, stamp: str, policy: StagePolicy, digests_of: str | None) -> Stage:
    """Close the gate and begin a read. Raises `LeaseLostError` if another run has taken the feed over."""
    with turn.transaction() as connection:
        is_known = bool(digests_of) and is_last_read(connection, turn.scope_id, digests_of or "")
        opening = shut(connection, turn, is_whole=is_whole, stamp=stamp, kind=policy.kind)
        is_anew = policy.kind is ReadKind.FULL or is_whole
        listed = no_list() if is_anew else carry_list(connection, turn, policy.row_parts)
        duplicates = DuplicateIndex(connection, turn.scope_id)
        marks, digests = ReadMarks(opening.boundary), RowDigests(opening.boundary, is_kept=digests_of is not None)
        if is_known:
            digests.load(connection, turn.scope_id, marks)
    return Stage(turn, opening, Progress(marks, Tally(), policy, UnreadEvents(policy.days), listed, digests, duplicates))


def _keys(outcomes: Sequence[RowOutcome]) -> list[str]:
    return [storable(outcome.row_key) for outcome in outcomes if outcome.row_key]


def _storable_rows(outcomes: Sequence[RowOutcome]) -> Sequence[RowOutcome]:
    """Return the rows under keys that every database takes: the ledger knows them by these, their idempotency keys included."""
    if all(outcome.row_key.isprintable() for outcome in outcomes):
        return outcomes
    return [replace(outcome, row_key=RowKey(storable(outcome.row_key))) for outcome in outcomes]


def _without_repeats(outcomes: Sequence[RowOutcome]) -> Iterable[Sequence[RowOutcome]]:
    """Split a chunk so that no row key occurs twice in a part: the second row of a key must find what the first did."""
    keys = [outcome.row_key for outcome in outcomes if outcome.row_key and not isinstance(outcome, Absorbed)]
    if len(set(keys)) == len(keys):
        return (outcomes,)
    parts: defaultdict[int, list[RowOutcome]] = defaultdict(list)
    times: defaultdict[str, int] = defaultdict(int)
    for outcome in outcomes:
        if outcome.row_key and not isinstance(outcome, Absorbed):
            times[outcome.row_key] += 1
        parts[times[outcome.row_key]].append(outcome)
    return parts.values()
