"""Records of Salesforce as a source, by REST pages or by Bulk API 2.0 jobs: which of them, and what a later reading leaves out.

simple-salesforce's `query_all_iter` ends with an error where Salesforce has forgotten a query, and its `bulk2` neither resumes a
result that broke off nor bounds the wait for a job; both hold whole pages. So pages and jobs are read here.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from math import ceil
from typing import Any

import requests
import urllib3

from connectors.sources.contract import REAL_CLOCK, Access, BadSourceError, Clock, Ending, Reading, SourceUnavailableError
from connectors.sources.rows import ColumnRequest
from connectors.sources.salesforce.org import DAY_SPENT_S, NO_SALESFORCE, POLICY, LocatorLostError, Org, Page, SlowQueryError
from connectors.sources.salesforce.query import (
    DELETED,
    ID,
    Column,
    Selection,
    Shapes,
    children_text,
    picked,
    quoted,
    select_object,
    select_query,
    utc_text,
)
from connectors.sources.service_answers import as_odd_answer, in_known_shape
from mappings.errors import SyncError
from mappings.outcome import RowLocation, SourceRow
from mappings.spec.soql import parse_query
from mappings.spec.source import SalesforceSource

Texts = list[str]
"""The cells of one record, in the order of the selection's columns."""

PAGE_ROWS = 2000
"""Records of a full page."""
CHUNK_ROWS = 50_000
"""Records of a full chunk of a job's results."""
LONGEST_WAIT_S = 3 * 3600.0
"""Salesforce tries a query 15 times, for ten minutes each, before it gives a job up."""
_AROUND_A_JOB = 6
_MOST_RESTARTS = 20
_FIRST_POLL_S, _LONGEST_POLL_S = 0.5, 20.0
_LARGEST_CELL = 16 * 1024 * 1024
_PIECE_BYTES = 256 * 1024
_CHANGED = "the records came in another order when Salesforce had forgotten the query and was asked again"
_LATER = "run again later"
_NOT_ALL = "run again later; if it stays so, write api: rest"
_NOT_IN_BULK = ("not supported by the Bulk API", "FEATURENOTENABLED", "INVALIDENTITY", "EXCEEDEDQUOTA", "EXCEEDED_QUOTA")
_BAD_QUERY = ("MALFORMED_QUERY", "INVALID_FIELD", "INVALID_TYPE", "No such column")


class NotInBulkError(BadSourceError):
    """The object cannot be read in bulk, or no more jobs are allowed today; pages may still work."""


class _BrokenOffError(SourceUnavailableError):
    """Results broke off while they arrived: the rest of them is worth a request."""


@dataclass(frozen=True, slots=True)
class OrgProbe:
    """What a feed would read. `records` is None where they cannot be counted; `left` of the `allowed` requests of a day.

    `stops_at`: how many of them must stay for others, 0 for none.
    """

    place: str
    columns: int
    records: int | None
    in_bulk: bool
    left: int
    allowed: int
    stops_at: int

    @property
    def requests(self) -> int | None:
        """About how many requests a full read takes."""
        if self.records is None:
            return None
        return ceil(self.records / CHUNK_ROWS) + _AROUND_A_JOB if self.in_bulk else max(1, ceil(self.records / PAGE_ROWS))

    @property
    def is_enough(self) -> bool:
        """Whether the day's requests suffice for it."""
        return not self.allowed or self.left - self.stops_at >= (self.requests or 1)

    def __str__(self) -> str:
        """Return it as one line."""
        records = "" if self.records is None else f", {self.records} records, read in {'bulk' if self.in_bulk else 'pages'}"
        cost = "" if self.requests is None else f" by about {self.requests} requests"
        left = f"; the org has {self.left} of its {self.allowed} requests of the day left" if self.allowed else ""
        keeps = f", {self.stops_at} of which we leave to others (`stop_at`)" if self.allowed and self.stops_at else ""
        return f"{self.place}: {self.columns} columns{records}{cost}{left}{keeps}"


