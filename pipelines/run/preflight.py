"""Compare the first payloads of a run with the service's OpenAPI page before it sends, to foresee a refusal of every row."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog
from pydantic import TypeAdapter

from connectors.event_api.answers import INDEXES, is_same_place, words_of
from connectors.event_api.contract_check import compare, upload_field
from connectors.event_api.delivery import EventApi
from connectors.event_api.openapi import NoPage, PageBody, read_page
from mappings.delivery import Answer, Drift
from mappings.spec.feed import FeedMapping
from state.notes import ServiceNotes

_RULES = "4"
"""Version of the comparison: stored results of another version are ignored."""
_SHOWN_ERRORS = 5


@dataclass(frozen=True, slots=True)
class ExpectedRefusal:
    """A refusal of every row that follows from the OpenAPI page. `fields`: paths in the payload, one of which it names."""

    text: str
    fields: frozenset[str]

    def explains(self, answer: Answer) -> bool:
        """Return whether a refusal is the expected one: it names one of the fields."""
        if answer.status in {403, 404}:
            return False
        if answer.field:
            return any(is_same_place(answer.field, field) for field in self.fields)
        last_names = {INDEXES.sub("", field).rpartition(".")[2].casefold() for field in self.fields}
        return not last_names.isdisjoint(words_of(answer.issue, answer.message))


@dataclass(frozen=True, slots=True)
class Outlook:
    """The result of the comparison for a feed. `has_changed`: the page, since the last run.

    `is_disproved`: rows were accepted although errors were found. `upload_field`: the form field for images.
    """

    drifts: tuple[Drift, ...] = ()
    has_changed: bool = False
    is_disproved: bool = False
    upload_field: str = ""

    @property
    def errors(self) -> tuple[Drift, ...]:
        """The differences for which the service would refuse every row; none once disproved."""
        return () if self.is_disproved else tuple(drift for drift in self.drifts if drift.severity == "error")

    @property
    def expected(self) -> tuple[ExpectedRefusal, ...]:
        """The refusals that follow from the errors."""
        return tuple(ExpectedRefusal(drift.statement, frozenset(drift.fields)) for drift in self.errors)

    @property
    def notices(self) -> tuple[str, ...]:
        """The sentences for the run's record: every error; the number of warnings only when the page has changed."""
        notices = [str(drift) for drift in self.errors[:_SHOWN_ERRORS]]
        if (more := len(self.errors) - _SHOWN_ERRORS) > 0:
            notices.append(f"the service's OpenAPI page differs in {more} more places: see `eventsync check --live`")
        warnings = sum(drift.severity == "warning" for drift in self.drifts)
        if self.has_changed and warnings:
            news = f"the service's OpenAPI page has changed; {warnings} of its rules would refuse some rows"
            notices.append(f"{news}: see `eventsync check --live`")
        return tuple(notices)


CLEAR = Outlook()


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The last comparison: the page (`ETag` and digest), the mapping, the version of the rules, and the result."""

    etag: str
    page: str
    mapping: str
    rules: str
    outlook: Outlook


_COMPARISON = TypeAdapter(_Comparison)


class Preflight:
    """Compares one feed with the page of one destination; an unchanged page is not compared again.

    `first_bodies` returns the first payloads that the run will send.
    """

    def __init__(self, notes: ServiceNotes, mapping: FeedMapping, first_bodies: Callable[[], Sequence[bytes]]) -> None:
        self._notes = notes
        self._mapping = mapping
        self._first_bodies = first_bodies
        self._name = f"contract of {mapping.feed}"

    async def compare(self, api: EventApi) -> Outlook:
        """Fetch the page and compare it; without a readable page, expect no refusals.

        Raises:
            SyncError: the state DB cannot be read or written.
        """
        last, mapping = self._notes.read_as(self._name, _COMPARISON), self._mapping.digest.hex()
        usable = last if last is not None and (last.mapping, last.rules) == (mapping, _RULES) else None
        body = await api.contract(usable.etag if usable else "")
        digest = hashlib.blake2b(body.body, digest_size=16).hexdigest() if isinstance(body, PageBody) else ""
        if usable and (body is None or usable.page == digest):
            return usable.outlook
        page = await asyncio.to_thread(read_page, body.body) if isinstance(body, PageBody) else body
        if not isinstance(body, PageBody) or page is None or isinstance(page, NoPage):
            why = page.why if isinstance(page, NoPage) else "it answered 304 without being asked for changes"
            structlog.get_logger().debug("the service's page could not be compared", why=why)
            return CLEAR
        drifts = await asyncio.to_thread(compare, page, self._first_bodies())
        if isinstance(drifts, NoPage):
            structlog.get_logger().debug("the service's page could not be compared", why=drifts.why)
            return CLEAR
        outlook = Outlook(drifts, upload_field=upload_field(page))
        self._notes.write_as(self._name, _COMPARISON, _Comparison(body.etag, digest, mapping, _RULES, outlook))
        return replace(outlook, has_changed=last is not None and last.page != digest)

    def disprove(self) -> None:
        """Record that rows were accepted although errors were found; it holds until the page changes."""
        last = self._notes.read_as(self._name, _COMPARISON)
        if last is not None:
            disproved = replace(last, outlook=replace(last.outlook, is_disproved=True))
            self._notes.write_as(self._name, _COMPARISON, disproved)
