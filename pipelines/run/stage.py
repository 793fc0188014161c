"""COMMIT POINT 1 of a run: read the source, map every row, record what is to be sent, then check the brakes.

A source is read from its start, incrementally from the feed's bookmark, or for selected rows only. The fingerprint of an
unchanged source saves reading its rows again. Independent of Dagster and the environment.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from importlib.metadata import version
from itertools import islice
from typing import TypeVar
from zoneinfo import ZoneInfo

from pydantic import TypeAdapter, ValidationError

from connectors.sources.contract import Source, SourceUnavailableError
from connectors.sources.files.choice import FileSnapshot, TakeSnapshot
from connectors.sources.files.source import NO_FILES
from connectors.sources.formats.csv import PlainRows
from mappings.compiler.key import key_definition
from mappings.compiler.mapper import RowMapper
from mappings.outcome import WHOLE_ROW, MappedRow, Rejection, RowOutcome, SourceRow
from mappings.row_key import RowKey, names_of
from mappings.spec.feed import FeedMapping
from mappings.spec.source import IcsSource
from mappings.spec.source_base import FileSource
from pipelines.run.brakes import BrakeResult, check_brakes
from pipelines.run.options import Advance, RunOptions, Window
from pipelines.run.signals import raise_if_stopped, signals_raised
from state.ledger.accounts import ReadKind, StagePolicy, StageReport
from state.ledger.gate import NO_BOOKMARK, Bookmark, repeat_read
from state.ledger.ledger import Ledger
from state.ledger.stage import Stage, open_stage

CHUNK_ROWS = 2_000
"""Rows per stage transaction: enough for batched statements and few disk flushes, few enough for constant memory."""
MAP_EVERY = timedelta(days=1)
"""Every row is mapped at least this often, because changes of time zone rules, for example, leave no evidence."""
_EARLY = 0.05
"""Share of `full_every` by which a full read may come early: a daily schedule that starts a minute earlier than yesterday would
otherwise be due every other day.
"""
UNCHANGED = "unchanged"
"""Beginning of the notice of an unchanged source, which is logged as information, not as a warning."""
_MUCH_SHORTER = 0.5
"""Share of the last full read's rows that may be missing if nothing proves that the source was read to its end."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How much of a source is read, from which cursor, and what its rows are mapped with.

    `began`: start of the read. `since`: the cursor to continue from, "" for the start. `fit`: digest of everything that rows are
    read and mapped with; while it is equal, an unchanged row gives the same event. `fit_today`: `fit` with everything else that
    may change the event of an unchanged row, "" if any moment may. `full_read_at`: start of the full read that this one builds
    on. `because`: why a feed that could be read incrementally is read in full, "" without a reason to report. `moves_bookmark`:
    the next read may continue where this one ends.
    """

    began: datetime
    fit: str = ""
    fit_today: str = ""
    kind: ReadKind = ReadKind.FULL
    since: str = ""
    full_read_at: datetime | None = None
    because: str = ""
    moves_bookmark: bool = False

    def bookmark(self, cursor: str, *, is_full: bool) -> Bookmark | None:
        """Return the feed's bookmark after a read that ended at `cursor`, None to keep the present one.

        `is_full`: everything was read, planned or not. Such a read without a cursor clears the bookmark.
        """
        if not self.moves_bookmark or not (cursor or is_full):
            return None
        return Bookmark(cursor, self.fit, self.began if is_full else self.full_read_at) if cursor else NO_BOOKMARK


def plan_read(
    mapping: FeedMapping, mapper: RowMapper, lists: str, began: datetime, options: RunOptions, bookmark: Bookmark = NO_BOOKMARK
) -> ReadPlan:
    """Decide how a run reads its source. `lists`: evidence of the service's lists.

    A read for selected keys or a window, or as drafts only, neither starts from the bookmark nor moves it: its rows must be read
    again, to be sent as the mapping says. A feed in which several rows make one event is always read in full, because changed
    rows need the others. A source of new files with a horizon is read in full daily, or rows beyond the horizon would never be
    read again.
    """
    source, publish = mapping.source, mapping.publish
    fit, seen_on = _digest(mapping, lists, publish.on_change, publish.on_vanish), mapper.seen_on
    plan = ReadPlan(began, fit, "" if seen_on is None else _digest(mapping, fit, seen_on, version("eventsync")))
    if options.window is not None or options.keys:
        is_by_file = options.window is not None and options.window.by == "file"
        return replace(plan, kind=ReadKind.CHOSEN, since=NO_FILES if is_by_file else "")
    are_deliveries = isinstance(source, FileSource) and source.files == "new"
    has_later = mapping.leaves_for_later or isinstance(source, IcsSource)
    full_every = timedelta(days=1) if are_deliveries and has_later else source.full_every
    if full_every is None:
        return plan
    needs_whole = mapper.needs_all_rows and source.gives_single_rows
    since = NO_FILES if are_deliveries and bookmark.full_read_at is not None else ""
    because = _reason_for_whole_read(plan, options, bookmark, full_every)
    plan = replace(plan, since=since, because=because, moves_bookmark=options.status is None and not needs_whole)
    if because or needs_whole or not bookmark.cursor:
        return plan
    return replace(plan, kind=ReadKind.INCREMENTAL, since=bookmark.cursor, full_read_at=bookmark.full_read_at)


def _reason_for_whole_read(plan: ReadPlan, options: RunOptions, bookmark: Bookmark, full_every: timedelta) -> str:
    if options.full:
        return "the option `full` was given"
    if bookmark.full_read_at is None:
        return ""
    if not bookmark.cursor:
        return "rows that an earlier read staged or held must be compared again"
    if bookmark.fit != plan.fit:
        return "the mapping, the source or the service's lists have changed since the last read"
    if plan.began - bookmark.full_read_at >= full_every * (1 - _EARLY):
        return f"the last full read is about {str(full_every).removesuffix(', 0:00:00')} old"
    return ""


@dataclass(frozen=True, slots=True)
class SourceFingerprint:
    """What is stored about a full read, to see whether the source has changed.

    `content`: digest of its files. `fit`: digest of all that the rows were mapped with. `read_at`: when all rows were last
    mapped.
    """

    content: str
    fit: str
    read_at: datetime

    def __str__(self) -> str:
        """Return the text that is stored."""
        return _FINGERPRINT.dump_json(self).decode("ascii")


_FINGERPRINT = TypeAdapter(SourceFingerprint)


def parse_fingerprint(stored: str, plan: ReadPlan) -> SourceFingerprint | None:
    """Parse the last read's fingerprint; None if it is too old, or from another mapping."""
    try:
        last = _FINGERPRINT.validate_json(stored)
    except ValidationError:
        return None
    return last if last.fit == plan.fit_today and timedelta() <= plan.began - last.read_at < MAP_EVERY else None


