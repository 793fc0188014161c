"""COMMIT POINT 1: what a source says, compared with the ledger and written down to be sent, one transaction per chunk.

What each row comes to is `comparing`'s; how a read ends is `closing`'s; sending is `outbox`'s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from mappings.outcome import Absorbed, RowOutcome
from state.ledger.accounts import StageReport
from state.ledger.bookmark import AT_THE_END, ReadEnd
from state.ledger.closing import finish
from state.ledger.comparing import Progress, compare
from state.ledger.duplicates import DuplicateIndex
from state.ledger.gate import Opening, shut
from state.ledger.lease import Turn
from state.ledger.listed import carry_list, no_list
from state.ledger.newcomers import Newcomers
from state.ledger.plain_rows import storable_rows
from state.ledger.reach import Reach
from state.ledger.recall import Recorder, Remembering
from state.ledger.records import dump
from state.ledger.seen import Seen
from state.ledger.statistics import Statistics
from state.ledger.tally import Tally
from state.ledger.terms import Terms
from state.ledger.unspoken import Unspoken


class Stage:
    """One read of a source on its way into the ledger. While it is open, and if it is cut short, the gate is closed.

    Memory does not grow with the source, but for a quarter of a byte per ledger entry, and for the rows whose events are left
    unsaid.
    After an error the stage is over: open another one, which finds what this one wrote and goes on from there.
    """

    def __init__(self, turn: Turn, opening: Opening, progress: Progress) -> None:
        self._turn = turn
        self._opening = opening
        self._statistics = Statistics(turn.engine)
        self._progress = progress

    def write(self, outcomes: Sequence[RowOutcome]) -> None:
        """Write one chunk of rows, about 2,000, in one transaction with the counts so far.

        Raises `LeaseLostError` if another run has taken the feed over.
        """
        tally = self._progress.tally
        with self._turn.transaction() as connection:
            tally.begin(outcomes)
            self._progress.listed.strike(connection, outcomes)
            for batch in _without_repeats(storable_rows(outcomes)):
                compare(connection, self._turn, self._progress, batch)
            self._progress.duplicates.keep_up(connection)
            self._turn.note(connection, read_account=dump(tally.account()))
        self._statistics.keep_up(tally.new)

    def pass_over(self, entries: Collection[int]) -> None:
        """Count rows of which each is known to say what a delivered entry says, and to be the only one of its key in the source.

        Before the first `write`; what is counted is written with the next one.
        """
        self._progress.tally.pass_over(len(entries))
        self._progress.seen.hear_all(entries)

    def close(self, brake: Callable[[StageReport], Sequence[str]], end: ReadEnd = AT_THE_END) -> StageReport:
        """End the read in one transaction: mark what vanished, withdraw what is no longer asked for, set the gate.

        `brake` is shown the report and returns the names of the brakes that it trips; those that a person accepted for
        this run are set apart in the report, and the gate opens for nobody without that word. `end`: how the source says that
        the read ended; its bookmark is kept in this very transaction, if the gate opens.
        Raises `ImbalanceError` if the rows do not add up; the gate then stays closed.
        """
        with self._turn.transaction() as connection:
            return finish(connection, self._turn, self._opening.ended(end), self._progress, brake)


def start_stage(turn: Turn, *, is_whole: bool, stamp: str, terms: Terms, memory: Remembering | None) -> Stage:
    """Close the gate and begin a read. Raises `LeaseLostError` if another run has taken the feed over."""
    with turn.transaction() as connection:
        opening = shut(connection, turn, is_whole=is_whole, stamp=stamp, reach=terms.reach)
        is_anew = terms.reach is Reach.FULL or is_whole
        listed = no_list() if is_anew else carry_list(connection, turn, terms.row_parts)
        duplicates = DuplicateIndex(connection, turn.scope_id)
    recorder = Recorder(memory, opening.boundary)
    newcomers = Newcomers(is_first=not opening.boundary)
    progress = Progress(Seen(opening.boundary), Tally(), terms, Unspoken(terms.days), listed, recorder, newcomers, duplicates)
    return Stage(turn, opening, progress)


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
