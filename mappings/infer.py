"""The door of `eventsync init`: a sample of rows becomes the text of a first mapping file, with how sure each guess is. Pure.

How the sample is read, and how the text is checked and written, is the command's; examples are `infer_examples`'s.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mappings.infer_calendar import CalendarDraft
from mappings.infer_columns import ColumnSeen, see_columns
from mappings.infer_file import FileDraft
from mappings.infer_keys import guess_key
from mappings.infer_moments import Guessed, Moments
from mappings.infer_roles import guess_roles
from mappings.infer_words import Role
from mappings.infer_zones import UNKNOWN, guess_zone

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of a source as they were read. `source` are the lines of the mapping's `source` block; `title` what people call it.

    `columns` stand in the source's order; `guesses` are what was guessed in order to read it; `joined` what stands
    between the items of columns whose lists were joined.
    """

    title: str
    source: tuple[str, ...]
    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, str]]
    guesses: tuple[Guessed, ...] = ()
    joined: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_calendar(self) -> bool:
        """Whether the columns are those of RFC 5545, which says what each means."""
        return any(line.startswith("kind: ics") for line in self.source)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the author has said: the feed's name; the IANA zone and the order of day and month ("" where they have not)."""

    feed: str
    zone: str = ""
    order: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A mapping file's text, and every guess in it."""

    text: str
    guesses: tuple[Guessed, ...]


def draft_feed(sample: Sample, wishes: Wishes) -> Draft:
    """Write a first mapping for the sample, without examples."""
    columns = see_columns(sample.columns, sample.rows, sample.joined)
    roles = guess_roles(columns)
    key = guess_key(columns, {role: guess.column for role, guess in roles.items()})
    moments = Moments(roles, columns, wishes.order)
    draft = CalendarDraft if sample.is_calendar else FileDraft
    clocks = UNKNOWN if wishes.zone else guess_zone(columns, roles)
    file = draft(wishes.feed, sample.title, sample.source, key, roles, moments, wishes.zone, clocks)
    text = file.text()
    aside = () if sample.is_calendar else tuple(_left_aside(columns, file))
    return Draft(text, (*sample.guesses, *_overwritten(columns), *file.guesses, *aside))


def _overwritten(columns: Sequence[ColumnSeen]) -> Iterator[Guessed]:
    """Yield a doubt for each name in the header that is one of its own column's values: somebody may have typed over it."""
    for column in columns:
        times = column.counts[column.name]
        if times:
            why = f"the column's name is also its value in {times:,} rows: typed over? Then say header: {{row: 1, names: [...]}}"
            yield Guessed("source.header", column.name, "unsure", why)


def _left_aside(columns: Sequence[ColumnSeen], file: FileDraft) -> Iterator[Guessed]:
    """Yield the columns with something in them that the draft does not read, so that none is forgotten unseen."""
    told = {name for guess in file.guesses for name in (guess.column, *guess.column.split(", "))}
    silent = {Role.STATUS, Role.ZONE, *([Role.PRICE] if Role.URL in file.roles else [])}
    used = told | {guess.column.name for role, guess in file.roles.items() if role in silent}
    names = [column.name for column in columns if column.filled and column.name not in used]
    if names:
        why = "the draft does not read these columns: map those that matter"
        yield Guessed("left aside", ", ".join(names), "unsure", why)


def feed_name(title: str) -> str:
    """Return a feed's name made of a file's: lower-case words joined by `-`, at most 40 characters."""
    plain = unicodedata.normalize("NFKD", title.replace("ł", "l")).encode("ascii", "ignore").decode().casefold()
    words = _NOT_IN_NAMES.sub("-", plain).strip("-")[:40].strip("-")
    return words if words[:1].isalpha() else f"feed-{words}".strip("-")