@dataclass(frozen=True, slots=True)
class SalesforceRecords:
    """The records that `spec` describes, as one feed reads them; `cursor` is that of an earlier reading, "" for none."""

    spec: SalesforceSource
    asked: ColumnRequest
    access: Access
    cursor: str = ""
    clock: Clock = REAL_CLOCK

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Open the org and select its fields; records arrive as they are requested."""
        with closing(Org(self.access, self.clock)) as org:
            with as_odd_answer(self.spec.place, "Salesforce"):
                selection = self._selection(org)
                if self.spec.stop_at is not None and org.usage.share >= self.spec.stop_at:
                    raise _day_spent(org, self.spec)
                progress = _progress_of(self.spec, selection, org.address, self.cursor)
                progress.latest = utc_text(org.usage.now) if org.usage.now else ""
                plan = _Plan(self.spec, org, selection, progress).decided()
            with closing(plan.texts()) as texts:
                records = in_known_shape(texts, self.spec.place, "Salesforce")
                rows = _rows(records, selection, progress, org.address, self.spec.place)
                reading = Reading(selection.names, rows, "", not progress.before, progress.ending)
                yield reading.with_empty(selection.absent)

    def probe(self) -> OrgProbe:
        """Check that all columns are there, count the records and the requests that the org has left; read nothing.

        Raises:
            SyncError: as `read` does.
        """
        with closing(Org(self.access, self.clock)) as org, as_odd_answer(self.spec.place, "Salesforce"):
            selection = self._selection(org)
            plan = _Plan(self.spec, org, selection, _progress_of(self.spec, selection, org.address, ""))
            records = plan.count()
            day = org.limits().get("DailyApiRequests", {})
            allowed, left = int(day.get("Max", org.usage.allowed)), int(day.get("Remaining", org.usage.allowed - org.usage.used))
            kept = 0 if self.spec.stop_at is None else round(allowed * (1 - self.spec.stop_at))
            in_bulk = plan.is_for_bulk(records)
            return OrgProbe(self.spec.place, len(selection.names), records, in_bulk, left, allowed, kept)

    def _selection(self, org: Org) -> Selection:
        shapes = Shapes(org.describe)
        if self.spec.query is not None:
            return select_query(parse_query(self.spec.query), self.asked, shapes)
        return select_object(self.spec, self.asked, shapes)


def _rows(records: Iterator[Texts], selection: Selection, progress: Progress, address: str, place: str) -> Iterator[SourceRow]:
    """Yield a row for each record; its location is the record's own page."""
    names = selection.names
    numbers = [number for _, number in selection.cells]
    is_straight = numbers == list(range(len(selection.columns)))
    id_at, deleted_at = selection.at(ID), selection.at(DELETED)
    can_be_gone = deleted_at is not None and bool(progress.before)
    for number, texts in enumerate(records, start=1):
        progress.add(texts)
        cells = dict(zip(names, texts if is_straight else [texts[one] for one in numbers], strict=True))
        location = f"{address}/{texts[id_at]}" if id_at is not None else f"{place} (row {number})"
        is_gone = can_be_gone and texts[deleted_at or 0] == "true"
        yield SourceRow(RowLocation(location, 0 if id_at is not None else number), cells, is_gone=is_gone)


