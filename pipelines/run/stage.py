"""COMMIT POINT 1 of a run: read the source, map every row, record what is to be sent, then ask the brakes.

Knows neither Dagster nor the environment: everything is passed in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain, islice
from typing import TypeVar

from connectors.sources.contract import Ending, Reading, Source
from connectors.sources.errors import SourceUnavailableError
from connectors.sources.files.snapshot import Sight
from mappings.compiler.mapper import RowMapper
from mappings.compiler.rows import is_unfolding
from mappings.outcome import WHOLE_ROW, RowOutcome, SourceRow
from mappings.row_key import RowKey, names_of
from mappings.spec.feed import FeedMapping
from pipelines.run.brakes import BrakeVerdict, judge
from pipelines.run.drain import Advance
from pipelines.run.options import RunOptions
from pipelines.run.reading import FROM_THE_START, Approach, Sameness
from pipelines.run.recalling import Recollection
from pipelines.run.signals import raise_if_stopped, signals_deferred
from pipelines.run.traces import NO_TRACE, Trace, Tracing
from pipelines.run.window_filter import Sieve
from state.ledger.accounts import StageReport
from state.ledger.bookmark import ReadEnd
from state.ledger.ledger import Ledger
from state.ledger.reach import Reach
from state.ledger.repeating import Repetition
from state.ledger.stage import Stage
from state.ledger.terms import Terms

CHUNK_ROWS = 2_000
"""Rows of one stage transaction: large enough for batched statements and few flushes to disk, small enough for flat memory."""

_MUCH_SHORTER = 0.5
"""The share of the rows of the last whole read that may not be missing where nothing proves that the source came whole."""

_MAY_BE_CUT_OFF = "the server does not say how long the file is, so the answer may have been cut off"
_KNOWN_END_HINT = "run again later; if it is so short now, say `settle: 30s` in its source, or have the server send its length"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Staged:
    """A finished stage, what the brakes said to it, and what the run noticed of the service before it."""

    report: StageReport
    brakes: tuple[BrakeVerdict, ...]
    notices: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Row keys that were asked for, and that no row of the source has."""
    version: str = ""
    """What stands for the content that was read: equal for equal content; "" where the source gives no evidence."""

    @property
    def stopping(self) -> tuple[BrakeVerdict, ...]:
        """The brakes that keep this feed from publishing."""
        return tuple(verdict for verdict in self.brakes if verdict.stops)


@dataclass(frozen=True, slots=True)
class StageJob:
    """One stage: where rows come from, what maps them, where they are recorded. The source was opened as `approach` says."""

    run_id: str
    fence: int
    mapping: FeedMapping
    source: Source
    mapper: RowMapper
    ledger: Ledger
    options: RunOptions
    advance: Advance
    notices: tuple[str, ...] = ()
    approach: Approach = FROM_THE_START
    sameness: Sameness | None = None
    """How an unchanged source is told; None: rows are read whatever it looks like."""


def stage(job: StageJob) -> Staged:
    """Read the source, map every row, record what is to be said; then ask the brakes.

    COMMIT POINT 1: each `write` is one transaction over a chunk of rows; the gate opens only in `close`, and only with it moves
    the feed's bookmark: it covers exactly the rows that were given.

    Raises:
        SyncError: the source cannot be read, or the state DB cannot record; what was staged so far is not published.
    """
    sight = None if job.sameness is None or not _is_usual(job.options) else job.sameness.seen()
    told = None if sight is None else _told_again(job, sight)
    return _read(job, _trace(job, sight)) if told is None else told


def _is_usual(options: RunOptions) -> bool:
    """Whether a run is asked for no more than to stage what the source says, as any other run would."""
    return not options.keys and options.status is None and options.window is None


def _told_again(job: StageJob, sight: Sight) -> Staged | None:
    """Account for a source that is as the last read left it; None where its rows have to be read."""
    known = "" if job.sameness is None or job.options.full else job.ledger.stamp()
    evidence = job.sameness.repeated(sight, known) if job.sameness and known else None
    if evidence is None:
        return None
    verdicts: list[BrakeVerdict] = []
    terms = _terms(job, Reach.FULL)
    repetition = Repetition(known, str(evidence))
    report = job.ledger.repeat_read(job.run_id, job.fence, terms, repetition, _brake(job, verdicts))
    if report is None:
        return None
    job.advance(report.account.read)
    notices = (*job.notices, *job.approach.notices, f"unchanged since it was read {evidence.read_at:%Y-%m-%d %H:%M} UTC")
    return Staged(report, tuple(verdicts), notices, version=_version(sight.read_as))


def _brake(job: StageJob, verdicts: list[BrakeVerdict], *, has_known_end: bool = True) -> Callable[[StageReport], list[str]]:
    """Return what asks the brakes of a report, and keeps their verdicts. `has_known_end`: of what was read."""

    def brake(report: StageReport) -> list[str]:
        verdicts.extend(judge(report, job.mapping.publish.brakes, job.options.accept))
        for verdict in verdicts:
            if verdict.name == "shrink" and verdict.measured > _MUCH_SHORTER and not has_known_end:
                raise SourceUnavailableError(f"{verdict.sentence}: {_MAY_BE_CUT_OFF}", hint=_KNOWN_END_HINT)
        return [verdict.name for verdict in verdicts if verdict.is_tripped]

    return brake


