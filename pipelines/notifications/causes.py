"""Causes of notifications: why a feed's runs do not succeed, and which of its rows wait for a person.

All is read from the state DB, so that a run and the sensor find the same; broken mapping files are added by the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from mappings.errors import MappingFileError
from mappings.row_key import FeedName
from mappings.spec.feed import Schedule
from mappings.yaml.loader import readable_document
from pipelines.run.context import BACKFILL
from pipelines.run.outcome import ExitCode, message_and_hint
from pipelines.run.standing import STANDING_TEXTS
from pipelines.ticks import HOUR, gaps_of_day, last_tick, ticks_of_day
from state.database import StateDb
from state.queries import FeedStatus, RunRecord, last_came

HELP = {
    "conflict": "`eventsync reconcile {feed}` looks for them, `eventsync resolve {feed} KEY` decides",
    "uncertain": "the next run sends them again; those too old for that: `eventsync reconcile {feed}`",
    "delivered_unconfirmed": "`eventsync reconcile {feed}` looks their ids up",
    "refused": "mend the source or the mapping; or as they are: `eventsync retry {feed}`",
    "blocked": "ask for access to their channels; the next run sends them again",
    "held": "`eventsync rows {feed} --state held` names the other events; `eventsync resolve {feed} KEY"
    " --same-as` moves the event to the new key, `--release` sends the row, `--ignore` leaves it held",
    "rejected": "`eventsync rows {feed} --state rejected --csv FILE` is for the partner",
    "drift": "`eventsync diff {feed}` shows them; change or publish them by hand, then `eventsync resolve {feed} KEY --applied`",
    "vanished": "remove them by hand if they are cancelled, then `eventsync resolve {feed} KEY --removed`; or `--ignore`",
    "earlier": "`eventsync rows {feed} --state earlier` names the events; remove them by hand, then"
    " `eventsync resolve {feed} KEY --removed`",
    "warning": "`eventsync rows {feed} --state warning` says what to look at;"
    " `eventsync resolve {feed} KEY --ignore` takes one off the list",
}
"""By the word that `rows --state` takes; `{feed}` stands for the feed's name."""


class Cause(StrEnum):
    """Causes of runs first; those of rows are the words of `rows --state`."""

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


_TIME = "%Y-%m-%d %H:%M UTC"
_GRACE = timedelta(minutes=5)
"""A lease counts for so much longer: clocks of machines differ, and a machine that slept goes on with its own."""
CAUSES_OF_RUNS = frozenset(
    {Cause.FILE, Cause.BRAKE, Cause.KEY, Cause.SET_UP, Cause.AWAY, Cause.FAILED, Cause.LOST, Cause.OVERDUE}
)
_CAUSES = {
    ExitCode.CONFIG: Cause.SET_UP,
    ExitCode.REFUSED: Cause.KEY,
    ExitCode.BRAKE: Cause.BRAKE,
    ExitCode.LATER: Cause.AWAY,
}
SILENT = frozenset({ExitCode.HELD, ExitCode.INTERRUPTED})
"""Exit codes that say nothing about the feed: it was held, or the run was interrupted."""


@dataclass(frozen=True, slots=True)
class Concern:
    """One cause of one feed: its text and what would help. `rows`: how many rows it is about, 0 for a cause of runs."""

    cause: Cause
    text: str
    hint: str
    rows: int = 0


def concerns_of(status: FeedStatus, runs: Sequence[RunRecord], now: datetime) -> Iterator[Concern]:
    """Yield the concerns of a feed, the gravest first. `runs`: its latest, the youngest first."""
    feed = status.book.feed
    if was_lost(status, now) and status.last_run is not None:
        text = f"run {status.last_run.run_id} ended without a word: its process was killed, or the machine went down"
        yield Concern(Cause.LOST, text, f"the state is intact: the next run goes on; `eventsync run {feed}` does at once")
    run = next(filter(is_conclusive, runs), None)
    if run is not None:
        cause = Cause.FAILED if run.outcome == "failed" else _CAUSES.get(ExitCode(run.exit_code or 0))
        if cause is not None:
            yield Concern(cause, *message_and_hint(run.message))
    for cause in Cause:
        if count := status.waiting.get(cause.value, 0):
            rows = "1 row" if count == 1 else f"{count:,} rows"
            yield Concern(cause, f"{rows} {STANDING_TEXTS[cause.value]}", HELP[cause.value].format(feed=feed), count)


def was_lost(status: FeedStatus, now: datetime) -> bool:
    """Whether the feed's last run has no end, and no process works on it any more."""
    run, lease = status.last_run, status.lease
    is_at_work = lease is not None and not lease.is_gone and lease.expires_at + _GRACE > now
    return run is not None and run.finished_at is None and not is_at_work


def is_conclusive(run: RunRecord) -> bool:
    """Whether a run's end says something about the feed."""
    return run.exit_code is not None and run.exit_code not in SILENT


def runs_came(engine: StateDb, destination: str) -> Mapping[FeedName, datetime]:
    """Return when each feed last ran; backfills do not count.

    Raises:
        SyncError: the state DB cannot be read.
    """
    return last_came(engine, destination, SILENT, BACKFILL)


def overdue(feed: FeedName, schedule: Schedule | None, came: datetime | None, now: datetime) -> Concern | None:
    """Return the concern that a feed's run did not come; None where it did, or without a schedule.

    A tick counts once it is an hour old; where ticks come more often, once the next one has come. A feed that never ran
    may be new.
    """
    if schedule is None or schedule.cron is None or came is None:
        return None
    grace_min = min(HOUR, *gaps_of_day(ticks_of_day(schedule.cron)))
    due = last_tick(schedule, now - timedelta(minutes=grace_min))
    if due is None or came >= due:
        return None
    text = f"no run has come since {came:{_TIME}}: one was due at {due:{_TIME}} by its schedule, {schedule}"
    hint = f"is the daemon running, and its schedule on? `eventsync status {feed}` tells whether a run is still at work"
    return Concern(Cause.OVERDUE, text, f"{hint}; `eventsync run {feed}` runs it now")


class Owned(Protocol):
    """A feed's mapping, or a file that should be one."""

    @property
    def feed(self) -> FeedName: ...

    @property
    def owner(self) -> str: ...

    @property
    def notify(self) -> Sequence[str]: ...

    @property
    def schedule(self) -> Schedule | None: ...


@dataclass(frozen=True, slots=True)
class FileOfFeed:
    """What can still be read of a broken mapping file."""

    feed: FeedName
    owner: str = ""
    notify: tuple[str, ...] = ()
    schedule: Schedule | None = None


def broken_files(errors: Collection[MappingFileError], taken: Collection[str]) -> Iterator[tuple[FileOfFeed, Concern]]:
    """Yield each broken file with its concern. `taken`: sound feeds, whose names a broken file may claim by mistake."""
    for error in errors:
        document = readable_document(error.path)
        name, owner, notify = (document.get(word) for word in ("feed", "owner", "notify"))
        is_named = isinstance(name, str) and bool(name.strip()) and name not in taken
        channels = tuple(one for one in (notify if isinstance(notify, list) else [notify]) if isinstance(one, str))
        first, more = error.problems[0] if error.problems else error, len(error.problems) - 1
        text = f"its mapping file cannot be used: {first}{f' (and {more} more)' if more > 0 else ''}"
        feed = FeedName(str(name) if is_named else error.path.name)
        yield FileOfFeed(feed, owner if isinstance(owner, str) else "", channels), Concern(Cause.FILE, text, error.hint)
