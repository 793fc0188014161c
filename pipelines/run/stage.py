"""COMMIT POINT 1 of a run: read the source, map every row, record what is to be sent, then ask the brakes.

Knows neither Dagster nor the environment: everything is passed in.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import chain, islice
from typing import TypeVar

from connectors.sources.contract import Ending, PlainRows, Reading, Source
from connectors.sources.errors import SourceUnavailableError
from connectors.sources.files.choice import FileSnapshot
from mappings.compiler.mapper import RowMapper
from mappings.compiler.rows import is_expanding
from mappings.outcome import WHOLE_ROW, RowOutcome, SourceRow
from mappings.row_key import RowKey, names_of
from mappings.spec.feed import FeedMapping
from pipelines.run.brakes import BrakeResult, judge
from pipelines.run.drain import Advance
from pipelines.run.options import RunOptions
from pipelines.run.reading import FULL_READ, ChangeProbe, ReadPlan, SourceFingerprint
from pipelines.run.signals import raise_if_stopped, signals_deferred
from pipelines.run.window_filter import WindowFilter
from state.ledger.accounts import StageReport
from state.ledger.gate import ReadEnd
from state.ledger.ledger import Ledger
from state.ledger.stage import Stage
from state.ledger.stage_policy import ReadKind, StagePolicy
from state.ledger.unchanged_source import UnchangedRead

CHUNK_ROWS = 2_000
"""Rows of one stage transaction: large enough for batched statements and few flushes to disk, small enough for flat memory."""

_MUCH_SHORTER = 0.5
"""The share of the rows of the last whole read that may not be missing where nothing proves that the source came whole."""
_MAY_BE_CUT_OFF = "the server does not say how long the file is, so the answer may have been cut off"
_KNOWN_END_HINT = "run again later; if it is so short now, say `settle: 30s` in its source, or have the server send its length"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Staged:
    """A finished stage, the verdicts of the brakes, and what the run noticed of the service before it."""

    report: StageReport
    brakes: tuple[BrakeResult, ...]
    notices: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Row keys that were asked for, and that no row of the source has."""
    version: str = ""
    """What stands for the content that was read: equal for equal content; "" where the source gives no evidence."""

    @property
    def stopping(self) -> tuple[BrakeResult, ...]:
        """The brakes that keep this feed from publishing."""
        return tuple(verdict for verdict in self.brakes if verdict.stops)


@dataclass(frozen=True, slots=True)
class StageJob:
    """One stage: where rows come from, what maps them, where they are recorded. The source was opened as `plan` says."""

    run_id: str
    fence: int
    mapping: FeedMapping
    source: Source
    mapper: RowMapper
    ledger: Ledger
    options: RunOptions
    advance: Advance
    notices: tuple[str, ...] = ()
    plan: ReadPlan = FULL_READ
    probe: ChangeProbe | None = None
    """Recognises an unchanged source and unchanged rows; None: every row is mapped."""


def stage(job: StageJob) -> Staged:
    """Read the source, map every row, record what is to be sent; then ask the brakes.

    COMMIT POINT 1: each `write` is one transaction over a chunk of rows; the gate opens only in `close`, and only with it moves
    the feed's bookmark: it covers exactly the rows that were given.

    Raises:
        SyncError: the source cannot be read, or the state DB cannot record; what was staged so far is not published.
    """
    options = job.options
    if job.probe is None or options.keys or options.status is not None or options.window is not None:
        return _read(job)
    snapshot = job.probe.snapshot()
    if snapshot is None:
        return _read(job)
    last_stamp = "" if options.full else job.ledger.stamp()
    return _stage_unread(job, job.probe, snapshot, last_stamp) or _read_changed(job, job.probe, snapshot, last_stamp)


def _stage_unread(job: StageJob, probe: ChangeProbe, snapshot: FileSnapshot, last_stamp: str) -> Staged | None:
    """Account for a source that is as the last read left it; None where its rows have to be read."""
    fingerprint = probe.match(snapshot, last_stamp)
    if fingerprint is None:
        return None
    verdicts: list[BrakeResult] = []
    repetition = UnchangedRead(last_stamp, str(fingerprint))
    report = job.ledger.repeat_read(job.run_id, job.fence, _stage_policy(job, ReadKind.FULL), repetition, _brake(job, verdicts))
    if report is None:
        return None
    job.advance(report.account.read)
    notices = (*job.notices, *job.plan.notices, f"unchanged since it was read {fingerprint.read_at:%Y-%m-%d %H:%M} UTC")
    return Staged(report, tuple(verdicts), notices, version=_version(snapshot.read_as))


def _read_changed(job: StageJob, probe: ChangeProbe, snapshot: FileSnapshot, last_stamp: str) -> Staged:
    """Read a file, and map those of its rows that its last read did not leave behind as they are."""
    fingerprint = probe.fingerprint(snapshot)
    last = probe.last(last_stamp)
    if fingerprint is None or last is None or not job.mapper.takes_rows_alone:
        return _read(job, snapshot, fingerprint)
    return _read(job, snapshot, replace(fingerprint, read_at=last.read_at), last_stamp)


def _brake(job: StageJob, verdicts: list[BrakeResult], *, has_known_end: bool = True) -> Callable[[StageReport], list[str]]:
    """Return what asks the brakes of a report, and keeps their verdicts. `has_known_end`: of what was read."""

    def brake(report: StageReport) -> list[str]:
        verdicts.extend(judge(report, job.mapping.publish.brakes, job.options.accept))
        for verdict in verdicts:
            if verdict.name == "shrink" and verdict.measured > _MUCH_SHORTER and not has_known_end:
                raise SourceUnavailableError(f"{verdict.sentence}: {_MAY_BE_CUT_OFF}", hint=_KNOWN_END_HINT)
        return [verdict.name for verdict in verdicts if verdict.is_tripped]

    return brake


