"""Compare what a feed sends with the service's OpenAPI page before anything is sent, to expect refusals of every row."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace

import structlog
from pydantic import TypeAdapter

from connectors.event_api.answers import INDEXES, is_same_place, words_of
from connectors.event_api.contract_check import compare, upload_field
from connectors.event_api.delivery import EventApi
from connectors.event_api.openapi import NoPage, PageBody, read_page
from mappings.delivery import Answer
from mappings.outgoing import Drift, outgoing_of
from mappings.spec.feed import FeedMapping
from pipelines.run.service import read_note, write_note
from state.notes import ServiceNotes

_RULES = "3"
"""Version of the comparison: remembered results of another version are ignored."""
_SHOWN_ERRORS = 5


@dataclass(frozen=True, slots=True)
class ExpectedRefusal:
    """A refusal that the service's page announces for every row.

    `fields`: paths in the payload that a refusal may name for it; none where the request as a whole is meant.
    """

    text: str
    fields: frozenset[str] = frozenset()

    def explains(self, answer: Answer) -> bool:
        """Whether a refusal is the announced one: it names such a field, as its field or in its words.

        Where the request as a whole is meant, it names no field. A 403 is never announced.
        """
        if not self.fields:
            return not answer.field and answer.status != 403
        if answer.status in {403, 404}:
            return False
        if answer.field:
            return any(is_same_place(answer.field, field) for field in self.fields)
        last_names = {INDEXES.sub("", field).rpartition(".")[2].casefold() for field in self.fields}
        return not last_names.isdisjoint(words_of(answer.issue, answer.message))


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the page announces for a feed. `has_changed`: since the last run.

    `is_disproved`: rows have passed in spite of its errors. `upload_field`: the form field for images.
    """

    drifts: tuple[Drift, ...] = ()
    has_changed: bool = False
    is_disproved: bool = False
    upload_field: str = ""

    @property
    def errors(self) -> tuple[Drift, ...]:
        """The differences for which every row would be refused, unless disproved."""
        return () if self.is_disproved else tuple(drift for drift in self.drifts if drift.severity == "error")

    @property
    def expected(self) -> tuple[ExpectedRefusal, ...]:
        """The refusals that these lead to."""
        return tuple(ExpectedRefusal(drift.statement, frozenset(drift.fields)) for drift in self.errors)

    @property
    def notices(self) -> tuple[str, ...]:
        """The notices of a run: every announced refusal; differences for some rows only when the page changes."""
        notices = [str(drift) for drift in self.errors[:_SHOWN_ERRORS]]
        if (more := len(self.errors) - _SHOWN_ERRORS) > 0:
            notices.append(f"the service's page differs in {more} more places: see `eventsync check --live`")
        warnings = sum(drift.severity == "warning" for drift in self.drifts)
        if self.has_changed and warnings:
            news = f"the service's page has changed, and differs for some rows in {warnings}"
            notices.append(f"{news}: see `eventsync check --live`")
        return tuple(notices)


CLEAR = Outlook()


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The last comparison: of which page (its `ETag` and digest) with which mapping, by which rules."""

    etag: str
    page: str
    mapping: str
    rules: str
    outlook: Outlook


_COMPARISON = TypeAdapter(_Comparison)


class Preflight:
    """Compares for one feed at one destination; an unchanged page is not compared twice."""

    def __init__(self, notes: ServiceNotes, mapping: FeedMapping) -> None:
        self._notes = notes
        self._mapping = mapping
        self._name = f"contract of {mapping.feed}"

    async def compare(self, api: EventApi) -> Outlook:
        """Fetch the page and compare it; nothing is announced where it cannot be fetched or read.

        Raises:
            SyncError: the state DB cannot be read or written.
        """
        last, mapping = read_note(self._notes, self._name, _COMPARISON), self._mapping.digest.hex()
        usable = last if last is not None and (last.mapping, last.rules) == (mapping, _RULES) else None
        body = await api.contract(usable.etag if usable else "")
        digest = hashlib.blake2b(body.body, digest_size=16).hexdigest() if isinstance(body, PageBody) else ""
        if usable and (body is None or usable.page == digest):
            return usable.outlook
        page = await asyncio.to_thread(read_page, body.body) if isinstance(body, PageBody) else body
        if not isinstance(body, PageBody) or page is None or isinstance(page, NoPage):
            why = page.why if isinstance(page, NoPage) else "it answers 304 to nothing"
            structlog.get_logger().debug("the service's page could not be compared", why=why)
            return CLEAR
        drifts = await asyncio.to_thread(compare, page, outgoing_of(self._mapping))
        outlook = Outlook(drifts, upload_field=upload_field(page))
        write_note(self._notes, self._name, _COMPARISON, _Comparison(body.etag, digest, mapping, _RULES, outlook))
        return replace(outlook, has_changed=last is not None and last.page != digest)

    def disprove(self) -> None:
        """Remember that rows passed in spite of what the page announces, until it changes."""
        last = read_note(self._notes, self._name, _COMPARISON)
        if last is not None:
            disproved = replace(last, outlook=replace(last.outlook, is_disproved=True))
            write_note(self._notes, self._name, _COMPARISON, disproved)
