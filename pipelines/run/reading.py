"""How a run opens its source: from the start, incrementally from the feed's bookmark, or for chosen rows only.

An unchanged source is recognised by its fingerprint, so that its rows need not be read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib.metadata import version

from pydantic import TypeAdapter, ValidationError

from connectors.sources.files.snapshot import Look, Sight
from connectors.sources.files.source import NO_FILES
from mappings.compiler.mapper import RowMapper
from mappings.compiler.rows import leaves_for_later
from mappings.spec.feed import FeedMapping
from mappings.spec.source import FileSource
from pipelines.run.options import RunOptions
from state.ledger.bookmark import NO_BOOKMARK, Bookmark
from state.ledger.reach import Reach

_DAILY = timedelta(days=1)
_EARLY = 0.05
"""The part of `full_every` by which a whole read may come too early: a daily schedule that starts a minute sooner than
yesterday would else be due every other day."""

_UNITS = (("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class Approach:
    """What a read takes in. `since`: the source's cursor to go on from, "" for its start; `fit`: what the rows are mapped by;
    `began`: when; `full_read_at`: when the full read began that this one builds on. `because`: why a feed that could go on
    begins anew, "" where there is nothing to tell. `moves`: the next read may go on from where this one ends.
    """

    reach: Reach = Reach.FULL
    since: str = ""
    fit: str = ""
    began: datetime | None = None
    full_read_at: datetime | None = None
    because: str = ""
    moves: bool = False

    @property
    def notices(self) -> tuple[str, ...]:
        """What whoever watches should know of it."""
        return (f"read whole: {self.because}",) if self.because else ()

    def bookmark(self, cursor: str, *, is_full: bool) -> Bookmark | None:
        """Return the bookmark that a read leaves which ended at `cursor`, None if it leaves the feed's as it is.

        `is_full`: it has read all there is, whether it was to or not. Such a read with nowhere to go on from leaves none at all:
        the next one begins anew as a matter of course.
        """
        if not self.moves:
            return None
        if not cursor:
            return NO_BOOKMARK if is_full else None
        return Bookmark(cursor, self.fit, self.began if is_full else self.full_read_at)


FROM_THE_START = Approach()
"""How a source without cursors is always read."""

PICKED = Approach(Reach.PICKED)
"""Rows are sought by their keys, or by a window of days, and what is found tells nothing of where the source ends."""


@dataclass(frozen=True, slots=True)
class AtHand:
    """What is known before a read: the feed, its compiled mapper, evidence of the service's lists, the time."""

    mapping: FeedMapping
    mapper: RowMapper
    lists: str
    began: datetime

    @property
    def fit(self) -> str:
        """Evidence of all that rows are read, mapped and judged by: while it is the same, an unchanged row stays what it is."""
        policy = self.mapping.publish
        parts = (self.lists, policy.on_change, policy.on_vanish)
        return self._digested(parts)

    @property
    def fit_today(self) -> str:
        """The same, with all that else may make another event of an unchanged row: the days that it is seen on, our own version.

        "" where any moment may.
        """
        seen_on = self.mapper.seen_on
        return "" if seen_on is None else self._digested((self.fit, seen_on, version("eventsync")))

    def _digested(self, parts: Sequence[str]) -> str:
        digest = hashlib.blake2b(self.mapping.digest, digest_size=16)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def approach_of(known: AtHand, options: RunOptions, bookmark: Bookmark = NO_BOOKMARK) -> Approach:
    """Decide how a run reads its source.

    A run that sends drafts only moves no bookmark: its rows must come again, to be seen for what the mapping makes of them.
    Where rows of one key belong together, those that changed tell nothing without the others: such a feed never goes on.
    """
    full_every = _full_every(known.mapping)
    if options.window is not None:
        return replace(PICKED, since=NO_FILES if options.window.by == "file" else "")
    if options.keys:
        return PICKED
    if full_every is None:
        return FROM_THE_START
    is_torn = known.mapper.needs_all_rows and known.mapping.source.gives_single_rows
    moves = options.status is None and not is_torn
    because = next(_reasons(known, options, bookmark, full_every), "")
    if because or is_torn or not bookmark.cursor:
        since = NO_FILES if _are_deliveries(known.mapping) and bookmark.full_read_at is not None else ""
        return Approach(since=since, fit=known.fit, began=known.began, because=because, moves=moves)
    return Approach(Reach.ONWARD, bookmark.cursor, known.fit, known.began, bookmark.full_read_at, moves=moves)