def _read(
    job: StageJob, snapshot: FileSnapshot | None = None, fingerprint: SourceFingerprint | None = None, known_stamp: str = ""
) -> Staged:
    """Read all rows; map them, but for those that are known from the read that left `known_stamp`.

    `fingerprint` is kept for the next read, if the source is opened as the snapshot shows it.
    """
    verdicts: list[BrakeResult] = []
    row_parts = len(job.mapping.key_columns)
    missing = set(job.options.keys)
    with ExitStack() as stack:
        reading = stack.enter_context(job.source.read())
        is_as_seen = snapshot is not None and fingerprint is not None and reading.stamp == snapshot.read_as
        uses_digests = is_as_seen and job.mapper.takes_rows_alone
        kind = _read_kind(job, reading)
        staging = job.ledger.open_stage(
            job.run_id,
            is_whole=reading.is_whole and kind is not ReadKind.CHOSEN,
            fence=job.fence,
            stamp=str(fingerprint) if is_as_seen else "",
            policy=_stage_policy(job, kind),
            digests_of=known_stamp if uses_digests else None,
        )
        if uses_digests and known_stamp:
            # Else a full garbage collection goes through the whole program every few chunks of rows (budget 2).
            gc.freeze()
            stack.callback(gc.unfreeze)
            _write_changed(job, reading.rows, staging)
        window_filter = WindowFilter(job.options.window) if job.options.window else None
        for chunk in batched(_chosen(job, reading.rows, window_filter), CHUNK_ROWS):
            raise_if_stopped()
            with signals_deferred():
                staging.write(chunk)
            job.advance(sum(not outcome.part.is_further for outcome in chunk))
            if missing:
                missing.difference_update(chain.from_iterable(names_of(each.row_key, row_parts) for each in chunk))
            del chunk  # before the next one is made: memory holds one at a time
        ending = reading.ending()
        bookmark = job.plan.bookmark(ending.cursor, is_full=kind is ReadKind.FULL)
        brake = _brake(job, verdicts, has_known_end=reading.has_known_end)
        with signals_deferred():
            report = staging.close(brake, ReadEnd(bookmark, is_short=ending.is_short))
    report.account.check()
    noticed = (*_noticed(report, kind, ending), *(window_filter.notices() if window_filter else ()))
    notices = (*job.notices, *job.plan.notices, *noticed)
    return Staged(report, tuple(verdicts), notices, tuple(sorted(missing)), _version(reading.stamp))


def _write_changed(job: StageJob, rows: Iterator[SourceRow], staging: Stage) -> None:
    """Map and write the rows whose digest is unknown; the digest is compared before a row is mapped, or even made (budget 2)."""
    plain = rows if isinstance(rows, PlainRows) else PlainRows(rows, tuple(job.mapper.columns), "")
    map_rows, digest_of_cells = job.mapper.over, job.mapper.digest_of_cells(plain.columns)

    def digest(row: SourceRow) -> bytes:
        return b"" if row.problems or row.warnings or row.is_gone else job.mapper.digest(row)

    for chunk in batched(plain.records, CHUNK_ROWS):
        raise_if_stopped()
        digests = [digest_of_cells(one[1]) if isinstance(one, tuple) else digest(one) for one in chunk]
        entries = staging.unchanged(digests)
        changed = [plain.row(one) for one, entry_id in zip(chunk, entries, strict=True) if not entry_id]
        map_all = partial(list, map_rows(map(plain.row, chunk)))
        with signals_deferred():
            staging.write(list(map_rows(changed)), list(filter(None, entries)), map_all)
        job.advance(len(chunk))


def _version(stamp: str) -> str:
    """Shorten a stamp, which may name thousands of files."""
    return blake2b(stamp.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest() if stamp else ""


def _read_kind(job: StageJob, reading: Reading) -> ReadKind:
    """Return what the read takes in: a source that was to go on may have lost its place, and begin anew."""
    if job.options.keys or job.options.window:
        return ReadKind.CHOSEN
    return ReadKind.FULL if reading.is_whole else job.plan.kind


def _noticed(report: StageReport, kind: ReadKind, ending: Ending) -> Iterator[str]:
    yield from ending.notices
    if report.is_blind and kind is ReadKind.INCREMENTAL:
        yield "rows that an earlier run staged were not among those that changed: the next run reads the source whole"


def _stage_policy(job: StageJob, kind: ReadKind) -> StagePolicy:
    policy, options = job.mapping.publish, job.options
    return StagePolicy(
        on_change=policy.on_change,
        on_vanish=policy.on_vanish,
        drafts_only=options.status == "draft",
        accepted=options.accept,
        days=job.mapper.days,
        kind=kind,
        row_parts=len(job.mapping.key_columns) if is_expanding(job.mapping.rows) else None,
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


def _chosen(job: StageJob, rows: Iterable[SourceRow], window_filter: WindowFilter | None) -> Iterable[RowOutcome]:
    map_rows = job.mapper.over
    outcomes = window_filter.outcomes(map_rows(window_filter.rows(rows))) if window_filter else map_rows(rows)
    wanted = frozenset(map(RowKey, job.options.keys))
    return _picked(outcomes, wanted, len(job.mapping.key_columns)) if wanted else outcomes


def _picked(outcomes: Iterable[RowOutcome], wanted: frozenset[RowKey], row_parts: int) -> Iterator[RowOutcome]:
    """Yield what becomes of the rows asked for; an event that is picked out of its row counts as a row."""
    for outcome in outcomes:
        names = tuple(names_of(outcome.row_key, row_parts))
        if not wanted.isdisjoint(names):
            yield outcome if names[0] in wanted else replace(outcome, part=WHOLE_ROW)
