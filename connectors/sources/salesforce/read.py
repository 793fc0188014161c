"""Records of Salesforce by REST pages and by Bulk API 2.0 jobs, and how far a reading has come.

simple-salesforce's `query_all_iter` ends with an error where Salesforce has forgotten a query, and its `bulk2` neither resumes a
result that broke off nor bounds the wait for a job; both hold whole pages. So pages and jobs are read here.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from math import ceil
from typing import Any

import requests
import urllib3

from connectors.sources.contract import Ending
from connectors.sources.errors import BadSourceError, SourceUnavailableError
from connectors.sources.salesforce.client import DAY_SPENT_S, LocatorLostError
from connectors.sources.salesforce.org import POLICY, Org, Page
from connectors.sources.salesforce.query import ID, Column, Selection, children_text, picked
from mappings.errors import SyncError
from mappings.spec.source import SalesforceSource


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
        seen = min(self.greatest, self.latest or self.greatest)
        reached = max(seen, self.before)
        return Ending(f"{reached} {self.digest}" if reached else "", tuple(self.notices), self.is_short)


def progress_of(spec: SalesforceSource, selection: Selection, address: str, cursor: str) -> Progress:
    """Return the progress of a new reading of the org at `address`; it continues from `cursor` if that fits."""
    by = spec.incremental.by if spec.incremental else ""
    digest = _digest_of(spec, selection, address)
    return Progress(selection.at(ID), selection.at(by) if by else None, digest, _stamp_in(cursor, digest))


def _digest_of(spec: SalesforceSource, selection: Selection, address: str) -> str:
    """Return a digest of the org, the records and the columns that a cursor is valid for."""
    tests = [[test.field, test.op, *test.value] for test in spec.where]
    by = spec.incremental.by if spec.incremental else ""
    asked = [address, spec.place, by, tests, sorted(column.selected for column in selection.columns)]
    return blake2b(json.dumps(asked).encode(), digest_size=8).hexdigest()


def _stamp_in(cursor: str, digest: str) -> str:
    """Return the stamp of a cursor, "" if it is not ours or was made for other columns or records."""
    reached, _, made_for = cursor.partition(" ")
    try:
        datetime.fromisoformat(reached)
    except ValueError:
        return ""
    return reached if made_for == digest else ""


Texts = list[str]
"""The cells of one record, in the order of the selection's columns."""
_MOST_RESTARTS = 20
_CHANGED = "the records came in another order when Salesforce had forgotten the query and was asked again"


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of one reading. `may_stop`: what is not read today may be read tomorrow."""

    org: Org
    spec: SalesforceSource
    selection: Selection
    progress: Progress
    with_deleted: bool = False
    may_stop: bool = False

    def object_records(self, given: Sequence[str], order: str, rest: Callable[[], Sequence[str]]) -> Iterator[Texts]:
        """Yield the records that meet the conditions; `rest` returns the conditions for those after the last yielded one.

        Raises:
            SourceUnavailableError: the query was forgotten again and again, or the day's requests are used.
        """
        conditions, restarts = tuple(given), 0
        while True:
            before = self.progress.count
            try:
                yield from self._texts(self.selection.object_query.soql(*conditions, order=order))
            except LocatorLostError:
                restarts = 0 if self.progress.count > before else restarts + 1
                if restarts > _MOST_RESTARTS:
                    raise
                conditions = (*given, *rest())
            else:
                return

    def query_records(self, soql: str) -> Iterator[Texts]:
        """Yield the records of an author's query; if it is forgotten and sent again, skip those that were yielded before.

        Raises:
            SourceUnavailableError: they arrive in another order, so that the yielded ones cannot be recognised.
        """
        replay = _Replay()
        for _ in range(_MOST_RESTARTS):
            replay.restart()
            try:
                yield from (texts for texts in self._texts(soql) if replay.is_new(texts))
            except LocatorLostError:
                replay.keep()
            else:
                replay.end()
                return
        raise SourceUnavailableError("Salesforce forgets the query again and again", hint="run again later, or name the object")

    def _texts(self, soql: str) -> Iterator[Texts]:
        readers = [self._reader(column) for column in self.selection.columns]
        page, seen = self.org.query(soql, with_deleted=self.with_deleted), 0
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
            message = f"Salesforce announced {total} records and sent {seen}"
            raise SourceUnavailableError(message, hint="run again later")

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
        if self.spec.stop_at is None or self.org.usage.share < self.spec.stop_at:
            return False
        if not self.may_stop:
            raise day_spent(self.org, self.spec)
        usage = self.org.usage
        self.progress.is_short = True
        self.progress.notices.append(
            f"stopped after {self.progress.count} records: the org has used {usage.used} of its {usage.allowed} requests of"
            f" the day (stop_at); the next run goes on from there"
        )
        return True


@dataclass(slots=True)
class _Replay:
    """The number and a digest of the records that a query has yielded: whether a repeated query starts with the same ones."""

    yielded: int = 0
    expected: str = ""
    passed: int = 0
    digest: blake2b = field(default_factory=blake2b)

    def restart(self) -> None:
        self.passed, self.digest = 0, blake2b()

    def is_new(self, texts: Texts) -> bool:
        self.passed += 1
        self.digest.update("\0".join(texts).encode("utf-8", "surrogatepass") + b"\1")
        if self.passed == self.yielded and self.digest.hexdigest() != self.expected:
            raise SourceUnavailableError(_CHANGED, hint="write ORDER BY Id at the end of the query")
        return self.passed > self.yielded

    def keep(self) -> None:
        if self.passed >= self.yielded:
            self.yielded, self.expected = self.passed, self.digest.hexdigest()

    def end(self) -> None:
        if self.passed < self.yielded:
            raise SourceUnavailableError(_CHANGED, hint="write ORDER BY Id at the end of the query")


def day_spent(org: Org, spec: SalesforceSource) -> SourceUnavailableError:
    """Return the error for an org whose daily requests are used up to our limit (`stop_at`)."""
    usage = org.usage
    message = f"Salesforce: the org has used {usage.used} of its {usage.allowed} requests of the day, {usage.share:.0%}"
    hint = f"we stop at {spec.stop_at or 1:.0%} (`stop_at`) so that other programs can work; run again in an hour"
    return SourceUnavailableError(message, hint=hint, retry_after_s=DAY_SPENT_S)


PAGE_ROWS = 2000
"""Records of a full page."""
CHUNK_ROWS = 50_000
"""Records of a full chunk of a job's results."""
_AROUND_A_JOB = 6


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