@dataclass(slots=True)
class WindowFilter:
    """Passes on the rows of a window; counts rows without a day, which belong to no window."""

    window: Window
    without_day: int = 0

    def rows(self, rows: Iterable[SourceRow]) -> Iterator[SourceRow]:
        """Yield the rows of the window, if a column decides: an ISO date, or the UTC day of an ISO time."""
        for row in rows:
            day = self._day_of_change(row) if self.window.column else self.window.first
            if day is not None and self.window.holds(day):
                yield row

    def outcomes(self, outcomes: Iterable[RowOutcome]) -> Iterator[RowOutcome]:
        """Yield the outcomes of the window, if the events' start decides; each event then counts as a row."""
        for outcome in outcomes:
            if self.window.by != "event":
                yield outcome
            elif isinstance(outcome, Rejection):
                self.without_day += not outcome.part.is_further
            elif isinstance(outcome, MappedRow) and self.window.holds(_day_of_event(outcome)):
                yield replace(outcome, part=WHOLE_ROW)

    def days(self, rows: Iterable[SourceRow], mapper: RowMapper) -> Iterator[date]:
        """Yield the day of each row or event that has one, inside the window or not."""
        if self.window.column:
            yield from filter(None, map(self._day_of_change, rows))
            return
        for outcome in mapper.over(rows):
            if isinstance(outcome, MappedRow):
                yield _day_of_event(outcome)
            self.without_day += isinstance(outcome, Rejection) and not outcome.part.is_further

    def _day_of_change(self, row: SourceRow) -> date | None:
        """Return the day in the row's column, None if there is none."""
        try:
            moment = datetime.fromisoformat(row.cells[self.window.column].strip())
        except ValueError:
            self.without_day += 1
            return None
        return (moment.astimezone(UTC) if moment.tzinfo else moment).date()

    def notices(self) -> Iterator[str]:
        """Yield sentences about the window and the rows without a day."""
        what = {"event": "by the start of their events", "file": "by their files", "cursor": "by when they changed"}
        yield f"only the rows of {self.window} were read, {what[self.window.by]}"
        if self.without_day and self.window.column:
            yield f"rows without a day in {self.window.column}, such as 2026-05-03, which belong to no window: {self.without_day}"
        elif self.without_day:
            yield f"rejected rows have no day and belong to no window: {self.without_day}; `eventsync preview` shows them"


