"""Reading records page by page over REST, going on where a query was forgotten, stopping where the day's requests end.

How many records there are, and whether pages are the way to read them, is `salesforce_records`' matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from connectors.sources.errors import SourceUnavailableError
from connectors.sources.salesforce.cells import children_text, picked
from connectors.sources.salesforce.errors import DAY_SPENT_S, LocatorLostError
from connectors.sources.salesforce.org import Org, Page
from connectors.sources.salesforce.progress import Progress
from connectors.sources.salesforce.selection import Column, Selection
from mappings.spec.source import SalesforceSource

Texts = list[str]
"""The cells of one record, in the order of the selection's columns."""

_MOST_RESTARTS = 20
_CHANGED = "the records came in another order when Salesforce had forgotten the query and was asked again"


@dataclass(frozen=True, slots=True)
class Pages:
    """One way through a query's pages. `may_stop`: what is not read today may be read tomorrow."""

    org: Org
    spec: SalesforceSource
    selection: Selection
    progress: Progress
    with_deleted: bool = False
    may_stop: bool = False

    def of_object(self, given: Sequence[str], order: str, rest: Callable[[], Sequence[str]]) -> Iterator[Texts]:
        """Give the records that meet the conditions; `rest` returns those of what comes after the last one given.

        Raises:
            SourceUnavailableError: the query was forgotten again and again, or the day's requests are used.
        """
        conditions, restarts = tuple(given), 0
        while True:
            before = self.progress.count
            try:
                yield from self._texts(self.selection.asking.query(*conditions, order=order))
            except LocatorLostError:
                restarts = 0 if self.progress.count > before else restarts + 1
                if restarts > _MOST_RESTARTS:
                    raise
                conditions = (*given, *rest())
            else:
                return

    def of_query(self, soql: str) -> Iterator[Texts]:
        """Give the records of an author's query; what was given before it was forgotten must come again, and is passed over.

        Raises:
            SourceUnavailableError: they come otherwise, so that nobody knows which were given.
        """
        memory = _Memory()
        for _ in range(_MOST_RESTARTS):
            memory.begin()
            try:
                yield from (texts for texts in self._texts(soql) if memory.is_new(texts))
            except LocatorLostError:
                memory.keep()
            else:
                memory.end()
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
            message = f"Salesforce told of {total} records and gave {seen}"
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
        if self.spec.stop_at is None or self.org.told.share < self.spec.stop_at:
            return False
        if not self.may_stop:
            raise day_spent(self.org, self.spec)
        told = self.org.told
        self.progress.is_short = True
        self.progress.notices.append(
            f"stopped after {self.progress.count} records: the org has used {told.used} of its {told.allowed} requests of the day"
            f" (stop_at); the next run goes on from there"
        )
        return True


@dataclass(slots=True)
class _Memory:
    """What a query has given so far, as a number and a digest: enough to tell whether it comes again just so."""

    given: int = 0
    passed: int = 0
    expected: str = ""
    digest: blake2b = field(default_factory=blake2b)

    def begin(self) -> None:
        self.passed, self.digest = 0, blake2b()

    def is_new(self, texts: Texts) -> bool:
        self.passed += 1
        self.digest.update("\0".join(texts).encode("utf-8", "surrogatepass") + b"\1")
        if self.passed == self.given and self.digest.hexdigest() != self.expected:
            raise SourceUnavailableError(_CHANGED, hint="write ORDER BY Id at the end of the query")
        return self.passed > self.given

    def keep(self) -> None:
        if self.passed >= self.given:
            self.given, self.expected = self.passed, self.digest.hexdigest()

    def end(self) -> None:
        if self.passed < self.given:
            raise SourceUnavailableError(_CHANGED, hint="write ORDER BY Id at the end of the query")


def day_spent(org: Org, spec: SalesforceSource) -> SourceUnavailableError:
    """Return the error for an org whose requests of the day are used as far as we may use them."""
    told = org.told
    message = f"Salesforce: the org has used {told.used} of its {told.allowed} requests of the day, {told.share:.0%}"
    hint = f"we stop at {spec.stop_at or 1:.0%} (`stop_at`) so that other programs can work; run again in an hour"
    return SourceUnavailableError(message, hint=hint, retry_after_s=DAY_SPENT_S)
