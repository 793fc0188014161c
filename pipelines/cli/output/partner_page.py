"""The page for a partner's editor: its sections and their lines as values, rendered by one template.

Every text of a partner is escaped by jinja2; control characters are replaced.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pipelines.cli.output.console import written_whole
from pipelines.control_characters import replaced

MOST_LINES = 10_000
"""Lines of one section."""
MOST_TEXT = 12_000_000
"""Characters of partners' text on one page, about as many bytes: a browser opens it in seconds, and a mail still takes it."""
_MOST_VALUES = 25
_FOLD = 100
"""Lines in one table; all tables but the first are folded away."""
_PAGES = Path(__file__).with_name("pages")


class SectionName(StrEnum):
    """What a section is about, in the order of the page: first what the editor can do something about."""

    MEND = "mend"
    HELD = "held"
    REFUSED = "refused"
    CHANGED = "changed"
    GONE = "gone"
    EARLIER = "earlier"
    LOOK = "look"
    UNDER_WAY = "under-way"
    ONLINE = "online"


class Heading(NamedTuple):
    """The words of a section. `rows_state`: what `eventsync rows --state` calls its rows, "" where it has several words."""

    title: str
    short: str
    told: str
    rows_state: str


HEADINGS: dict[SectionName, Heading] = {
    SectionName.MEND: Heading(
        "Rows to mend",
        "to mend",
        "These rows could not be used. Mend the cells that are named, in your file or sheet: the next read takes the rows up.",
        "rejected",
    ),
    SectionName.HELD: Heading(
        "Rows held back as copies",
        "held back",
        "Each of these rows looks like an event that we know under another identifier, so it was not put online a second time."
        " Give the event its first identifier again; or tell us that both take place.",
        "held",
    ),
    SectionName.REFUSED: Heading(
        "Events that were not accepted",
        "not accepted",
        "The publishing service has not accepted these events. Mend what it names: the next read sends them again.",
        "refused",
    ),
    SectionName.CHANGED: Heading(
        "Changed since they went online",
        "changed since",
        "Your file says something else than what is online. Somebody of ours changes it by hand; the service has no other way.",
        "drift",
    ),
    SectionName.GONE: Heading(
        "Online, and no longer in your file",
        "gone from the file",
        "These events were put online, and their rows are no longer there. If one is called off, tell us: it is removed by hand.",
        "vanished",
    ),
    SectionName.EARLIER: Heading(
        "Replaced by a newer version",
        "replaced",
        "These events were sent again as your file has them now. The earlier versions are still online: we remove them by hand.",
        "earlier",
    ),
    SectionName.LOOK: Heading(
        "Used, with something to look at",
        "to look at",
        "These rows were used. Something about them may not be what you meant.",
        "warning",
    ),
    SectionName.UNDER_WAY: Heading(
        "Under way",
        "under way",
        "Nothing for you to do: these events wait to be sent, or we are finding out whether they have arrived.",
        "",
    ),
    SectionName.ONLINE: Heading("Online", "online", "These events are with the publishing service.", "delivered"),
}
_STOPPED = {
    "rejected": "too many of its rows cannot be used. Mend them, or ask us to send the others",
    "shrink": "most of the rows that were there before are missing. Is the file complete?",
    "left_out": "many events that are online are now left out. Has a word in one of the columns changed?",
    "new": "far more rows are new than usual. Have their identifiers changed?",
    "copies": "too many rows look like events that are known under another identifier. Have the identifiers changed?",
    "scope": "these events are online already under another name of this list. We are looking into it",
    "keys": "what identifies a row has changed on our side. We are looking into it",
}
"""Why nothing new goes online, by brake, in words for who can do something about it."""


class Point(NamedTuple):
    """One thing about a row: what is wrong, the cell or field it is about, what was found there, and what would help."""

    says: str
    where: str = ""
    found: str = ""
    hint: str = ""


class Change(NamedTuple):
    """A field that differs."""

    where: str
    online: str
    now: str