@dataclass(slots=True)
class Progress:
    """What one reading has yielded so far. `latest`: no cursor goes beyond it, as later changes were not searched for.

    Stamps are moments as SOQL writes them, with milliseconds, so that they sort as texts; "" for none yet.
    """

    id_at: int | None
    stamp_at: int | None
    digest: str
    before: str = ""
    latest: str = ""
    count: int = 0
    last_id: str = ""
    last_stamp: str = ""
    greatest: str = ""
    notices: list[str] = field(default_factory=list)
    is_short: bool = False

    def add(self, texts: Sequence[str]) -> None:
        """Count a record as yielded."""
        self.count += 1
        if self.id_at is not None:
            self.last_id = texts[self.id_at]
        if self.stamp_at is not None:
            cell = texts[self.stamp_at]
            # Cells leave milliseconds out where they are 0.
            self.last_stamp = f"{cell[:-1]}.000Z" if len(cell) == 20 else cell
            self.greatest = max(self.greatest, self.last_stamp)

    def ending(self) -> Ending:
        """Return how the reading ended: its cursor is the greatest stamp yielded, but none after the reading began."""
        reached = max(min(self.greatest, self.latest or self.greatest), self.before)
        return Ending(f"{reached} {self.digest}" if reached else "", tuple(self.notices), self.is_short)


def _progress_of(spec: SalesforceSource, selection: Selection, address: str, cursor: str) -> Progress:
    """Return the progress of a new reading of the org at `address`.

    It continues from `cursor` if that was made for the same org, records and columns.
    """
    by = spec.incremental.by if spec.incremental else ""
    tests = [[test.field, test.op, *test.value] for test in spec.where]
    asked = [address, spec.place, by, tests, sorted(column.selected for column in selection.columns)]
    digest = blake2b(json.dumps(asked).encode(), digest_size=8).hexdigest()
    reached, _, made_for = cursor.partition(" ")
    try:
        datetime.fromisoformat(reached)
    except ValueError:
        reached = ""
    before = reached if made_for == digest else ""
    return Progress(selection.at(ID), selection.at(by) if by else None, digest, before)