LONGEST_WAIT_S = 3 * 3600.0
"""Salesforce tries a query 15 times, for ten minutes each, before it gives a job up."""
_FIRST_POLL_S, _LONGEST_POLL_S = 0.5, 20.0
_LARGEST_CELL = 16 * 1024 * 1024
_PIECE_BYTES = 256 * 1024
_NOT_ALL = "run again later; if it stays so, write api: rest"
_NOT_IN_BULK = ("not supported by the Bulk API", "FEATURENOTENABLED", "INVALIDENTITY", "EXCEEDEDQUOTA", "EXCEEDED_QUOTA")


class _BrokenOffError(SourceUnavailableError):
    """Results broke off while they arrived: the rest of them is worth a request."""


class NotInBulkError(BadSourceError):
    """The object cannot be read in bulk, or no more jobs are allowed today; pages may still work."""


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
        raise BadSourceError("a query job", "the answer holds no id", hint="check SALESFORCE_INSTANCE_URL") from error
    except SyncError as error:
        if any(mark in str(error) for mark in _NOT_IN_BULK):
            raise NotInBulkError("a query job", str(error), hint="write api: rest") from error
        raise


def _wait(org: Org, path: str) -> Mapping[str, Any]:
    clock, poll_s = org.clock, _FIRST_POLL_S
    started = clock.clock_s()
    while True:
        job = org.call("GET", path)
        match job.get("state"):
            case "JobComplete":
                return job
            case "Failed" | "Aborted" as state:
                raise _failed(state, job)
            case _ if clock.clock_s() - started > LONGEST_WAIT_S:
                hours = LONGEST_WAIT_S / 3600
                raise SourceUnavailableError(f"a query job is not done after {hours:.0f} hours", hint="narrow `source.where`")
            case _:
                clock.sleep(poll_s)
                poll_s = min(poll_s * 1.5, _LONGEST_POLL_S)


def _failed(state: str, job: Mapping[str, Any]) -> BadSourceError | SourceUnavailableError:
    said = " ".join(str(job.get("errorMessage") or "it gives no reason").split())[:500]
    message = f"Salesforce ended the query job as {state}: {said}"
    if any(mark in said for mark in ("MALFORMED_QUERY", "INVALID_FIELD", "INVALID_TYPE", "No such column")):
        return BadSourceError("the query", message, hint="correct `source` in the mapping file")
    return SourceUnavailableError(message, hint="run again later; if it stays so, narrow `source.where`")


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
        raise _BrokenOffError(f"Salesforce announced {announced} records of a job and sent {number}", hint="run again later")
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
                raise _BrokenOffError(f"record {number} of a job came with {len(cells)} cells", hint="run again later")
            yield number, cells
    except (urllib3.exceptions.HTTPError, OSError, csv.Error, UnicodeDecodeError) as error:
        message = f"the results of a Salesforce job broke off: {type(error).__name__}: {error}"
        raise _BrokenOffError(message, hint="run again later") from error
