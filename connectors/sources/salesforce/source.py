"""Records of Salesforce as a source, by REST pages or by Bulk API 2.0 jobs: which of them, and what a later reading leaves out.

simple-salesforce's `query_all_iter` ends with an error where Salesforce has forgotten a query, and its `bulk2` neither resumes a
result that broke off nor bounds the wait for a job; both hold whole pages. So pages and jobs are read here.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from math import ceil
from typing import Any

import requests
import urllib3

from connectors.sources.contract import (
    REAL_CLOCK,
    Access,
    BadSourceError,
    Bookmark,
    Clock,
    Ending,
    Reading,
    SourceUnavailableError,
)
from connectors.sources.rows import LARGEST_CELL
from connectors.sources.salesforce.org import DAY_SPENT_S, NO_SALESFORCE, POLICY, LocatorLostError, Org, Page, SlowQueryError
from connectors.sources.salesforce.query import (
    COMPOUND,
    DELETED,
    ID,
    Column,
    Selection,
    Shapes,
    quoted,
    select_object,
    select_query,
    utc_text,
)
from connectors.sources.service_answers import as_odd_answer, in_known_shape
from mappings.columns import ColumnRequest
from mappings.errors import SyncError
from mappings.outcome import RowLocation, SourceRow
from mappings.spec.soql import parse_query
from mappings.spec.source import SalesforceSource

Texts = list[str]
"""The cells of one record, in the order of the selection's columns."""

_PAGE_ROWS = 2000
_BULK_ABOVE = 5 * _PAGE_ROWS
CHUNK_ROWS = 50_000
"""Records of a full chunk of a job's results."""
LONGEST_WAIT_S = 3 * 3600.0
"""Salesforce tries a query 15 times, for ten minutes each, before it gives a job up."""
_AROUND_A_JOB = 6
_FIRST_POLL_S, _LONGEST_POLL_S = 0.5, 20.0
_PIECE_BYTES = 256 * 1024
_LATER = "run again later"
_NOT_ALL = "run again later; if it happens again, write api: rest"
_NOT_IN_BULK = ("not supported by the Bulk API", "FEATURENOTENABLED", "INVALIDENTITY", "EXCEEDEDQUOTA", "EXCEEDED_QUOTA")
_BAD_QUERY = ("MALFORMED_QUERY", "INVALID_FIELD", "INVALID_TYPE", "No such column")


class NotInBulkError(BadSourceError):
    """The object cannot be read in bulk, or no more jobs are allowed today; pages may still work."""


class _BrokenOffError(SourceUnavailableError):
    """Results broke off while they arrived: the rest of them is worth a request."""