def _day_spent(org: Org, spec: SalesforceSource) -> SourceUnavailableError:
    """Return the error for an org whose daily requests are used up to our limit (`stop_at`)."""
    usage = org.usage
    message = f"Salesforce: the org has used {usage.used} of its {usage.allowed} requests of the day, {usage.share:.0%}"
    hint = f"we stop at {spec.stop_at or 1:.0%} (`stop_at`) so that other programs can work; run again in an hour"
    return SourceUnavailableError(message, hint=hint, retry_after_s=DAY_SPENT_S)


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the records are read. `by_change`: in the order of their changes, so that it may stop anywhere and continue later."""

    spec: SalesforceSource
    org: Org
    selection: Selection
    progress: Progress
    in_bulk: bool = False
    by_change: bool = False

    def decided(self) -> _Plan:
        """Return the plan with `in_bulk` and `by_change` decided by the number of records."""
        try:
            count = self.count() if self._is_free or (self.spec.incremental and self.spec.api != "bulk") else None
        except SlowQueryError:
            if not self._is_free:
                raise
            # So many that they cannot even be counted.
            return replace(self, in_bulk=True)
        is_changing = self.spec.incremental is not None and (bool(self.progress.before) or self._is_too_much(count))
        in_bulk = self.is_for_bulk(count)
        return replace(self, in_bulk=in_bulk, by_change=is_changing and not in_bulk)

    def count(self) -> int | None:
        """Return how many records there are; None where they cannot be counted."""
        if self.spec.query is None:
            soql = self.selection.soql(*self._conditions, counts=True)
            return self.org.query(soql, with_deleted=self._with_deleted).total
        query = parse_query(self.spec.query)
        return self.org.query(query.counting).total if query.is_plain else None

    def is_for_bulk(self, count: int | None) -> bool:
        """Return whether so many records are read in bulk."""
        if not self._is_free or count is None:
            return self.spec.api == "bulk"
        return count > self.spec.bulk_above or self._is_too_much(count)

    @property
    def _is_free(self) -> bool:
        """Whether both pages and bulk are possible."""
        return self.spec.api == "auto" and not any(column.child for column in self.selection.columns)

    def _is_too_much(self, count: int | None) -> bool:
        """Return whether so many records take more pages than there are requests left for us today."""
        usage = self.org.usage
        if self.spec.stop_at is None or not usage.allowed or count is None:
            return False
        return ceil(count / PAGE_ROWS) > self.spec.stop_at * usage.allowed - usage.used

    @property
    def _with_deleted(self) -> bool:
        """Whether the archive and the recycle bin are searched as well."""
        return bool(self.progress.before) or self.selection.archive

    @property
    def _conditions(self) -> tuple[str, ...]:
        """The conditions besides the mapping's own."""
        if self.progress.before and self.spec.incremental:
            start = utc_text(datetime.fromisoformat(self.progress.before) - self.spec.incremental.overlap)
            return (f"{self.spec.incremental.by} >= {start}",)
        return (f"{DELETED} = false",) if self.selection.archive else ()

    def texts(self) -> Generator[Texts]:
        """Yield the records' cells.

        Raises:
            SourceUnavailableError: a query was forgotten again and again, or the day's requests are used.
        """
        if self.in_bulk:
            # Without an order: Salesforce can then cut a large job into parts, and the results stay as they are.
            soql = self.spec.query or self.selection.soql(*self._conditions)
            try:
                yield from bulk_records(self.org, soql, self.selection, with_deleted=self._with_deleted)
            except NotInBulkError as error:
                if self.spec.api == "bulk" or self.progress.count:
                    raise
                self.progress.notices.append(f"read in pages, as bulk is not possible: {error}")
            else:
                return
        yield from self._object_records() if self.spec.query is None else self._query_records(self.spec.query)

    def _object_records(self) -> Iterator[Texts]:
        """Yield the records by pages; after a query was forgotten, those after the last yielded one."""
        order = f"{self.spec.incremental.by}, {ID}" if self.spec.incremental and self.by_change else ID
        rest: tuple[str, ...] = ()
        restarts = 0
        while True:
            before = self.progress.count
            try:
                yield from self._pages(self.selection.soql(*self._conditions, *rest, order=order))
            except LocatorLostError:
                restarts = 0 if self.progress.count > before else restarts + 1
                if restarts > _MOST_RESTARTS:
                    raise
                rest = self._rest()
            else:
                return

    def _rest(self) -> tuple[str, ...]:
        """Return the conditions for the records after the last yielded one.

        In the order of changes a yielded record may have changed since, and would come again: records changed after this
        reading began are left to the next one. A moment that is null sorts first.
        """
        progress = self.progress
        if not progress.count:
            return ()
        after_id = f"{ID} > {quoted(progress.last_id)}"
        if self.spec.incremental is None or not self.by_change:
            return (after_id,)
        by, stamp, latest = self.spec.incremental.by, progress.last_stamp, progress.latest
        # A full read lacks them then, and they must not count as vanished.
        progress.is_short = not progress.before
        if not stamp:
            after = f"({by} != null OR ({by} = null AND {after_id}))"
            return (after, f"({by} = null OR {by} <= {latest})") if latest else (after,)
        after = f"({by} > {stamp} OR ({by} = {stamp} AND {after_id}))"
        return (after, f"{by} <= {latest}") if latest else (after,)

    def _query_records(self, soql: str) -> Iterator[Texts]:
        """Yield the records of an author's query; if it is forgotten and sent again, skip those that were yielded before.

        Raises:
            SourceUnavailableError: they arrive in another order, so that the yielded ones cannot be recognised.
        """
        changed = SourceUnavailableError(_CHANGED, hint="write ORDER BY Id at the end of the query")
        yielded, expected = 0, ""
        for _ in range(_MOST_RESTARTS):
            passed, digest = 0, blake2b()
            try:
                for texts in self._pages(soql):
                    passed += 1
                    digest.update("\0".join(texts).encode("utf-8", "surrogatepass") + b"\1")
                    if passed == yielded and digest.hexdigest() != expected:
                        raise changed
                    if passed > yielded:
                        yield texts
            except LocatorLostError:
                yielded, expected = max((yielded, expected), (passed, digest.hexdigest()))
            else:
                if passed < yielded:
                    raise changed
                return
        raise SourceUnavailableError("Salesforce forgets the query again and again", hint="run again later, or name the object")

    def _pages(self, soql: str) -> Iterator[Texts]:
        readers = [self._reader(column) for column in self.selection.columns]
        page, seen = self.org.query(soql, with_deleted=self._with_deleted), 0
        total = page.total
        while True:
            for record in page.records:
                yield [read(record) for read in readers]
            seen += len(page.records)
            if not page.more:
                break
            if self._must_stop():
                return
            page = self.org.more(page.more)
        if seen < total:
            raise SourceUnavailableError(f"Salesforce announced {total} records and sent {seen}", hint=_LATER)

    def _reader(self, column: Column) -> Callable[[Mapping[str, Any]], str]:
        convert, steps = column.convert, column.path.split(".")
        if column.child:
            return lambda record: children_text(self._children(record.get(column.path)), column.child)
        if len(steps) == 1:
            return lambda record: convert(record.get(column.path))
        return lambda record: convert(picked(record, steps))

    def _children(self, answer: Any) -> Sequence[Mapping[str, Any]]:
        if not answer:
            return ()
        page = Page.of(answer)
        records = list(page.records)
        while page.more:
            page = self.org.more(page.more)
            records += page.records
        return records

    def _must_stop(self) -> bool:
        usage = self.org.usage
        if self.spec.stop_at is None or usage.share < self.spec.stop_at:
            return False
        if not self.by_change:
            raise _day_spent(self.org, self.spec)
        self.progress.is_short = True
        self.progress.notices.append(
            f"stopped after {self.progress.count} records: the org has used {usage.used} of its {usage.allowed} requests of"
            f" the day (stop_at); the next run goes on from there"
        )
        return True


