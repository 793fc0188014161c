"""Reading records through a query job (Bulk API 2.0): made, waited for, read while it streams, deleted at the end.

Which records are asked for, and whether so many that a job is worth it, is `salesforce_records`' matter.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import requests
import urllib3

from connectors.sources.errors import BadSourceError, SourceUnavailableError
from connectors.sources.salesforce.errors import BusyError
from connectors.sources.salesforce.look import CHUNK_ROWS
from connectors.sources.salesforce.org import POLICY, Org
from connectors.sources.salesforce.selection import Selection
from mappings.errors import SyncError

LONGEST_WAIT_S = 3 * 3600.0
"""Salesforce tries a query 15 times, for ten minutes each, before it gives a job up."""

_FIRST_LOOK_S, _LATER_LOOK_S = 0.5, 20.0
_LARGEST_CELL = 16 * 1024 * 1024
_PIECE_BYTES = 256 * 1024
_NOT_ALL = "run again later; if it stays so, write api: rest"
_NOT_IN_BULK = ("not supported by the Bulk API", "FEATURENOTENABLED", "INVALIDENTITY", "EXCEEDEDQUOTA", "EXCEEDED_QUOTA")


class _BrokenOffError(BusyError):
    """Results that were coming broke off: the rest of them is worth asking for. A busy org has been insisted on by `Org`."""


@dataclass(slots=True)
class QueryJob:
    """A job whose results are ready: `promised` records at least, as far as it told."""

    org: Org
    path: str
    promised: int = 0
    _given: int = 0

    def texts(self, selection: Selection) -> Iterator[list[str]]:
        """Give the records' cells. A chunk that breaks off is asked for again, and what was given of it passed over.

        Raises:
            SourceUnavailableError: it breaks off again and again, or the last chunk ends before all have come.
            BadSourceError: what comes are not the columns that were asked for.
        """
        locator, total = "", 0
        while locator != "null":
            attempt, self._given = 1, 0
            while True:
                before = self._given
                try:
                    locator = yield from self._chunk(selection, locator)
                    break
                except _BrokenOffError:
                    attempt = 1 if self._given > before else attempt + 1
                    if attempt > POLICY.attempts:
                        raise
                    self.org.clockwork.sleep(POLICY.wait_s(attempt, self.org.clockwork.chance))
            total += self._given
        if total < self.promised:
            raise SourceUnavailableError(f"a query job found {self.promised} records and gave {total}", hint=_NOT_ALL)

    def _chunk(self, selection: Selection, locator: str) -> Generator[list[str], None, str]:
        """Give what is left of a chunk; returns the next one's locator, "null" at the end."""
        converts = [column.convert for column in selection.columns]
        asked: dict[str, str | int] = {"maxRecords": CHUNK_ROWS} | ({"locator": locator} if locator else {})
        with closing(self.org.stream(f"{self.path}/results", **asked)) as response:
            number = 0
            for number, cells in _told_of_breaks(_records(response, selection)):
                if number > self._given:
                    self._given = number
                    yield [convert(cell) for convert, cell in zip(converts, cells, strict=True)]
            promised, following = (response.headers.get(name, "") for name in ("Sforce-NumberOfRecords", "Sforce-Locator"))
            if not promised.isdecimal() or not following:
                message = "a query job's results came without Salesforce's word on how many they are"
                raise _BrokenOffError(message, hint=_NOT_ALL)
            if int(promised) != number:
                raise _BrokenOffError(
                    f"Salesforce promised {promised} records of a job and sent {number}", hint="run again later"
                )
            return following


@contextmanager
def query_job(org: Org, soql: str, *, with_deleted: bool) -> Iterator[QueryJob]:
    """Make a job, wait until it is done, and delete it in the end, come what may.

    Raises:
        NotInBulkError: this object, or today, cannot be read in bulk.
        SourceUnavailableError: it takes too long, or fails in a way that may clear.
        BadSourceError: the query is refused.
    """
    path = _made(org, soql, with_deleted=with_deleted)
    job: Mapping[str, Any] = {}
    try:
        job = _wait(org, path)
        told = job.get("numberRecordsProcessed")
        yield QueryJob(org, path, told if isinstance(told, int) else 0)
    finally:
        _delete(org, path, is_done=bool(job))


