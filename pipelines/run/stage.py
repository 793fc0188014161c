"""COMMIT POINT 1 of a run: read the source, map every row, record what is to be sent, then ask the brakes.

Knows neither Dagster nor the environment: everything is passed in.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from hashlib import blake2b
from importlib.metadata import version
from itertools import chain, islice
from typing import TypeVar
from zoneinfo import ZoneInfo

from pydantic import TypeAdapter, ValidationError

from connectors.sources.contract import Ending, Reading, Source
from connectors.sources.errors import SourceUnavailableError
from connectors.sources.files.choice import FileSnapshot, TakeSnapshot
from connectors.sources.files.source import NO_FILES
from mappings.compiler.mapper import RowMapper
from mappings.compiler.rows import is_expanding, leaves_for_later
from mappings.outcome import WHOLE_ROW, MappedRow, Rejection, RowOutcome, SourceRow
from mappings.row_key import RowKey, names_of
from mappings.spec.feed import FeedMapping
from mappings.spec.source import FileSource
from pipelines.run.brakes import BrakeResult, judge
from pipelines.run.options import RunOptions, Window
from pipelines.run.publish import Advance
from pipelines.run.signals import raise_if_stopped, signals_deferred
from state.ledger.accounts import StageReport
from state.ledger.gate import NO_BOOKMARK, Bookmark
from state.ledger.ledger import Ledger
from state.ledger.reads import ReadKind, StagePolicy
from state.ledger.stage import Stage

_DAILY = timedelta(days=1)
_EARLY = 0.05
"""The part of `full_every` by which a whole read may come too early: a daily schedule that starts a minute sooner than
yesterday would else be due every other day."""
_UNITS = (("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How much of a source is read, and from where.

    `since`: the source's cursor to go on from, "" for its start; `fit`: what the rows are mapped by; `began`: when;
    `full_read_at`: when the full read began that this one builds on. `because`: why a feed that could be read incrementally is
    not, "" where there is no reason to name. `moves_bookmark`: the next read may go on from where this one ends.
    """

    kind: ReadKind = ReadKind.FULL
    since: str = ""
    fit: str = ""
    began: datetime | None = None
    full_read_at: datetime | None = None
    because: str = ""
    moves_bookmark: bool = False

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know of it."""
        return (f"read whole: {self.because}",) if self.because else ()

    def bookmark(self, cursor: str, *, is_full: bool) -> Bookmark | None:
        """Return the bookmark after a read that ended at `cursor`, None where the feed's stays as it is.

        `is_full`: it has read all there is, whether it was meant to or not. Such a read without a cursor clears the bookmark.
        """
        if not self.moves_bookmark:
            return None
        if not cursor:
            return NO_BOOKMARK if is_full else None
        return Bookmark(cursor, self.fit, self.began if is_full else self.full_read_at)


FULL_READ = ReadPlan()
"""How a source without cursors is always read."""
CHOSEN_ROWS = ReadPlan(ReadKind.CHOSEN)
"""Rows are picked by their keys, or by a window of days: such a read neither starts from the bookmark nor moves it."""


@dataclass(frozen=True, slots=True)
class ReadInputs:
    """What is known before a read: the feed, its compiled mapper, evidence of the service's lists, the time."""

    mapping: FeedMapping
    mapper: RowMapper
    lists: str
    began: datetime

    @property
    def fit(self) -> str:
        """A digest of all that rows are read and mapped by: while it is the same, an unchanged row gives the same event."""
        policy = self.mapping.publish
        return self._digest(self.lists, policy.on_change, policy.on_vanish)

    @property
    def fit_today(self) -> str:
        """The same with what else may change the event of an unchanged row: the day, our own version. "" where any moment may."""
        seen_on = self.mapper.seen_on
        return "" if seen_on is None else self._digest(self.fit, seen_on, version("eventsync"))

    def _digest(self, *parts: str) -> str:
        digest = hashlib.blake2b(self.mapping.digest, digest_size=16)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def plan_read(known: ReadInputs, options: RunOptions, bookmark: Bookmark = NO_BOOKMARK) -> ReadPlan:
    """Decide how a run reads its source.

    A run that sends drafts only moves no bookmark: its rows must be read again, to be sent as the mapping says. Where several
    rows make one event, those that changed mean nothing without the others: such a feed is always read whole.
    """
    full_every = _full_every(known.mapping)
    if options.window is not None:
        return replace(CHOSEN_ROWS, since=NO_FILES if options.window.by == "file" else "")
    if options.keys:
        return CHOSEN_ROWS
    if full_every is None:
        return FULL_READ
    needs_whole = known.mapper.needs_all_rows and known.mapping.source.gives_single_rows
    moves_bookmark = options.status is None and not needs_whole
    because = next(_reasons(known, options, bookmark, full_every), "")
    if because or needs_whole or not bookmark.cursor:
        since = NO_FILES if _are_deliveries(known.mapping) and bookmark.full_read_at is not None else ""
        return ReadPlan(since=since, fit=known.fit, began=known.began, because=because, moves_bookmark=moves_bookmark)
    return ReadPlan(
        ReadKind.INCREMENTAL, bookmark.cursor, known.fit, known.began, bookmark.full_read_at, moves_bookmark=moves_bookmark
    )