def bulk_records(org: Org, soql: str, selection: Selection, *, with_deleted: bool) -> Iterator[Texts]:
    """Create a job, wait until it is done, yield its records' cells, and delete it in any case.

    Raises:
        NotInBulkError: this object, or today, cannot be read in bulk.
        SourceUnavailableError: it takes too long, fails in a way that may clear, or its results end before all have arrived.
        BadSourceError: the query is refused, or the results have other columns than it selects.
    """
    path = _create_job(org, soql, with_deleted=with_deleted)
    job: Mapping[str, Any] = {}
    try:
        job = _wait(org, path)
        total = yield from _job_records(org, path, selection)
        found = job.get("numberRecordsProcessed")
        if isinstance(found, int) and total < found:
            raise SourceUnavailableError(f"a query job found {found} records and gave {total}", hint=_NOT_ALL)
    finally:
        # Not repeated: the operator may want us to stop, and Salesforce forgets a job after seven days.
        with suppress(SyncError):
            if not job:
                org.call_once("PATCH", path, {"state": "Aborted"})
            org.call_once("DELETE", path)


def _create_job(org: Org, soql: str, *, with_deleted: bool) -> str:
    job = {"operation": "queryAll" if with_deleted else "query", "query": soql, "columnDelimiter": "COMMA", "lineEnding": "LF"}
    try:
        return f"jobs/query/{org.call('POST', 'jobs/query', job)['id']}"
    except KeyError as error:
        raise BadSourceError("a query job", "the answer holds no id", hint=NO_SALESFORCE) from error
    except SyncError as error:
        if any(mark in str(error) for mark in _NOT_IN_BULK):
            raise NotInBulkError("a query job", str(error), hint="write api: rest") from error
        raise