class NotInBulkError(BadSourceError):
    """The object cannot be read in bulk, or no more jobs are allowed today; pages may still work."""


def _made(org: Org, soql: str, *, with_deleted: bool) -> str:
    wish = {"operation": "queryAll" if with_deleted else "query", "query": soql, "columnDelimiter": "COMMA", "lineEnding": "LF"}
    try:
        return f"jobs/query/{org.call('POST', 'jobs/query', wish)['id']}"
    except KeyError as error:
        raise BadSourceError("a query job", "the answer holds no id", hint="check SALESFORCE_INSTANCE_URL") from error
    except SyncError as error:
        if any(mark in str(error) for mark in _NOT_IN_BULK):
            raise NotInBulkError("a query job", str(error), hint="write api: rest") from error
        raise


def _wait(org: Org, path: str) -> Mapping[str, Any]:
    clockwork, look_s = org.clockwork, _FIRST_LOOK_S
    started = clockwork.clock_s()
    while True:
        job = org.call("GET", path)
        match job.get("state"):
            case "JobComplete":
                return job
            case "Failed" | "Aborted" as state:
                raise _failed(state, job)
            case _ if clockwork.clock_s() - started > LONGEST_WAIT_S:
                hours = LONGEST_WAIT_S / 3600
                raise SourceUnavailableError(f"a query job is not done after {hours:.0f} hours", hint="narrow `source.where`")
            case _:
                clockwork.sleep(look_s)
                look_s = min(look_s * 1.5, _LATER_LOOK_S)


def _failed(state: str, job: Mapping[str, Any]) -> BadSourceError | SourceUnavailableError:
    said = " ".join(str(job.get("errorMessage") or "it does not say why").split())[:500]
    message = f"Salesforce ended the query job as {state}: {said}"
    if any(mark in said for mark in ("MALFORMED_QUERY", "INVALID_FIELD", "INVALID_TYPE", "No such column")):
        return BadSourceError("the query", message, hint="correct `source` in the mapping file")
    return SourceUnavailableError(message, hint="run again later; if it stays so, narrow `source.where`")


def _delete(org: Org, path: str, *, is_done: bool) -> None:
    """Leave nothing behind, without insisting: somebody may want us to stop, and Salesforce forgets a job after seven days."""
    with suppress(SyncError):
        if not is_done:
            org.call_once("PATCH", path, {"state": "Aborted"})
        org.call_once("DELETE", path)


def _records(response: requests.Response, selection: Selection) -> Iterator[tuple[int, list[str]]]:
    """Cut a body into records, numbered from 1, while it comes."""
    csv.field_size_limit(max(csv.field_size_limit(), _LARGEST_CELL))
    response.raw.decode_content = True
    # Else it counts as closed as soon as its last byte is read, with lines still to be given.
    response.raw.auto_close = False
    # Lines end at LF alone: a cell may hold any other break.
    reader = csv.reader(
        io.TextIOWrapper(io.BufferedReader(response.raw, _PIECE_BYTES), encoding="utf-8", newline="\n"), strict=True
    )
    header = next(reader, [])
    wanted = [column.path.lower() for column in selection.columns]
    if header and [name.lower() for name in header] != wanted:
        message = f"the job's columns are {', '.join(header)}, and {', '.join(wanted)} were asked for"
        raise BadSourceError("a query job", message, hint="write api: rest")
    for number, cells in enumerate(reader, start=1):
        if len(cells) != len(wanted):
            raise _BrokenOffError(f"record {number} of a job came with {len(cells)} cells", hint="run again later")
        yield number, cells


def _told_of_breaks(records: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    try:
        yield from records
    except (urllib3.exceptions.HTTPError, OSError, csv.Error, UnicodeDecodeError) as error:
        message = f"the results of a Salesforce job broke off: {type(error).__name__}: {error}"
        raise _BrokenOffError(message, hint="run again later") from error
