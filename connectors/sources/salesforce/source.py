"""Records of Salesforce as a source: which of them, by pages or in bulk, and what a later reading may leave out."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil

from connectors.sources.contract import REAL_CLOCK, Access, Clock, Reading
from connectors.sources.rows import ColumnRequest
from connectors.sources.salesforce.client import SlowQueryError
from connectors.sources.salesforce.org import Org, Shapes
from connectors.sources.salesforce.query import (
    DELETED,
    ID,
    Selection,
    after_row,
    quoted,
    select_object,
    select_query,
    since,
    until,
    utc_text,
)
from connectors.sources.salesforce.read import (
    PAGE_ROWS,
    NotInBulkError,
    OrgProbe,
    Pages,
    Progress,
    Texts,
    bulk_records,
    day_spent,
    progress_of,
)
from connectors.sources.service_answers import as_odd_answer, in_known_shape
from mappings.outcome import RowLocation, SourceRow
from mappings.spec.soql import parse_query
from mappings.spec.source import SalesforceSource


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
                plan = self._plan(org, selection)
            progress = plan.progress
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
            plan = _Plan(self.spec, org, selection, progress_of(self.spec, selection, org.address, ""))
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

    def _plan(self, org: Org, selection: Selection) -> _Plan:
        if self.spec.stop_at is not None and org.usage.share >= self.spec.stop_at:
            raise day_spent(org, self.spec)
        progress = progress_of(self.spec, selection, org.address, self.cursor)
        progress.latest = utc_text(org.usage.now) if org.usage.now else ""
        return _Plan(self.spec, org, selection, progress).decided()


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the records are read. `by_change`: in the order of their changes, so that it may stop anywhere and continue later."""

    spec: SalesforceSource
    org: Org
    selection: Selection
    progress: Progress
    in_bulk: bool = False
    by_change: bool = False

    @property
    def with_deleted(self) -> bool:
        """Whether the archive and the recycle bin are searched as well."""
        return bool(self.progress.before) or self.selection.archive

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions besides the mapping's own."""
        if self.progress.before and self.spec.incremental:
            start = utc_text(datetime.fromisoformat(self.progress.before) - self.spec.incremental.overlap)
            return (since(self.spec.incremental.by, start),)
        return (f"{DELETED} = false",) if self.selection.archive else ()

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
            return self.org.query(self.selection.object_query.count_soql(*self.conditions), with_deleted=self.with_deleted).total
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

    def texts(self) -> Generator[Texts]:
        """Yield the records' cells."""
        if self.in_bulk:
            try:
                yield from self._in_bulk()
            except NotInBulkError as error:
                if self.spec.api == "bulk" or self.progress.count:
                    raise
                self.progress.notices.append(f"read in pages, as bulk is not possible: {error}")
            else:
                return
        yield from self._in_pages()

    def _in_bulk(self) -> Iterator[Texts]:
        # Without an order: Salesforce can then cut a large job into parts, and the results stay as they are.
        soql = self.spec.query or self.selection.object_query.soql(*self.conditions)
        return bulk_records(self.org, soql, self.selection, with_deleted=self.with_deleted)

    def _in_pages(self) -> Iterator[Texts]:
        pages = Pages(self.org, self.spec, self.selection, self.progress, self.with_deleted, may_stop=self.by_change)
        if self.spec.query is not None:
            return pages.query_records(self.spec.query)
        by = f"{self.spec.incremental.by}, " if self.spec.incremental and self.by_change else ""
        return pages.object_records(self.conditions, f"{by}{ID}", self._rest)

    def _rest(self) -> Sequence[str]:
        """Return the conditions for the records after the last yielded one.

        In the order of changes a yielded record may have changed since, and would come again: records changed after this
        reading began are left to the next one.
        """
        progress = self.progress
        if not progress.count:
            return ()
        if self.spec.incremental is None or not self.by_change:
            return (f"{ID} > {quoted(progress.last_id)}",)
        by = self.spec.incremental.by
        latest = (until(by, progress.latest, with_none=not progress.last_stamp),) if progress.latest else ()
        # A full read lacks them then, and they must not count as vanished.
        progress.is_short = not progress.before
        return (after_row(by, progress.last_stamp, progress.last_id), *latest)

    def _is_too_much(self, count: int | None) -> bool:
        """Return whether so many records take more pages than there are requests left for us today."""
        usage = self.org.usage
        if self.spec.stop_at is None or not usage.allowed or count is None:
            return False
        return ceil(count / PAGE_ROWS) > self.spec.stop_at * usage.allowed - usage.used


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