def _wait(org: Org, path: str) -> Mapping[str, Any]:
    clock, poll_s = org.clock, _FIRST_POLL_S
    started = clock.clock_s()
    while (job := org.call("GET", path)).get("state") != "JobComplete":
        if job.get("state") in ("Failed", "Aborted"):
            said = " ".join(str(job.get("errorMessage") or "it gives no reason").split())[:500]
            message = f"Salesforce ended the query job as {job['state']}: {said}"
            if any(mark in said for mark in _BAD_QUERY):
                raise BadSourceError("the query", message, hint="correct `source` in the mapping file")
            raise SourceUnavailableError(message, hint="run again later; if it stays so, narrow `source.where`")
        if clock.clock_s() - started > LONGEST_WAIT_S:
            message = f"a query job is not done after {LONGEST_WAIT_S / 3600:.0f} hours"
            raise SourceUnavailableError(message, hint="narrow `source.where`")
        clock.sleep(poll_s)
        poll_s = min(poll_s * 1.5, _LONGEST_POLL_S)
    return job


def _job_records(org: Org, path: str, selection: Selection) -> Generator[Texts, None, int]:
    """Yield a job's records and return their number; a chunk that breaks off is requested again, its first records skipped."""
    converts = [column.convert for column in selection.columns]
    total, yielded, attempt, locator = 0, 0, 1, ""
    while locator != "null":
        before, number = yielded, 0
        params: dict[str, str | int] = {"maxRecords": CHUNK_ROWS} | ({"locator": locator} if locator else {})
        try:
            with closing(org.stream(f"{path}/results", **params)) as response:
                for number, cells in _records(response, selection):
                    if number > yielded:
                        yielded = number
                        yield [convert(cell) for convert, cell in zip(converts, cells, strict=True)]
                locator = _next_locator(response, number)
        except _BrokenOffError:
            attempt = 1 if yielded > before else attempt + 1
            if attempt > POLICY.attempts:
                raise
            org.clock.sleep(POLICY.wait_s(attempt, org.clock.chance))
        else:
            total, yielded, attempt = total + yielded, 0, 1
    return total


def _next_locator(response: requests.Response, number: int) -> str:
    """Return the next chunk's locator, "null" after the last, of a chunk with `number` records."""
    announced, locator = (response.headers.get(name, "") for name in ("Sforce-NumberOfRecords", "Sforce-Locator"))
    if not announced.isdecimal() or not locator:
        raise _BrokenOffError("a query job's results do not say how many they are", hint=_NOT_ALL)
    if int(announced) != number:
        raise _BrokenOffError(f"Salesforce announced {announced} records of a job and sent {number}", hint=_LATER)
    return locator


def _records(response: requests.Response, selection: Selection) -> Iterator[tuple[int, list[str]]]:
    """Parse a body into records, numbered from 1, while it arrives."""
    csv.field_size_limit(max(csv.field_size_limit(), _LARGEST_CELL))
    response.raw.decode_content = True
    # Else it counts as closed as soon as its last byte is read, with lines still to be parsed.
    response.raw.auto_close = False
    # Lines end at LF alone: a cell may hold any other break.
    lines = io.TextIOWrapper(io.BufferedReader(response.raw, _PIECE_BYTES), encoding="utf-8", newline="\n")
    reader = csv.reader(lines, strict=True)
    wanted = [column.path.lower() for column in selection.columns]
    try:
        header = next(reader, [])
        if header and [name.lower() for name in header] != wanted:
            message = f"the job's columns are {', '.join(header)}, and {', '.join(wanted)} were asked for"
            raise BadSourceError("a query job", message, hint="write api: rest")
        for number, cells in enumerate(reader, start=1):
            if len(cells) != len(wanted):
                raise _BrokenOffError(f"record {number} of a job came with {len(cells)} cells", hint=_LATER)
            yield number, cells
    except (urllib3.exceptions.HTTPError, OSError, csv.Error, UnicodeDecodeError) as error:
        message = f"the results of a Salesforce job broke off: {type(error).__name__}: {error}"
        raise _BrokenOffError(message, hint=_LATER) from error
