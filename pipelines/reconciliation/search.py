"""Looking for rows in the service's list of events: read it whole, match, record what is certain, tell the rest.

Knows neither the environment nor SQL: everything is handed in. How rows and events are matched is `matching`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from connectors.event_api.client import EventApi
from connectors.event_api.lists import EventList
from mappings.errors import SyncError
from pipelines.publishing.drain import Advance
from pipelines.reconciliation.matching import Matching, RowVerdict, Verdict
from state.decisions import Found
from state.sought import Sought

MOVED_ON = "it was found, but the row has changed while the list was read"


class UnaccountedRowsError(SyncError):
    """Rows that were looked for ended nowhere, or twice: the numbers cannot be trusted."""


@dataclass(frozen=True, slots=True)
class ReconcileJob:
    """One look at the list. `rows`: those looked for, and their rivals; `owners`: which events are rows already, by id;
    `record`: makes found rows delivered and returns those that it did, None to record nothing.
    """

    rows: Iterable[Sought]
    open_api: Callable[[], AbstractAsyncContextManager[EventApi]]
    owners: Callable[[Collection[int]], Mapping[int, str]]
    record: Callable[[Sequence[Found]], Collection[Found]] | None
    advance: Advance


@dataclass(frozen=True, slots=True)
class ListRead:
    """How the reading went. `is_whole`: as many events were seen as the service counts; `fields`: what items tell."""

    events: int
    total: int | None
    is_whole: bool
    without_id: int
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What the list says about every row looked for: `sought = found + candidates + absent`."""

    read: ListRead
    verdicts: tuple[RowVerdict, ...]

    def of(self, verdict: Verdict) -> list[RowVerdict]:
        """Return the rows of one verdict, oldest first."""
        return [one for one in self.verdicts if one.verdict is verdict]

    def counts(self) -> dict[str, int]:
        """Return the numbers, balanced. Raises `UnaccountedRowsError` if they are not."""
        found, candidates, absent = (len(self.of(verdict)) for verdict in Verdict)
        if found + candidates + absent != len(self.verdicts):
            raise UnaccountedRowsError("the rows looked for do not add up", hint="please report this as a fault of eventsync")
        return {"sought": len(self.verdicts), "found": found, "candidates": candidates, "absent": absent}


def reconcile(job: ReconcileJob) -> Reconciled:
    """Read the list, match, and record.

    Raises:
        SyncError: the list cannot be read, or the state DB cannot record; nothing was recorded.
    """
    matching = Matching(job.rows)
    listed = asyncio.run(_read(job, matching))
    owners = job.owners(matching.candidates())
    verdicts = tuple(matching.verdicts(owners))
    read = ListRead(listed.read, listed.total, listed.is_whole, listed.without_id, tuple(sorted(matching.fields)))
    return Reconciled(read, verdicts if job.record is None else _recorded(job.record, verdicts))


def is_listed(open_api: Callable[[], AbstractAsyncContextManager[EventApi]], event_id: int) -> EventList | None:
    """Look for one event; return None if it is listed, else the list that was read in vain.

    Raises:
        SyncError: the list cannot be read.
    """

    async def look() -> EventList | None:
        async with open_api() as api:
            listed = api.events()
            async for page in listed.pages():
                if any(event.event_id == event_id for event in page):
                    return None
            return listed

    return asyncio.run(look())


async def _read(job: ReconcileJob, matching: Matching) -> EventList:
    async with job.open_api() as api:
        listed = api.events()
        async for page in listed.pages():
            for event in page:
                matching.meet(event)
            job.advance(len(page))
        return listed


def _recorded(record: Callable[[Sequence[Found]], Collection[Found]], verdicts: tuple[RowVerdict, ...]) -> tuple[RowVerdict, ...]:
    """Record what was found; a row that somebody else has changed meanwhile is left for a person."""
    found = {one.row.entry_id: _as_found(one) for one in verdicts if one.verdict is Verdict.FOUND}
    written = {one.entry_id for one in record(tuple(found.values()))} if found else set()
    lost = found.keys() - written
    return tuple(replace(one, verdict=Verdict.CANDIDATE, why=MOVED_ON) if one.row.entry_id in lost else one for one in verdicts)


def _as_found(one: RowVerdict) -> Found:
    (event_id,) = one.event_ids
    how = f"found in the service's list as event {event_id}: {one.why}"
    return Found(one.row.entry_id, one.row.revision, event_id, how, one.shown)