class Line(NamedTuple):
    """One row on the page. `at`: a place that its editor can open; `link`: where its event is seen, "" if that is not known;
    `note`: what is no problem, and good to know.
    """

    at: str
    name: str
    when: str = ""
    is_new: bool = False
    event_id: int | None = None
    link: str = ""
    points: tuple[Point, ...] = ()
    changes: tuple[Change, ...] = ()
    cells: tuple[tuple[str, str], ...] = ()
    note: str = ""


@dataclass(slots=True)
class Section:
    """The rows of one kind: all are counted, the first are shown. `values`: how often each problem came with each value."""

    name: SectionName
    lines: list[Line] = field(default_factory=list)
    total: int = 0
    new: int = 0
    values: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    @property
    def heading(self) -> Heading:
        """Its words."""
        return HEADINGS[self.name]

    @property
    def left_out(self) -> int:
        """How many rows are counted and not shown."""
        return self.total - len(self.lines)

    @property
    def often(self) -> Sequence[tuple[tuple[str, str, str], int]]:
        """The problems that come more than once: where, what was found, what is wrong; and how often."""
        if self.name not in {SectionName.MEND, SectionName.REFUSED, SectionName.LOOK}:
            return ()
        return [(value, count) for value, count in self.values.most_common(_MOST_VALUES) if count > 1]

    @property
    def folds(self) -> Iterator[tuple[int, int, Sequence[Line]]]:
        """Its lines by the hundred, with the numbers of the first and the last."""
        for start in range(0, len(self.lines), _FOLD):
            fold = self.lines[start : start + _FOLD]
            yield start + 1, start + len(fold), fold


@dataclass(slots=True)
class Room:
    """How much more text the page takes."""

    left: int = MOST_TEXT

    def fill(self, section: Section, lines: Iterable[Line]) -> Section:
        """Count all lines of a section and put the first ones on the page."""
        for line in lines:
            section.total += 1
            section.new += line.is_new
            section.values.update((point.where, point.found, point.says) for point in line.points)
            if self.left > 0 and len(section.lines) < MOST_LINES:
                self.left -= len(str((line.at, line.name, line.points, line.changes, line.cells)))
                section.lines.append(line)
        return section


@dataclass(frozen=True, slots=True)
class Page:
    """All that is on it. `read_at`: when the source was read last, None if it never was; `is_whole`: all of it was."""

    feed: str
    service: str
    made_at: datetime
    read_at: datetime | None
    is_whole: bool
    since: datetime | None
    sections: tuple[Section, ...]
    rows_read: int | None = None
    brakes: tuple[str, ...] = ()

    @property
    def stopped(self) -> str:
        """Why nothing new goes online at present, "" where nothing holds it up."""
        if not self.brakes:
            return ""
        unusual = "something about it is unusual, and we are looking into it"
        reasons = dict.fromkeys(_STOPPED.get(brake, unusual) for brake in self.brakes)
        return f"Nothing new was put online after the last read: {'; '.join(reasons)}."

    @property
    def shown(self) -> Sequence[Section]:
        """The sections that have rows, and always what is to be mended and what is online."""
        always = {SectionName.MEND, SectionName.ONLINE}
        return [section for section in self.sections if section.total or section.name in always]


def write_page(page: Page, file: Path) -> int:
    """Write the page to a file, in place of an older one, which is there until then; return how many bytes it has.

    Raises:
        ConfigError: the file cannot be written.
    """
    style = (_PAGES / "report.css").read_text("utf-8")
    # Content Security Policy Level 3, `hash-source`: this style and no other
    digest = "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = Environment(
        loader=FileSystemLoader(_PAGES),
        autoescape=True,
        finalize=_harmless,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"moment": "{:%Y-%m-%d %H:%M} UTC".format, "number": "{:,}".format}
    template = environment.get_template("report.html.jinja")
    with written_whole(file, "--html") as beside, beside.open("wb") as stream:
        template.stream(page=page, style=style, style_digest=digest).dump(stream, encoding="utf-8")
        return stream.tell()


def _harmless(value: object) -> object:
    """Replace the harmful characters of any text that is put on the page; markup was made from such text."""
    return replaced(value) if isinstance(value, str) and not isinstance(value, Markup) else value
