"""Whether a feed's source is as its last whole read left it, so that its rows need not be read again.

What the ledger says to that is `state.repeating`'s; how a source is looked at, `connectors.sources.sights`'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pydantic import TypeAdapter, ValidationError

from connectors.sources.files.snapshot import Look, Sight

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
