"""Before anything is sent: the service's own page is asked once what it expects, and held against what this feed sends.

How they are compared is `connectors.event_api.contract`'s; how a drain is careful about differences is `caution`'s.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace

import structlog
from pydantic import TypeAdapter, ValidationError

from connectors.event_api.client import EventApi
from connectors.event_api.contract import compare, upload_field
from connectors.event_api.contract_page import NoPage, read_page
from connectors.event_api.contract_question import PageBody, PageUnchanged
from connectors.event_api.drift import Drift
from mappings.lint.soundness import outgoing_of
from mappings.spec.feed import FeedMapping
from pipelines.publishing.caution import Doubt
from state.notes import ServiceNotes

RULES = "2"
"""Raised whenever the comparison finds other things than before, so that no remembered result outlives its rules."""
_TOLD = 5


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the page announces for a feed. `has_changed`: it is another page than at the last look.

    `is_disproved`: rows have passed in spite of it, so that its errors are no doubts. `upload_field`: where it wants images.
    """

    drifts: tuple[Drift, ...] = ()
    has_changed: bool = False
    is_disproved: bool = False
    upload_field: str = ""

    @property
    def errors(self) -> tuple[Drift, ...]:
        """The differences for which every row would be refused, as far as nothing disproves them."""
        return () if self.is_disproved else tuple(drift for drift in self.drifts if drift.severity == "error")

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """The same, as the drain's care takes them."""
        return tuple(Doubt(drift.told, frozenset(drift.fields)) for drift in self.errors)

    @property
    def notices(self) -> tuple[str, ...]:
        """What a run tells of it: every announced refusal; what concerns some rows only once, when the page changes."""
        told = [str(drift) for drift in self.errors[:_TOLD]]
        if len(self.errors) > _TOLD:
            told.append(f"the service's page differs in {len(self.errors) - _TOLD} more places: see `eventsync check --live`")
        warnings = sum(drift.severity == "warning" for drift in self.drifts)
        if self.has_changed and warnings:
            told.append(f"the service's page has changed, and differs for some rows in {warnings}: see `eventsync check --live`")
        return tuple(told)


CLEAR = Outlook()


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The last comparison: of which page (its `ETag` and digest) with which mapping, by which rules."""

    etag: str
    page: str
    mapping: str
    rules: str
    drifts: tuple[Drift, ...]
    is_disproved: bool = False
    upload_field: str = ""

    @property
    def outlook(self) -> Outlook:
        return Outlook(self.drifts, is_disproved=self.is_disproved, upload_field=self.upload_field)


_REMEMBERED = TypeAdapter(_Remembered)


class Preflight:
    """Looks ahead for one feed at one destination. What it finds is remembered, so that an unchanged page is not read twice."""

    def __init__(self, notes: ServiceNotes, mapping: FeedMapping) -> None:
        self._notes = notes
        self._mapping = mapping
        self._name = f"contract of {mapping.feed}"

    async def look(self, api: EventApi) -> Outlook:
        """Ask for the page once and compare it; where it cannot be had or read, nothing is announced.

        Raises:
            SyncError: the state DB cannot be read or written.
        """
        before = self._remembered()
        is_ours = before is not None and (before.mapping, before.rules) == (self._mapping.digest.hex(), RULES)
        told = await api.contract(before.etag if before is not None and is_ours else "")
        match told:
            case PageUnchanged() if before is not None:
                return before.outlook
            case PageBody(body, etag):
                digest = hashlib.blake2b(body, digest_size=16).hexdigest()
                if before is not None and is_ours and before.page == digest:
                    return before.outlook
                return await self._compared(body, etag, digest, before)
            case _:
                return _not_had(told.why if isinstance(told, NoPage) else "it answers 304 to nothing")

    def disprove(self) -> None:
        """Remember that rows passed in spite of what the page announces: until it changes, it is not doubted again."""
        before = self._remembered()
        if before is not None:
            self._remember(replace(before, is_disproved=True))

    async def _compared(self, body: bytes, etag: str, digest: str, before: _Remembered | None) -> Outlook:
        page = await asyncio.to_thread(read_page, body)
        if isinstance(page, NoPage):
            return _not_had(page.why)
        drifts = await asyncio.to_thread(compare, page, outgoing_of(self._mapping))
        found = _Remembered(etag, digest, self._mapping.digest.hex(), RULES, drifts, upload_field=upload_field(page))
        self._remember(found)
        return replace(found.outlook, has_changed=before is not None and before.page != digest)

    def _remembered(self) -> _Remembered | None:
        kept = self._notes.read(self._name)
        try:
            return None if kept is None else _REMEMBERED.validate_json(kept)
        except ValidationError:  # written by another version
            return None

    def _remember(self, found: _Remembered) -> None:
        self._notes.write(self._name, _REMEMBERED.dump_json(found, ensure_ascii=True).decode("ascii"))


def _not_had(why: str) -> Outlook:
    structlog.get_logger().debug("the service's page could not be compared", why=why)
    return CLEAR
