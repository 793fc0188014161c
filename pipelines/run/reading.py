"""How a run opens its source: from the start, incrementally from the feed's bookmark, or for chosen rows only.

An unchanged source is recognised by its fingerprint, so that its rows need not be read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib.metadata import version

from pydantic import TypeAdapter, ValidationError

from connectors.sources.files.snapshot import FileSnapshot, TakeSnapshot
from connectors.sources.files.source import NO_FILES
from mappings.compiler.mapper import RowMapper
from mappings.compiler.rows import leaves_for_later
from mappings.spec.feed import FeedMapping
from mappings.spec.source import FileSource
from pipelines.run.options import RunOptions
from state.ledger.gate import NO_BOOKMARK, Bookmark
from state.ledger.reads import ReadKind

_DAILY = timedelta(days=1)
_EARLY = 0.05
"""The part of `full_every` by which a whole read may come too early: a daily schedule that starts a minute sooner than
yesterday would else be due every other day."""

_UNITS = (("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How much of a source is read, and from where.

    `since`: the source's cursor to go on from, "" for its start; `fit`: what the rows are mapped by; `began`: when;
    `full_read_at`: when the full read began that this one builds on. `because`: why a feed that could be read incrementally is
    not, "" where there is no reason to name. `moves_bookmark`: the next read may go on from where this one ends.
    """

    kind: ReadKind = ReadKind.FULL
    since: str = ""
    fit: str = ""
    began: datetime | None = None
    full_read_at: datetime | None = None
    because: str = ""
    moves_bookmark: bool = False

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know of it."""
        return (f"read whole: {self.because}",) if self.because else ()

    def bookmark(self, cursor: str, *, is_full: bool) -> Bookmark | None:
        """Return the bookmark after a read that ended at `cursor`, None where the feed's stays as it is.

        `is_full`: it has read all there is, whether it was meant to or not. Such a read without a cursor clears the bookmark.
        """
        if not self.moves_bookmark:
            return None
        if not cursor:
            return NO_BOOKMARK if is_full else None
        return Bookmark(cursor, self.fit, self.began if is_full else self.full_read_at)


FULL_READ = ReadPlan()
"""How a source without cursors is always read."""

CHOSEN_ROWS = ReadPlan(ReadKind.CHOSEN)
"""Rows are picked by their keys, or by a window of days: such a read neither starts from the bookmark nor moves it."""


@dataclass(frozen=True, slots=True)
class ReadInputs:
    """What is known before a read: the feed, its compiled mapper, evidence of the service's lists, the time."""

    mapping: FeedMapping
    mapper: RowMapper
    lists: str
    began: datetime

    @property
    def fit(self) -> str:
        """A digest of all that rows are read and mapped by: while it is the same, an unchanged row gives the same event."""
        policy = self.mapping.publish
        return self._digest(self.lists, policy.on_change, policy.on_vanish)

    @property
    def fit_today(self) -> str:
        """The same with what else may change the event of an unchanged row: the day, our own version. "" where any moment may."""
        seen_on = self.mapper.seen_on
        return "" if seen_on is None else self._digest(self.fit, seen_on, version("eventsync"))

    def _digest(self, *parts: str) -> str:
        digest = hashlib.blake2b(self.mapping.digest, digest_size=16)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def plan_read(known: ReadInputs, options: RunOptions, bookmark: Bookmark = NO_BOOKMARK) -> ReadPlan:
    """Decide how a run reads its source.

    A run that sends drafts only moves no bookmark: its rows must be read again, to be sent as the mapping says. Where several
    rows make one event, those that changed mean nothing without the others: such a feed is always read whole.
    """
    full_every = _full_every(known.mapping)
    if options.window is not None:
        return replace(CHOSEN_ROWS, since=NO_FILES if options.window.by == "file" else "")
    if options.keys:
        return CHOSEN_ROWS
    if full_every is None:
        return FULL_READ
    needs_whole = known.mapper.needs_all_rows and known.mapping.source.gives_single_rows
    moves_bookmark = options.status is None and not needs_whole
    because = next(_reasons(known, options, bookmark, full_every), "")
    if because or needs_whole or not bookmark.cursor:
        since = NO_FILES if _are_deliveries(known.mapping) and bookmark.full_read_at is not None else ""
        return ReadPlan(since=since, fit=known.fit, began=known.began, because=because, moves_bookmark=moves_bookmark)
    return ReadPlan(
        ReadKind.INCREMENTAL, bookmark.cursor, known.fit, known.began, bookmark.full_read_at, moves_bookmark=moves_bookmark
    )