def _full_every(mapping: FeedMapping) -> timedelta | None:
    """Return how often a feed is read whole at least. What a delivery has beyond a horizon nobody would else look at again."""
    return _DAILY if _are_deliveries(mapping) and leaves_for_later(mapping.rows) else mapping.source.full_every


def _are_deliveries(mapping: FeedMapping) -> bool:
    return isinstance(mapping.source, FileSource) and mapping.source.files == "new"


def _reasons(known: AtHand, options: RunOptions, bookmark: Bookmark, full_every: timedelta) -> Iterator[str]:
    """Yield why the read begins anew, the first of which is told."""
    if options.full:
        yield "asked for"
    if bookmark.full_read_at is None:
        return
    if not bookmark.cursor:
        yield "what an earlier read has staged or held waits to be judged"
    elif bookmark.fit != known.fit:
        yield "the mapping, the source or the service's lists are not those of the last read"
    if known.began - bookmark.full_read_at >= full_every * (1 - _EARLY):
        yield f"the last whole read is {_spelt(full_every)} old, or nearly so"


def _spelt(length: timedelta) -> str:
    """Spell a length as mapping files do: 1d12h."""
    rest = round(length.total_seconds())
    told = ""
    for unit, seconds in _UNITS:
        count, rest = divmod(rest, seconds)
        told += f"{count}{unit}" if count else ""
    return told or "0s"


READ_EVERY = timedelta(days=1)
"""Rows are read so often all the same: what else may change an event, such as the rules of a time zone, has no stamp."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a whole read was made of. `stamp`: the file's, "" where it was too young for its stamp to prove anything; `content`:
    the digest of its bytes; `fit`: what its rows were mapped by; `read_at`: when all rows were last read indeed; `layout`: that
    of the records that are remembered, "" if none are.
    """

    stamp: str
    size: int
    content: str
    fit: str
    read_at: datetime
    layout: str = ""

    def __str__(self) -> str:
        """The text that is kept with the feed."""
        return _EVIDENCE.dump_json(self).decode("ascii")


_EVIDENCE = TypeAdapter(Evidence)


@dataclass(frozen=True, slots=True)
class Sameness:
    """How a run that `began` then tells an unchanged source: by a `look` at it, while `fit` is what rows were mapped by."""

    look: Look
    fit: str
    began: datetime

    def seen(self) -> Sight | None:
        """Look at the source; None where it, or the mapping, has to be asked about every row in any case."""
        return self.look() if self.fit else None

    def known(self, kept: str) -> Evidence | None:
        """Return the evidence that the last read kept, None if it has lost its worth: the mapping has changed, or it is old."""
        known = _parsed(kept)
        is_fit = known is not None and known.fit == self.fit and timedelta() <= self.began - known.read_at < READ_EVERY
        return known if is_fit else None

    def repeated(self, sight: Sight, kept: str) -> Evidence | None:
        """Return the evidence that takes the place of what the last read kept, None if the source, or its mapping, has changed.

        The bytes are digested only where the stamp proves nothing: the file was touched, or written anew.
        """
        known = self.known(kept)
        if known is None:
            return None
        stamp = sight.stamp if sight.is_settled else ""
        if stamp and stamp == known.stamp:
            return known
        if not known.content or sight.size != known.size or sight.digest() != known.content:
            return None
        return replace(known, stamp=stamp)

    def of_read(self, sight: Sight) -> Evidence | None:
        """Return what a read of these rows keeps as evidence: one pass over the bytes, made before the first row."""
        content = sight.digest()
        if not content:
            return None
        return Evidence(sight.stamp if sight.is_settled else "", sight.size, content, self.fit, self.began)


def _parsed(kept: str) -> Evidence | None:
    try:
        return _EVIDENCE.validate_json(kept) if kept else None
    except ValidationError:
        return None