def _full_every(mapping: FeedMapping) -> timedelta | None:
    """Return how often a feed is read whole at least. Else what a delivery has beyond a horizon would never be read again."""
    return _DAILY if _are_deliveries(mapping) and leaves_for_later(mapping.rows) else mapping.source.full_every


def _are_deliveries(mapping: FeedMapping) -> bool:
    return isinstance(mapping.source, FileSource) and mapping.source.files == "new"


def _reasons(known: ReadInputs, options: RunOptions, bookmark: Bookmark, full_every: timedelta) -> Iterator[str]:
    """Yield why the source is read whole; the first reason is shown."""
    if options.full:
        yield "asked for"
    if bookmark.full_read_at is None:
        return
    if not bookmark.cursor:
        yield "what an earlier read has staged or held waits to be judged"
    elif bookmark.fit != known.fit:
        yield "the mapping, the source or the service's lists are not those of the last read"
    if known.began - bookmark.full_read_at >= full_every * (1 - _EARLY):
        yield f"the last whole read is {_format_length(full_every)} old, or nearly so"


def _format_length(length: timedelta) -> str:
    """Format a length as mapping files do: 1d12h."""
    rest = round(length.total_seconds())
    text = ""
    for unit, seconds in _UNITS:
        count, rest = divmod(rest, seconds)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


MAP_EVERY = timedelta(days=1)
"""Every row is mapped so often at least: what else may change an event, such as the rules of a time zone, leaves no trace."""


@dataclass(frozen=True, slots=True)
class SourceFingerprint:
    """Evidence of the content that a whole read was made of, kept with the feed.

    `stamp`: the files' sizes and times, "" where they were too young for that to prove anything; `content`: the digest of their
    bytes; `fit`: what the rows were mapped by; `read_at`: when all of them were last mapped.
    """

    stamp: str
    size: int
    content: str
    fit: str
    read_at: datetime

    def __str__(self) -> str:
        """The text that is kept."""
        return _FINGERPRINT.dump_json(self).decode("ascii")


_FINGERPRINT = TypeAdapter(SourceFingerprint)


@dataclass(frozen=True, slots=True)
class ChangeProbe:
    """Finds out whether a source has changed since its last whole read, for a run that `began` then and maps rows by `fit`."""

    take_snapshot: TakeSnapshot
    fit: str
    began: datetime

    def snapshot(self) -> FileSnapshot | None:
        """Return the files as they are now, None where every row has to be mapped in any case."""
        return self.take_snapshot() if self.fit else None

    def last(self, stored: str) -> SourceFingerprint | None:
        """Return the fingerprint that the last read left, None where it is worth nothing: too old, or of another mapping."""
        try:
            last = _FINGERPRINT.validate_json(stored) if stored else None
        except ValidationError:
            return None
        is_valid = last is not None and last.fit == self.fit and timedelta() <= self.began - last.read_at < MAP_EVERY
        return last if is_valid else None

    def match(self, snapshot: FileSnapshot, stored: str) -> SourceFingerprint | None:
        """Return the fingerprint to keep from now on, None if the source or its mapping has changed since the stored one.

        The bytes are digested only where the stamp proves nothing: the file was touched, or written anew.
        """
        last = self.last(stored)
        if last is None:
            return None
        stamp = snapshot.stamp if snapshot.is_settled else ""
        if stamp and stamp == last.stamp:
            return last
        if not last.content or snapshot.size != last.size or snapshot.digest() != last.content:
            return None
        return replace(last, stamp=stamp)

    def fingerprint(self, snapshot: FileSnapshot) -> SourceFingerprint | None:
        """Digest the content, in one pass over the bytes, before its rows are read."""
        content = snapshot.digest()
        if not content:
            return None
        return SourceFingerprint(snapshot.stamp if snapshot.is_settled else "", snapshot.size, content, self.fit, self.began)


