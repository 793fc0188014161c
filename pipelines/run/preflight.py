"""Before anything is sent, compare what the feed sends with the service's OpenAPI page, and its list of classifications with
the one of the last run.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace

import structlog
from pydantic import TypeAdapter, ValidationError

from connectors.event_api.client import EventApi
from connectors.event_api.contract_check import Drift, compare, upload_field
from connectors.event_api.lists import Classifications
from connectors.event_api.openapi import NoPage, PageBody, read_page
from mappings.outgoing import outgoing_of
from mappings.refusals import nearest
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping
from pipelines.run.systemic_failure import ExpectedRefusal
from state.notes import ServiceNotes

RULES = "2"
"""Version of the comparison: remembered results of another version are ignored."""
_SHOWN_ERRORS = 5


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
    def doubts(self) -> tuple[ExpectedRefusal, ...]:
        """The same as expected refusals."""
        return tuple(ExpectedRefusal(drift.statement, frozenset(drift.fields)) for drift in self.errors)

    @property
    def notices(self) -> tuple[str, ...]:
        """The notices of a run: every announced refusal; differences for some rows only when the page changes."""
        notices = [str(drift) for drift in self.errors[:_SHOWN_ERRORS]]
        if len(self.errors) > _SHOWN_ERRORS:
            notices.append(
                f"the service's page differs in {len(self.errors) - _SHOWN_ERRORS} more places: see `eventsync check --live`"
            )
        warnings = sum(drift.severity == "warning" for drift in self.drifts)
        if self.has_changed and warnings:
            notices.append(
                f"the service's page has changed, and differs for some rows in {warnings}: see `eventsync check --live`"
            )
        return tuple(notices)


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
    """Compares for one feed at one destination; an unchanged page is not compared twice."""

    def __init__(self, notes: ServiceNotes, mapping: FeedMapping) -> None:
        self._notes = notes
        self._mapping = mapping
        self._name = f"contract of {mapping.feed}"

    async def look(self, api: EventApi) -> Outlook:
        """Fetch the page and compare it; nothing is announced where it cannot be fetched or read.

        Raises:
            SyncError: the state DB cannot be read or written.
        """
        before = self._remembered()
        is_ours = before is not None and (before.mapping, before.rules) == (self._mapping.digest.hex(), RULES)
        page = await api.contract(before.etag if before is not None and is_ours else "")
        match page:
            case None:
                return before.outlook if before is not None else CLEAR
            case PageBody(body, etag):
                digest = hashlib.blake2b(body, digest_size=16).hexdigest()
                if before is not None and is_ours and before.page == digest:
                    return before.outlook
                return await self._compared(body, etag, digest, before)
            case NoPage(why):
                return _no_outlook(why)

    def disprove(self) -> None:
        """Remember that rows passed in spite of what the page announces, until it changes."""
        before = self._remembered()
        if before is not None:
            self._remember(replace(before, is_disproved=True))

    async def _compared(self, body: bytes, etag: str, digest: str, before: _Remembered | None) -> Outlook:
        page = await asyncio.to_thread(read_page, body)
        if isinstance(page, NoPage):
            return _no_outlook(page.why)
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


def _no_outlook(why: str) -> Outlook:
    structlog.get_logger().debug("the service's page could not be compared", why=why)
    return CLEAR


_SHOWN = 8
_LIST = TypeAdapter(Classifications)


@dataclass(frozen=True, slots=True)
class ListChange:
    """How the list of classifications changed. `lost`: slugs of this mapping that the list no longer has."""

    before: str
    now: str
    gone: tuple[str, ...]
    new: tuple[str, ...]
    lost: tuple[str, ...]

    def __str__(self) -> str:
        versions = f"from {self.before} to {self.now}" if self.before != self.now else f"and is still called {self.now}"
        parts = [f"gone: {', '.join(self._gone())}" if self.gone else "", f"new: {_some(self.new)}" if self.new else ""]
        lost = f"this mapping names {_some(self.lost)}: such rows are rejected until it is mended" if self.lost else ""
        return "; ".join(filter(None, (f"the list of classifications changed {versions}", *parts, lost)))

    def _gone(self) -> list[str]:
        """Return the slugs that are gone, each with the new slug that it may have become."""
        named = [(slug, nearest(slug, self.new)) for slug in self.gone[:_SHOWN]]
        told = [f"{slug} (now {near}?)" if near else slug for slug, near in named]
        return told if len(self.gone) <= _SHOWN else [*told, f"and {len(self.gone) - _SHOWN} more"]


class ListMemory:
    """The lists that runs at one destination have read: every version once, and the last one of each feed."""

    def __init__(self, notes: ServiceNotes) -> None:
        self._notes = notes

    def version(self, version: str) -> Classifications | None:
        """Return the list of a version, None if no run has read it."""
        return self._read(f"classifications of {version}")

    def told(self, feed: FeedName) -> Classifications | None:
        """Return the list that the feed's last run read, None if none did."""
        return self._read(f"classifications told to {feed}")

    def note(self, mapping: FeedMapping, now: Classifications) -> ListChange | None:
        """Remember the list of this run, and return how it changed since the feed's last run."""
        before = self.told(mapping.feed)
        if before == now:
            return None
        for name in (f"classifications told to {mapping.feed}", f"classifications of {now.version}"):
            self._notes.write(name, _LIST.dump_json(now, ensure_ascii=True).decode("ascii"))
        return None if before is None else change_between(before, now, mapping)

    def _read(self, name: str) -> Classifications | None:
        kept = self._notes.read(name)
        try:
            return None if kept is None else _LIST.validate_json(kept)
        except ValidationError:  # written by another version
            return None


def change_between(before: Classifications, now: Classifications, mapping: FeedMapping) -> ListChange:
    """Return how the list differs, as far as it concerns a mapping."""
    named = named_slugs(mapping)
    return ListChange(
        before=before.version,
        now=now.version,
        gone=tuple(sorted(before.slugs - now.slugs)),
        new=tuple(sorted(now.slugs - before.slugs)),
        lost=tuple(sorted(named - now.slugs)),
    )


def named_slugs(mapping: FeedMapping) -> frozenset[str]:
    """Return the slugs that a mapping names itself."""
    sent = outgoing_of(mapping).fields.get("classifications")
    values = sent.item.values if sent and sent.item else None
    return frozenset(str(value) for value in values or ())


def _some(slugs: tuple[str, ...]) -> str:
    shown = ", ".join(slugs[:_SHOWN])
    return f"{shown} and {len(slugs) - _SHOWN} more" if len(slugs) > _SHOWN else shown
