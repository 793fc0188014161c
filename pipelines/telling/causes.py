"""What of a feed somebody should be told: why its runs do not get through, and what of its rows waits for a person.

Told from the books alone, so that it is the same whoever asks. In which words a message tells it is `words`'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from mappings.row_key import FeedName
from pipelines.outcomes import ExitCode, message_and_hint
from pipelines.row_words import SAID
from pipelines.telling.waiting import HELP
from state.views import FeedStatus, RunRecord


class Cause(StrEnum):
    """Why somebody is told. Those of runs first; those of rows are called as `rows --state` calls them."""

    FILE = "file"
    BRAKE = "brake"
    KEY = "key"
    SET_UP = "set-up"
    AWAY = "away"
    FAILED = "failed"
    LOST = "lost"
    OVERDUE = "overdue"
    CONFLICT = "conflict"
    REFUSED = "refused"
    BLOCKED = "blocked"
    UNCERTAIN = "uncertain"
    REJECTED = "rejected"
    HELD = "held"
    DRIFT = "drift"
    VANISHED = "vanished"
    EARLIER = "earlier"

    @property
    def is_of_runs(self) -> bool:
        """Whether the feed as a whole does not get through."""
        return self in _OF_RUNS


_GRACE = timedelta(minutes=5)
"""A lease of another machine counts for so much longer: clocks differ, and a machine that slept goes on with its own."""
_OF_RUNS = frozenset({Cause.FILE, Cause.BRAKE, Cause.KEY, Cause.SET_UP, Cause.AWAY, Cause.FAILED, Cause.LOST, Cause.OVERDUE})
_CAUSES = {
    ExitCode.CONFIG: Cause.SET_UP,
    ExitCode.REFUSED: Cause.KEY,
    ExitCode.BRAKE: Cause.BRAKE,
    ExitCode.LATER: Cause.AWAY,
}
SILENT = frozenset({ExitCode.HELD, ExitCode.INTERRUPTED})
"""What runs leave with that found the feed held, or that somebody interrupted: they say nothing of how it is."""


@dataclass(frozen=True, slots=True)
class Concern:
    """One cause of one feed: what there is to tell, and what would help. `rows`: how many it is about, 0 for a run's."""

    cause: Cause
    told: str
    hint: str
    rows: int = 0


def concerns_of(status: FeedStatus, runs: Sequence[RunRecord], now: datetime) -> tuple[Concern, ...]:
    """Return what there is to tell of a feed, the gravest first. `runs`: its latest, the youngest first."""
    return (*_of_runs(status, runs, now), *_of_rows(status))


def was_lost(status: FeedStatus, now: datetime) -> bool:
    """Whether the feed's last run never came to its end, and nobody works on it any more."""
    run, lease = status.last_run, status.lease
    is_at_work = lease is not None and not lease.is_gone and lease.expires_at + _GRACE > now
    return run is not None and run.finished_at is None and not is_at_work


def is_telling(run: RunRecord) -> bool:
    """Whether a run's end says how the feed is: not one that found it held, or that somebody interrupted."""
    return run.exit_code is not None and run.exit_code not in SILENT


def _of_runs(status: FeedStatus, runs: Iterable[RunRecord], now: datetime) -> Iterator[Concern]:
    if was_lost(status, now) and status.last_run is not None:
        run_id = status.last_run.run_id
        yield lost(f"run {run_id} ended without a word: its process was killed, or the machine went down", status.book.feed)
    telling = next(filter(is_telling, runs), None)
    if telling is None:
        return
    cause = Cause.FAILED if telling.outcome == "failed" else _CAUSES.get(ExitCode(telling.exit_code or 0))
    if cause is not None:
        message, hint = message_and_hint(telling.message)
        yield Concern(cause, message, hint)


def lost(told: str, feed: FeedName) -> Concern:
    """Return the concern that a run of a feed ended before it could write down why."""
    return Concern(Cause.LOST, told, f"the state is intact: the next run goes on; `eventsync run {feed}` does at once")


def _of_rows(status: FeedStatus) -> Iterator[Concern]:
    for cause in Cause:
        if count := status.waiting.get(cause.value, 0):
            rows = "1 row" if count == 1 else f"{count:,} rows"
            yield Concern(cause, f"{rows} {SAID[cause.value]}", HELP[cause.value].format(feed=status.book.feed), count)