@dataclass(slots=True)
class WindowFilter:
    """Passes the rows of a window on; rows without a day belong to no window, and are counted."""

    window: Window
    without_day: int = 0

    def rows(self, rows: Iterable[SourceRow]) -> Iterable[SourceRow]:
        """Return the rows of the window, where a column says which they are."""
        return self._changed(rows) if self.window.column else rows

    def outcomes(self, outcomes: Iterable[RowOutcome]) -> Iterable[RowOutcome]:
        """Return the outcomes of the window, where their events say which they are; an event counts as a row then."""
        return self._starting(outcomes) if self.window.by == "event" else outcomes

    def notices(self) -> Iterator[str]:
        """Say what was left out."""
        what = {"event": "by the start of their events", "file": "by their files", "cursor": "by when they changed"}
        yield f"only the rows of {self.window} were read, {what[self.window.by]}"
        if self.without_day and self.window.column:
            yield f"rows without a day in {self.window.column}, such as 2026-05-03, which belong to no window: {self.without_day}"
        elif self.without_day:
            yield f"rejected rows, which tell no day and belong to no window: {self.without_day}; `eventsync preview` shows them"

    def _changed(self, rows: Iterable[SourceRow]) -> Iterator[SourceRow]:
        column, holds = self.window.column, self.window.holds
        for row in rows:
            day = _day_in(row.cells[column])
            if day is None:
                self.without_day += 1
            elif holds(day):
                yield row

    def _starting(self, outcomes: Iterable[RowOutcome]) -> Iterator[RowOutcome]:
        holds = self.window.holds
        for outcome in outcomes:
            if isinstance(outcome, Rejection):
                self.without_day += not outcome.part.is_further
            elif isinstance(outcome, MappedRow) and holds(_start_of(outcome.body)):
                yield replace(outcome, part=WHOLE_ROW)


def _day_in(cell: str) -> date | None:
    """Return the day of an ISO date, or that in UTC of an ISO moment; None if the cell holds neither."""
    try:
        moment = datetime.fromisoformat(cell.strip())
    except ValueError:
        return None
    return moment.date() if moment.tzinfo is None else moment.astimezone(UTC).date()


def _start_of(body: bytes) -> date:
    """Return the day on which an event starts, where it happens."""
    event = json.loads(body)
    return datetime.fromisoformat(event["startAt"]).astimezone(ZoneInfo(event["timezone"])).date()


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
    policy, brake = _stage_policy(job, ReadKind.FULL), _brake(job, verdicts)
    report = job.ledger.repeat_read(job.run_id, job.fence, policy, last_stamp, str(fingerprint), brake)
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
            report = staging.close(brake, bookmark, is_short=ending.is_short)
    report.account.check()
    noticed = (*_noticed(report, kind, ending), *(window_filter.notices() if window_filter else ()))
    notices = (*job.notices, *job.plan.notices, *noticed)
    return Staged(report, tuple(verdicts), notices, tuple(sorted(missing)), _version(reading.stamp))


def _write_changed(job: StageJob, rows: Iterable[SourceRow], staging: Stage) -> None:
    """Map and write the rows whose digest is unknown; the digest is compared before a row is mapped (budget 2)."""
    map_rows, digest = job.mapper.over, job.mapper.digest
    for chunk in batched(rows, CHUNK_ROWS):
        raise_if_stopped()
        digests = [b"" if row.problems or row.warnings or row.is_gone else digest(row) for row in chunk]
        entries = staging.unchanged(digests)
        changed = list(map_rows(row for row, entry_id in zip(chunk, entries, strict=True) if not entry_id))
        with signals_deferred():
            staging.write(changed, [entry_id for entry_id in entries if entry_id], partial(list, map_rows(chunk)))
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
