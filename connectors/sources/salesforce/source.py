"""Records of Salesforce as a source: which of them, in which way, and what a later reading may leave out.

The ways themselves are `salesforce_pages` and `salesforce_bulk`; who we are is `access`'s.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from math import ceil

from connectors.sources.contract import Reading
from connectors.sources.environment import REAL_CLOCK, Access, Clock
from connectors.sources.header import ColumnRequest
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
)
from connectors.sources.salesforce.read import (
    PAGE_ROWS,
    NotInBulkError,
    OrgLook,
    Pages,
    Progress,
    Texts,
    day_spent,
    earlier,
    progress_of,
    query_job,
    written,
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
        """Keep the promises of `Source.read`."""
        with closing(Org(self.access, self.clock)) as org:
            with as_odd_answer(self.spec.place, "Salesforce"):
                selection = self._selection(org)
                walk = self._walk(org, selection)
            with closing(walk.texts()) as texts:
                rows = _Rows(org, self.spec.place, selection, walk.progress).of(
                    in_known_shape(texts, self.spec.place, "Salesforce")
                )
                reading = Reading(selection.names, rows, "", not walk.progress.before, walk.progress.ending)
                yield reading.with_empty(selection.absent)

    def look(self) -> OrgLook:
        """Ask whether all columns are there, how many records there are, and how many requests the org has left; read nothing.

        Raises:
            SyncError: as `read` does.
        """
        with closing(Org(self.access, self.clock)) as org, as_odd_answer(self.spec.place, "Salesforce"):
            selection = self._selection(org)
            walk = _Walk(self.spec, org, selection, progress_of(self.spec, selection, org.address, ""))
            records = walk.count()
            day = org.limits().get("DailyApiRequests", {})
            allowed, left = int(day.get("Max", org.usage.allowed)), int(day.get("Remaining", org.usage.allowed - org.usage.used))
            kept = 0 if self.spec.stop_at is None else round(allowed * (1 - self.spec.stop_at))
            in_bulk = walk.is_for_bulk(records)
            return OrgLook(self.spec.place, len(selection.names), records, in_bulk, left, allowed, kept)

    def _selection(self, org: Org) -> Selection:
        shapes = Shapes(org.describe)
        if self.spec.query is not None:
            return select_query(parse_query(self.spec.query), self.asked, shapes)
        return select_object(self.spec, self.asked, shapes)

    def _walk(self, org: Org, selection: Selection) -> _Walk:
        if self.spec.stop_at is not None and org.usage.share >= self.spec.stop_at:
            raise day_spent(org, self.spec)
        progress = progress_of(self.spec, selection, org.address, self.cursor)
        progress.latest = written(org.usage.now) if org.usage.now else ""
        walk = _Walk(self.spec, org, selection, progress)
        return walk.counted()


@dataclass(frozen=True, slots=True)
class _Walk:
    """One way through the records. `by_change`: in the order of their changes, so that it may stop anywhere and go on later."""

    spec: SalesforceSource
    org: Org
    selection: Selection
    progress: Progress
    in_bulk: bool = False
    by_change: bool = False

    @property
    def with_deleted(self) -> bool:
        """Whether the archive and the recycle bin are to be looked into."""
        return bool(self.progress.before) or self.selection.archive

    @property
    def conditions(self) -> tuple[str, ...]:
        """What the records must meet besides the mapping's own conditions."""
        if self.progress.before and self.spec.incremental:
            start = earlier(self.progress.before, self.spec.incremental.overlap)
            return (since(self.spec.incremental.by, start),)
        return (f"{DELETED} = false",) if self.selection.archive else ()

    def counted(self) -> _Walk:
        """Return the same, having asked how many records there are and chosen the way by it."""
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
        """Ask how many records there are; None where that cannot be asked."""
        if self.spec.query is None:
            return self.org.query(self.selection.asking.count(*self.conditions), with_deleted=self.with_deleted).total
        query = parse_query(self.spec.query)
        return self.org.query(query.counting).total if query.is_plain else None

    def is_for_bulk(self, count: int | None) -> bool:
        """Tell whether so many records are read in bulk."""
        if not self._is_free or count is None:
            return self.spec.api == "bulk"
        return count > self.spec.bulk_above or self._is_too_much(count)

    @property
    def _is_free(self) -> bool:
        """Whether both ways are open."""
        return self.spec.api == "auto" and not any(column.child for column in self.selection.columns)

    def texts(self) -> Generator[Texts]:
        """Give the records' cells."""
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
        soql = self.spec.query or self.selection.asking.query(*self.conditions)
        with query_job(self.org, soql, with_deleted=self.with_deleted) as job:
            yield from job.texts(self.selection)

    def _in_pages(self) -> Iterator[Texts]:
        pages = Pages(self.org, self.spec, self.selection, self.progress, self.with_deleted, may_stop=self.by_change)
        if self.spec.query is not None:
            return pages.of_query(self.spec.query)
        by = f"{self.spec.incremental.by}, " if self.spec.incremental and self.by_change else ""
        return pages.of_object(self.conditions, f"{by}{ID}", self._rest)

    def _rest(self) -> Sequence[str]:
        """Return the conditions for what comes after the last record given.

        In the order of changes one that was given may have changed since, and would come again: those changed after this
        reading began are left to the next.
        """
        progress = self.progress
        if not progress.count:
            return ()
        if self.spec.incremental is None or not self.by_change:
            return (f"{ID} > {quoted(progress.last_id)}",)
        by = self.spec.incremental.by
        latest = (until(by, progress.latest, with_none=not progress.last_stamp),) if progress.latest else ()
        # A whole reading lacks them then, and nobody may take them for vanished.
        progress.is_short = not progress.before
        return (after_row(by, progress.last_stamp, progress.last_id), *latest)

    def _is_too_much(self, count: int | None) -> bool:
        """Tell whether so many records take more pages than there are requests left for us today."""
        usage = self.org.usage
        if self.spec.stop_at is None or not usage.allowed or count is None:
            return False
        return ceil(count / PAGE_ROWS) > self.spec.stop_at * usage.allowed - usage.used


@dataclass(frozen=True, slots=True)
class _Rows:
    """Makes rows of records' cells."""

    org: Org
    place: str
    selection: Selection
    progress: Progress

    def of(self, records: Iterator[Texts]) -> Iterator[SourceRow]:
        """Give a row for each record; its place is the record's own page."""
        names = self.selection.names
        numbers = [number for _, number in self.selection.cells]
        is_straight = numbers == list(range(len(self.selection.columns)))
        id_at, gone_at = self.selection.at(ID), self.selection.at(DELETED)
        can_be_gone = gone_at is not None and bool(self.progress.before)
        note, address = self.progress.note, self.org.address
        for number, texts in enumerate(records, start=1):
            note(texts)
            cells = dict(zip(names, texts if is_straight else [texts[one] for one in numbers], strict=True))
            place = f"{address}/{texts[id_at]}" if id_at is not None else f"{self.place} (row {number})"
            is_gone = can_be_gone and texts[gone_at or 0] == "true"
            yield SourceRow(RowLocation(place, 0 if id_at is not None else number), cells, is_gone=is_gone)