def _day_of_event(mapped: MappedRow) -> date:
    """Return the day on which an event starts, in its own time zone."""
    event = json.loads(mapped.body)
    return datetime.fromisoformat(event["startAt"]).astimezone(ZoneInfo(event["timezone"])).date()


@dataclass(frozen=True, slots=True)
class Staged:
    """A finished stage with its report, the brakes' results, and notices about the source and the service.

    `missing`: row keys that were asked for and are not in the source. `headers`: the source's own name of each column that the
    mapping reads.
    """

    report: StageReport
    brakes: tuple[BrakeResult, ...]
    notices: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def stopping(self) -> tuple[BrakeResult, ...]:
        """The brakes that stop this feed from publishing."""
        return tuple(verdict for verdict in self.brakes if verdict.stops)


@dataclass(frozen=True, slots=True)
class StageJob:
    """The inputs of one stage: source, mapper, ledger, options. The source was opened as `plan` says.

    `take_snapshot` shows whether the source is unchanged; None: every row is mapped. `as_of`: as in the run context.
    """

    run_id: str
    fence: int
    mapping: FeedMapping
    source: Source
    mapper: RowMapper
    ledger: Ledger
    options: RunOptions
    advance: Advance
    plan: ReadPlan
    notices: tuple[str, ...] = ()
    take_snapshot: TakeSnapshot | None = None
    as_of: datetime | None = None

    def policy(self, kind: ReadKind) -> StagePolicy:
        """Return the policy by which a read of this kind is recorded."""
        publish = self.mapping.publish
        return StagePolicy(
            on_change=publish.on_change,
            on_vanish=publish.on_vanish,
            drafts_only=self.options.status == "draft",
            accepted=self.options.accept,
            days=self.mapper.days,
            as_of=self.as_of,
            kind=kind,
            row_parts=self.mapping.key_parts if self.mapping.is_expanding else None,
            key_definition=_digest_of(key_definition(self.mapping), 16),
        )

    def staged(
        self, report: StageReport, brakes: list[BrakeResult], notices: Iterable[str], missing: Iterable[str] = ()
    ) -> Staged:
        """Build the finished stage, with all notices in order."""
        whole = [f"read in full: {self.plan.because}"] if self.plan.because else []
        every_notice = (*self.notices, *whole, *notices)
        return Staged(report, tuple(brakes), every_notice, tuple(sorted(missing)))