def _full_every(mapping: FeedMapping) -> timedelta | None:
    """Return how often a feed is read whole at least. Else what a delivery has beyond a horizon would never be read again."""
    return _DAILY if _are_deliveries(mapping) and leaves_for_later(mapping.rows) else mapping.source.full_every


def _are_deliveries(mapping: FeedMapping) -> bool:
    return isinstance(mapping.source, FileSource) and mapping.source.files == "new"


def _reasons(known: ReadInputs, options: RunOptions, bookmark: Bookmark, full_every: timedelta) -> Iterator[str]:
    """Yield why the source is read whole; the first reason is shown."""
    if options.full:
        yield "asked for"
    if bookmark.full_read_at is None:
        return
    if not bookmark.cursor:
        yield "what an earlier read has staged or held waits to be judged"
    elif bookmark.fit != known.fit:
        yield "the mapping, the source or the service's lists are not those of the last read"
    if known.began - bookmark.full_read_at >= full_every * (1 - _EARLY):
        yield f"the last whole read is {_format_length(full_every)} old, or nearly so"


def _format_length(length: timedelta) -> str:
    """Format a length as mapping files do: 1d12h."""
    rest = round(length.total_seconds())
    text = ""
    for unit, seconds in _UNITS:
        count, rest = divmod(rest, seconds)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


MAP_EVERY = timedelta(days=1)
"""Every row is mapped so often at least: what else may change an event, such as the rules of a time zone, leaves no trace."""


@dataclass(frozen=True, slots=True)
class SourceFingerprint:
    """Evidence of the content that a whole read was made of, kept with the feed.

    `stamp`: the files' sizes and times, "" where they were too young for that to prove anything; `content`: the digest of their
    bytes; `fit`: what the rows were mapped by; `read_at`: when all of them were last mapped.
    """

    stamp: str
    size: int
    content: str
    fit: str
    read_at: datetime

    def __str__(self) -> str:
        """The text that is kept."""
        return _FINGERPRINT.dump_json(self).decode("ascii")


_FINGERPRINT = TypeAdapter(SourceFingerprint)


@dataclass(frozen=True, slots=True)
class ChangeProbe:
    """Finds out whether a source has changed since its last whole read, for a run that `began` then and maps rows by `fit`."""

    take_snapshot: TakeSnapshot
    fit: str
    began: datetime

    def snapshot(self) -> FileSnapshot | None:
        """Return the files as they are now, None where every row has to be mapped in any case."""
        return self.take_snapshot() if self.fit else None

    def last(self, stored: str) -> SourceFingerprint | None:
        """Return the fingerprint that the last read left, None where it is worth nothing: too old, or of another mapping."""
        try:
            last = _FINGERPRINT.validate_json(stored) if stored else None
        except ValidationError:
            return None
        is_valid = last is not None and last.fit == self.fit and timedelta() <= self.began - last.read_at < MAP_EVERY
        return last if is_valid else None

    def match(self, snapshot: FileSnapshot, stored: str) -> SourceFingerprint | None:
        """Return the fingerprint to keep from now on, None if the source or its mapping has changed since the stored one.

        The bytes are digested only where the stamp proves nothing: the file was touched, or written anew.
        """
        last = self.last(stored)
        if last is None:
            return None
        stamp = snapshot.stamp if snapshot.is_settled else ""
        if stamp and stamp == last.stamp:
            return last
        if not last.content or snapshot.size != last.size or snapshot.digest() != last.content:
            return None
        return replace(last, stamp=stamp)

    def fingerprint(self, snapshot: FileSnapshot) -> SourceFingerprint | None:
        """Digest the content, in one pass over the bytes, before its rows are read."""
        content = snapshot.digest()
        if not content:
            return None
        return SourceFingerprint(snapshot.stamp if snapshot.is_settled else "", snapshot.size, content, self.fit, self.began)