@dataclass(frozen=True, slots=True)
class OrgProbe:
    """What a feed would read. `records` is None if they cannot be counted; `left` of the `allowed` requests of a day.

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
        """The estimated number of requests of a full read; None if the records cannot be counted."""
        if self.records is None:
            return None
        return ceil(self.records / CHUNK_ROWS) + _AROUND_A_JOB if self.in_bulk else max(1, ceil(self.records / _PAGE_ROWS))

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


@contextmanager
def read_salesforce(
    spec: SalesforceSource, asked: ColumnRequest, access: Access, cursor: str = "", clock: Clock = REAL_CLOCK
) -> Iterator[Reading]:
    """Read under the contract of `Source.read`; `cursor` is that of an earlier reading, "" for none."""
    with closing(Org(access, clock)) as org:
        with as_odd_answer(spec.place, "Salesforce"):
            selection = _selection(spec, asked, org)
            records = _Records(spec, org, selection, cursor)
            records.plan()
        with closing(records.rows()) as rows:
            in_shape = in_known_shape(rows, spec.place, "Salesforce")
            headers = {name: selection.columns[number].path for name, number in selection.cells}
            reading = Reading(selection.names, in_shape, "", not records.before, records.ending, headers=headers)
            yield reading.with_empty(selection.absent)


def probe_salesforce(spec: SalesforceSource, asked: ColumnRequest, access: Access, clock: Clock = REAL_CLOCK) -> OrgProbe:
    """Check that all columns are there, count the records and the requests that the org has left; read nothing.

    Raises:
        SyncError: as reading does.
    """
    with closing(Org(access, clock)) as org, as_odd_answer(spec.place, "Salesforce"):
        selection = _selection(spec, asked, org)
        plan = _Records(spec, org, selection, "")
        records = plan.total()
        day = org.limits().get("DailyApiRequests", {})
        allowed = int(day.get("Max", org.session.allowed))
        left = int(day.get("Remaining", allowed - org.session.used))
        kept = 0 if spec.stop_at is None else round(allowed * (1 - spec.stop_at))
        return OrgProbe(spec.place, len(selection.names), records, plan.is_for_bulk(records), left, allowed, kept)


_MOST_FIELDS = 250
"""The most fields in a query, which is part of an address of at most 16,384 bytes."""
_MOST_PARENTS = 20
_BOOKKEEPING = frozenset(
    {"IsDeleted", "IsArchived", "SystemModstamp", "CreatedDate", "LastModifiedDate", "LastActivityDate"}
    | {"LastViewedDate", "LastReferencedDate"}
)
_NO_CELLS = frozenset({*COMPOUND, "reference", "base64", "encryptedstring", "anyType", "complexvalue"})


@dataclass(frozen=True, slots=True)
class ObjectFields:
    """An object, by its API name, and its fields that may say something of an event, the names of its parents among them.

    `more`: how many further ones there are. `lists`: the fields with several values, `A;B`. `choices`: the values that the org
    offers for each field with a list of them. `changed`: the field with the moment of a record's last change, "" if it has none.
    """

    name: str
    fields: tuple[str, ...]
    more: int
    lists: tuple[str, ...]
    choices: Mapping[str, tuple[str, ...]]
    changed: str


def describe_object(name: str, access: Access, clock: Clock = REAL_CLOCK) -> ObjectFields:
    """Describe an object: one request, and one for each of its parents.

    Raises:
        SyncError: the org cannot be asked, or has no such object that we may see.
    """
    with closing(Org(access, clock)) as org, as_odd_answer(name, "Salesforce"):
        describe = cache(org.describe)
        shapes = Shapes(describe)
        shape = shapes.of(name)
        own = [one for one in shape.fields.values() if one.path not in _BOOKKEEPING and one.kind not in _NO_CELLS]
        above = [f"{parent}.Name" for parent, objects in shape.parents.values() if parent.endswith("__r") and len(objects) == 1]
        named = [path for path in above[:_MOST_PARENTS] if shapes.find(shape, path)]
        paths = (*(one.path for one in own), *named)
        lists = tuple(one.path for one in own if one.kind == "multipicklist")
        choices = {
            one["name"]: tuple(choice["value"] for choice in one["picklistValues"] if choice.get("active"))
            for one in describe(name)["fields"]
            if one.get("picklistValues")
        }
        changed = next((field for field in ("SystemModstamp", "LastModifiedDate") if field.lower() in shape.fields), "")
        return ObjectFields(shape.name, paths[:_MOST_FIELDS], max(0, len(paths) - _MOST_FIELDS), lists, choices, changed)


def _selection(spec: SalesforceSource, asked: ColumnRequest, org: Org) -> Selection:
    shapes = Shapes(org.describe)
    return select_query(parse_query(spec.query), asked, shapes) if spec.query else select_object(spec, asked, shapes)


class _Records:
    """The records of one reading, and how far it has come.

    It goes on from `cursor` if that was made for the same org, records and columns: `before` is its stamp then, else "".
    Stamps are moments as SOQL writes them, with milliseconds, so that they sort as texts; "" for none yet. `latest`: no cursor
    goes beyond it, as later changes were not searched for.
    """

    def __init__(self, spec: SalesforceSource, org: Org, selection: Selection, cursor: str) -> None:
        self.spec, self.org, self.selection = spec, org, selection
        self.by = spec.incremental.by if spec.incremental else ""
        tests = [[test.field, test.op, *test.value] for test in spec.where]
        asked = [org.address, spec.place, self.by, tests, sorted(column.path for column in selection.columns)]
        self.bookmark = Bookmark(cursor, asked)
        self.before = self.bookmark.before
        self.latest = utc_text(org.session.now) if org.session.now else ""
        self.in_bulk = False
        self.notices: list[str] = []
        self.count = 0
        self.last_id = self.greatest = ""

    def plan(self) -> None:
        """Decide `in_bulk` by the number of records.

        Raises:
            SourceUnavailableError: too few of the day's requests are left.
        """
        self._check_day()
        try:
            self.in_bulk = self.is_for_bulk(self.total() if self.spec.api == "auto" else None)
        except SlowQueryError:
            # So many that they cannot even be counted.
            self.in_bulk = True

    def total(self) -> int | None:
        """Return how many records there are; None if they cannot be counted."""
        if self.spec.query is None:
            soql = self.selection.soql(*self._conditions, counts=True)
            return self.org.query(soql, with_deleted=self._with_deleted).total
        query = parse_query(self.spec.query)
        return self.org.query(query.counting).total if query.is_plain else None

    def rows(self) -> Generator[SourceRow]:
        """Yield a row for each record; its location is the record's own page.

        Raises:
            SourceUnavailableError: an author's query was forgotten, or the day's requests are used.
        """
        names = self.selection.names
        numbers = [number for _, number in self.selection.cells]
        is_straight = numbers == list(range(len(self.selection.columns)))
        id_at, stamp_at, deleted_at = (self.selection.at(path) if path else None for path in (ID, self.by, DELETED))
        address = self.org.address
        with closing(self._texts()) as records:
            for texts in records:
                self.count += 1
                location = RowLocation(f"{self.spec.place} (row {self.count})", self.count)
                if id_at is not None:
                    self.last_id = texts[id_at]
                    location = RowLocation(f"{address}/{self.last_id}", 0)
                if stamp_at is not None:
                    # Cells leave milliseconds out where they are 0.
                    stamp = texts[stamp_at]
                    self.greatest = max(self.greatest, f"{stamp[:-1]}.000Z" if len(stamp) == 20 else stamp)
                cells = dict(zip(names, texts if is_straight else [texts[one] for one in numbers], strict=True))
                is_gone = bool(self.before) and deleted_at is not None and texts[deleted_at] == "true"
                yield SourceRow(location, cells, is_gone=is_gone)

    def ending(self) -> Ending:
        """Return how the reading ended: its cursor is the greatest stamp yielded, but none after the reading began."""
        reached = max(min(self.greatest, self.latest or self.greatest), self.before)
        return Ending(self.bookmark.cursor_at(reached), tuple(self.notices))

    def is_for_bulk(self, count: int | None) -> bool:
        """Return whether to read this number of records in bulk."""
        if self.spec.api != "auto" or count is None:
            return self.spec.api == "bulk"
        return count > _BULK_ABOVE

    @property
    def _with_deleted(self) -> bool:
        """Whether the archive and the recycle bin are searched as well."""
        return bool(self.before) or self.selection.archive

    @property
    def _conditions(self) -> tuple[str, ...]:
        """The conditions in addition to the mapping's own."""
        if self.before and self.spec.incremental:
            start = utc_text(datetime.fromisoformat(self.before) - self.spec.incremental.overlap)
            return (f"{self.by} >= {start}",)
        return (f"{DELETED} = false",) if self.selection.archive else ()

    def _texts(self) -> Generator[Texts]:
        if self.in_bulk:
            # Without an order: Salesforce can then cut a large job into parts, and the results stay as they are.
            soql = self.spec.query or self.selection.soql(*self._conditions)
            try:
                yield from bulk_records(self.org, soql, self.selection, with_deleted=self._with_deleted)
            except NotInBulkError as error:
                if self.spec.api == "bulk" or self.count:
                    raise
                self.notices.append(f"read in pages, as bulk is not possible: {error}")
            else:
                return
        yield from self._pages(self.spec.query) if self.spec.query else self._object_records()

    def _object_records(self) -> Iterator[Texts]:
        """Yield the records by pages; after a query was forgotten, those after the last yielded one."""
        while True:
            before = self.count
            # A yielded record that has changed since is left to the next reading.
            rest = (f"{ID} > {quoted(self.last_id)}",) if self.count else ()
            try:
                yield from self._pages(self.selection.soql(*self._conditions, *rest, order=ID))
            except LocatorLostError:
                if self.count == before:
                    raise
            else:
                return

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
            self._check_day()
            page = self.org.more(page.more)
        if seen < total:
            raise SourceUnavailableError(f"Salesforce announced {total} records and sent {seen}", hint=_LATER)

    def _reader(self, column: Column) -> Callable[[Mapping[str, Any]], str]:
        convert, path, steps = column.convert, column.path, column.path.split(".")
        if path in self.selection.children:
            return lambda record: convert(self._children(record.get(path)))
        if len(steps) == 1:
            return lambda record: convert(record.get(path))

        def read(record: Mapping[str, Any]) -> str:
            value: Any = record
            for step in steps:
                value = value.get(step) if isinstance(value, dict) else None
            return convert(value)

        return read

    def _children(self, answer: Any) -> Sequence[Mapping[str, Any]] | None:
        if not answer:
            return None
        page = Page.of(answer)
        records = list(page.records)
        while page.more:
            page = self.org.more(page.more)
            records += page.records
        return records

    def _check_day(self) -> None:
        """Leave the last of the org's daily requests to other programs (`stop_at`)."""
        session, stop_at = self.org.session, self.spec.stop_at
        if stop_at is not None and session.share >= stop_at:
            used = f"{session.used} of its {session.allowed} requests of the day, {session.share:.0%}"
            hint = f"we stop at {stop_at:.0%} (`stop_at`) so that other programs can work; run again in an hour"
            raise SourceUnavailableError(f"Salesforce: the org has used {used}", hint=hint, retry_after_s=DAY_SPENT_S)


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
            raise SourceUnavailableError(message, hint="run again later; if it happens again, narrow `source.where`")
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
    csv.field_size_limit(LARGEST_CELL)  # one for the whole process, as for files
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