def stage(job: StageJob) -> Staged:
    """Read the source, map every row, record what is to be sent; then check the brakes.

    COMMIT POINT 1: each `write` is one transaction over a chunk of rows. Only `close` opens the gate, in the transaction that
    moves the feed's bookmark, which therefore covers exactly the recorded rows.

    Raises:
        SyncError: the source cannot be read, or the state DB cannot record; what was staged so far is not published.
    """
    options, plan = job.options, job.plan
    is_usual = not options.keys and options.status is None and options.window is None
    snapshot, fingerprint, known_stamp = None, None, ""
    if job.take_snapshot is not None and is_usual and plan.fit_today:
        with signals_raised():
            snapshot = job.take_snapshot()
    if snapshot is not None:
        last_stamp = "" if options.full else job.ledger.stamp()
        last = parse_fingerprint(last_stamp, plan)
        is_unchanged = last is not None and last.content == snapshot.content
        if is_unchanged and (staged := _repeat(job, last_stamp, str(last))):
            return staged
        fingerprint = SourceFingerprint(snapshot.content, plan.fit_today, plan.began)
        if last is not None and job.mapper.takes_rows_alone:
            fingerprint, known_stamp = replace(fingerprint, read_at=last.read_at), last_stamp
    return _read(job, snapshot, fingerprint, known_stamp)


def _repeat(job: StageJob, last_stamp: str, stamp: str) -> Staged | None:
    """Record the last read again for an unchanged source; None if the ledger or a brake needs its rows."""
    brakes: list[BrakeResult] = []
    fence, policy = job.ledger.fence(job.run_id, job.fence), job.policy(ReadKind.FULL)
    report = repeat_read(fence, policy, last_stamp, stamp, _brake(job, brakes))
    if report is None:
        return None
    job.advance(report.account.read)
    return job.staged(report, brakes, [f"{UNCHANGED} since the last read"])


def _brake(job: StageJob, verdicts: list[BrakeResult], *, has_known_end: bool = True) -> Callable[[StageReport], list[str]]:
    """Return a function that checks the brakes on a report and appends to `verdicts`. `has_known_end`: the read surely reached
    the source's end.
    """

    def brake(report: StageReport) -> list[str]:
        verdicts.extend(check_brakes(report, job.mapping.publish.brakes, job.options.accept, job.mapping.feed))
        for verdict in verdicts:
            if verdict.name == "shrink" and verdict.measured > _MUCH_SHORTER and not (has_known_end or verdict.is_accepted):
                raise SourceUnavailableError(
                    f"{verdict.sentence}: the server does not send the length of the file, so it may have been cut off",
                    hint="run again later; if the file is really so short, pass --accept shrink, or ask that its length be sent",
                )
        return [verdict.name for verdict in verdicts if verdict.is_tripped]

    return brake


