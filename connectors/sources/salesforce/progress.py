"""How far a reading of Salesforce has come, and from where a later one may go on.

What is asked for by it is `salesforce_records`' matter.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from connectors.sources.contract import Ending
from connectors.sources.salesforce.selection import ID, Selection
from mappings.spec.source import SalesforceSource


@dataclass(slots=True)
class Progress:
    """What one reading has given so far. `latest`: no cursor goes beyond it, as what changed later was not looked for.

    Stamps are moments as SOQL writes them, with milliseconds, so that they sort as texts; "" for none yet.
    """

    id_at: int | None
    stamp_at: int | None
    digest: str
    before: str = ""
    latest: str = ""
    count: int = 0
    last_id: str = ""
    last_stamp: str = ""
    greatest: str = ""
    notices: list[str] = field(default_factory=list)
    is_short: bool = False

    def note(self, texts: Sequence[str]) -> None:
        """Note a record as given."""
        self.count += 1
        if self.id_at is not None:
            self.last_id = texts[self.id_at]
        if self.stamp_at is not None:
            self.last_stamp = stamp(texts[self.stamp_at])
            self.greatest = max(self.greatest, self.last_stamp)

    def ending(self) -> Ending:
        """Return how the reading ended: its cursor is the greatest stamp given, but none after the reading began."""
        seen = min(self.greatest, self.latest or self.greatest)
        reached = max(seen, self.before)
        return Ending(f"{reached} {self.digest}" if reached else "", tuple(self.notices), self.is_short)


def progress_of(spec: SalesforceSource, selection: Selection, address: str, cursor: str) -> Progress:
    """Return the progress of a reading that has yet to begin, of the org at `address`; it goes on from `cursor` if that fits."""
    by = spec.incremental.by if spec.incremental else ""
    digest = _digest_of(spec, selection, address)
    return Progress(selection.at(ID), selection.at(by) if by else None, digest, _stamp_in(cursor, digest))


def _digest_of(spec: SalesforceSource, selection: Selection, address: str) -> str:
    """Return what a cursor is good for: the same org, the same records, and the same columns of them."""
    tests = [[test.field, test.op, *test.value] for test in spec.where]
    by = spec.incremental.by if spec.incremental else ""
    asked = [address, spec.place, by, tests, sorted(column.selected for column in selection.columns)]
    return blake2b(json.dumps(asked).encode(), digest_size=8).hexdigest()


def _stamp_in(cursor: str, digest: str) -> str:
    """Return the stamp of a cursor, "" if it is none of ours or was made for other columns or records."""
    reached, _, made_for = cursor.partition(" ")
    try:
        datetime.fromisoformat(reached)
    except ValueError:
        return ""
    return reached if made_for == digest else ""


def stamp(cell: str) -> str:
    """Return a moment's cell with its milliseconds."""
    return f"{cell[:-1]}.000Z" if len(cell) == 20 else cell


def earlier(reached: str, by: timedelta) -> str:
    """Return a stamp so much earlier."""
    return written(datetime.fromisoformat(reached) - by)


def written(moment: datetime) -> str:
    """Return a moment as a stamp."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"