def _trace(job: StageJob, sight: Sight | None) -> Trace:
    if sight is None or job.sameness is None:
        return NO_TRACE
    return Tracing(job.sameness, job.ledger, job.mapper, job.source).trace(sight, is_anew=job.options.full)


def _read(job: StageJob, trace: Trace) -> Staged:
    """Read all rows, but for those that are known to be as they were."""
    verdicts: list[BrakeVerdict] = []
    row_parts = len(job.mapping.key_columns)
    missing = set(job.options.keys)
    with ExitStack() as stack:
        reading = stack.enter_context(job.source.read())
        reach = _reach(job, reading)
        is_whole = reading.is_whole and reach is not Reach.PICKED
        terms = _terms(job, reach)
        left = trace.of(reading)
        memory = stack.enter_context(left.memory) if left.memory else None
        stamp = str(left.evidence or "")
        staging = job.ledger.open_stage(job.run_id, is_whole=is_whole, fence=job.fence, stamp=stamp, terms=terms, memory=memory)
        if memory and memory.recollection:
            _pass_over(job, memory.recollection, staging)
        sieve = Sieve(job.options.window) if job.options.window else None
        for chunk in batched(_chosen(job, reading.rows, sieve), CHUNK_ROWS):
            raise_if_stopped()
            with signals_deferred():
                staging.write(chunk)
            job.advance(sum(not outcome.part.is_further for outcome in chunk))
            if missing:
                missing.difference_update(chain.from_iterable(names_of(each.row_key, row_parts) for each in chunk))
            del chunk  # before the next one is made: memory holds one at a time
        ending = reading.ending()
        bookmark = job.approach.bookmark(ending.cursor, is_full=reach is Reach.FULL)
        brake = _brake(job, verdicts, has_known_end=reading.has_known_end)
        with signals_deferred():
            report = staging.close(brake, ReadEnd(bookmark, is_short=ending.is_short))
    report.account.check()
    notices = (*job.notices, *job.approach.notices, *_noticed(report, reach, ending), *(sieve.notices() if sieve else ()))
    return Staged(report, tuple(verdicts), notices, tuple(sorted(missing)), _version(reading.stamp))


def _version(stamp: str) -> str:
    """Shorten a stamp, which may name thousands of files."""
    return blake2b(stamp.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest() if stamp else ""


def _pass_over(job: StageJob, recollection: Recollection, staging: Stage) -> None:
    for entries in recollection.unchanged(job.ledger):
        staging.pass_over(entries)
        job.advance(len(entries))


def _reach(job: StageJob, reading: Reading) -> Reach:
    """Return what the read takes in: a source that was to go on may have lost its place, and begin anew."""
    if job.options.keys or job.options.window:
        return Reach.PICKED
    return Reach.FULL if reading.is_whole else job.approach.reach


def _noticed(report: StageReport, reach: Reach, ending: Ending) -> Iterator[str]:
    yield from ending.notices
    if report.is_blind and reach is Reach.ONWARD:
        yield "rows that an earlier run staged were not among those that changed: the next run reads the source whole"


def _terms(job: StageJob, reach: Reach) -> Terms:
    policy, options = job.mapping.publish, job.options
    return Terms(
        on_change=policy.on_change,
        on_vanish=policy.on_vanish,
        drafts_only=options.status == "draft",
        accepted=options.accept,
        days=job.mapper.days,
        reach=reach,
        row_parts=len(job.mapping.key_columns) if is_unfolding(job.mapping.rows) else None,
        key_definition=_key_definition(job.mapping),
    )


def _key_definition(mapping: FeedMapping) -> str:
    """Return a digest of what makes the feed's keys."""
    columns = json.dumps([part.column for part in mapping.key_columns])
    return blake2b(columns.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Return lists of `size` items, the last one shorter, and hold on to none of them."""
    iterator = iter(items)
    return iter(lambda: list(islice(iterator, size)), [])


def _chosen(job: StageJob, rows: Iterable[SourceRow], sieve: Sieve | None) -> Iterable[RowOutcome]:
    outcomes = sieve.outcomes(job.mapper.over(sieve.rows(rows))) if sieve else job.mapper.over(rows)
    wanted = frozenset(map(RowKey, job.options.keys))
    return _picked(outcomes, wanted, len(job.mapping.key_columns)) if wanted else outcomes


def _picked(outcomes: Iterable[RowOutcome], wanted: frozenset[RowKey], row_parts: int) -> Iterator[RowOutcome]:
    """Yield what becomes of the rows asked for; an event that is picked out of its row counts as a row."""
    for outcome in outcomes:
        names = tuple(names_of(outcome.row_key, row_parts))
        if not wanted.isdisjoint(names):
            yield outcome if names[0] in wanted else replace(outcome, part=WHOLE_ROW)