def _read(job: StageJob, snapshot: FileSnapshot | None, fingerprint: SourceFingerprint | None, known_stamp: str) -> Staged:
    """Read all rows, and map them, except those whose digest is known from the read that left `known_stamp`.

    `fingerprint` is stored for the next read, if the opened source is the one of the snapshot.
    """
    options, brakes, missing = job.options, list[BrakeResult](), set(job.options.keys)
    window = WindowFilter(options.window) if options.window else None
    with ExitStack() as stack:
        with signals_raised():
            reading = stack.enter_context(job.source.read())
        is_as_seen = snapshot is not None and fingerprint is not None and reading.stamp == snapshot.read_as
        uses_digests = is_as_seen and job.mapper.takes_rows_alone
        # A source may be unable to continue from the cursor, and start from the beginning.
        kind = ReadKind.FULL if reading.is_whole else job.plan.kind
        if options.keys or options.window:
            kind = ReadKind.CHOSEN
        staging = open_stage(
            job.ledger.fence(job.run_id, job.fence),
            is_whole=reading.is_whole and kind is not ReadKind.CHOSEN,
            stamp=str(fingerprint) if is_as_seen else "",
            policy=job.policy(kind),
            digests_of=known_stamp if uses_digests else None,
        )
        if uses_digests and known_stamp:
            _write_changed(job, reading.rows, staging)
        outcomes: Iterable[RowOutcome] = job.mapper.over(window.rows(reading.rows) if window else reading.rows)
        outcomes = window.outcomes(outcomes) if window else outcomes
        key_parts, places = job.mapping.key_parts, dict[str, RowKey]()
        outcomes = _picked(outcomes, frozenset(map(RowKey, options.keys)), key_parts, places) if options.keys else outcomes
        for chunk in read_chunks(outcomes):
            staging.write(chunk)
            job.advance(sum(not outcome.part.is_further for outcome in chunk))
            if missing:
                missing.difference_update(name for outcome in chunk for name in names_of(outcome.row_key, key_parts))
            del chunk  # before the next one is made: memory holds one at a time
        with signals_raised():
            ending = reading.ending()
        bookmark = job.plan.bookmark(ending.cursor, is_full=kind is ReadKind.FULL)
        brake = _brake(job, brakes, has_known_end=reading.has_known_end)
        report = staging.close(brake, bookmark, is_short=ending.is_short)
    report.account.check()
    notices = list(ending.notices)
    if report.is_blind and kind is ReadKind.INCREMENTAL:
        notices.append("rows that an earlier run staged are not among the changed ones: the next run reads the source in full")
    if window:
        notices += window.notices()
    missed = (f"{key} (that row has the key {places[key]})" if places.get(key) else key for key in missing)
    staged = job.staged(report, brakes, notices, missed)
    counts = Counter(reading.headers.values())
    headers = {name: text for name, text in reading.headers.items() if text and name in job.mapper.columns}
    # A column by its number is another one once there are more or fewer of its name.
    numbered = {name: f"{text} (one of {counts[text]})" for name, text in headers.items() if counts[text] > 1}
    return replace(staged, headers=headers | numbered)


def _write_changed(job: StageJob, rows: Iterator[SourceRow], staging: Stage) -> None:
    """Map and write the rows whose digest is unknown; digests are compared before a row is mapped or even built (budget 2)."""
    plain = rows if isinstance(rows, PlainRows) else PlainRows(rows, tuple(job.mapper.columns), "")
    map_rows, digest_of_cells = job.mapper.over, job.mapper.digest_of_cells(plain.columns)

    def digest(row: SourceRow) -> bytes:
        return b"" if row.problems or row.warnings or row.is_gone else job.mapper.digest(row)

    for chunk in read_chunks(plain.records):
        digests = [digest_of_cells(one[1]) if isinstance(one, tuple) else digest(one) for one in chunk]
        entries = staging.unchanged(digests)
        changed = [plain.row(one) for one, entry_id in zip(chunk, entries, strict=True) if not entry_id]
        map_all: Callable[[], list[RowOutcome]] = partial(list, map_rows(map(plain.row, chunk)))
        staging.write(list(map_rows(changed)), list(filter(None, entries)), map_all)
        job.advance(len(chunk))


def _picked(
    outcomes: Iterable[RowOutcome], wanted: frozenset[RowKey], key_parts: int, places: dict[str, RowKey]
) -> Iterator[RowOutcome]:
    """Yield the outcomes of the rows asked for; a single event picked from an expanded row counts as a row.

    `places` collects the keys of rows that were asked for by place or number instead.
    """
    for outcome in outcomes:
        names = tuple(names_of(outcome.row_key, key_parts))
        for place in wanted & (outcome.location.names | {outcome.location.shown_number}):
            places.setdefault(place, names[0])
        if not wanted.isdisjoint(names):
            yield outcome if names[0] in wanted else replace(outcome, part=WHOLE_ROW)


def read_chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield lists of `CHUNK_ROWS` items, the last one shorter, without keeping any. Signals interrupt the reading."""
    iterator = iter(items)
    while True:
        with signals_raised():
            raise_if_stopped()
            chunk = list(islice(iterator, CHUNK_ROWS))
        if not chunk:
            return
        yield chunk
        del chunk


def _digest(mapping: FeedMapping, *parts: str) -> str:
    digest = hashlib.blake2b(mapping.digest, digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _digest_of(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=size).hexdigest()
