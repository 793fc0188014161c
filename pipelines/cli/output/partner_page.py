"""The page for a partner's editor, as values: its sections, their lines, and how many of them one page takes.

How a row is told there is `lines`', how the page is drawn `drawing`'s.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import islice
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mappings.delivery import Answer
from mappings.refusals import REASON_TEXTS, Reason
from mappings.row_key import RowKey
from pipelines.cli.output.files import written_whole
from pipelines.cli.payload_diff import payload_diff, shown
from pipelines.control_characters import replaced
from state.enums import DriftKind, EntryState
from state.ledger.row_record import OtherEntry, RowRecord
from state.views.views import ProblemRecord

MOST_LINES = 10_000
"""Lines of one section; a page with more is no help to anybody."""
MOST_TEXT = 12_000_000
"""Characters of partners' text on one page, about as many bytes: a browser opens it in seconds, and a mail still takes it."""
_MOST_VALUES = 25


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


@dataclass(frozen=True, slots=True)
class Heading:
    """The words of a section. `rows_state`: how `eventsync rows --state` calls its rows, "" where it has several words."""

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
_UNUSUAL = "something about it is unusual, and we are looking into it"
_STOPPED = {
    "rejected": "too many of its rows cannot be used. Mend them, or ask us to send the others",
    "shrink": "most of the rows that were there before are missing. Is the file complete?",
    "left_out": "many events that are online are now left out. Has a word in one of the columns changed?",
    "new": "far more rows are new than usual. Have their identifiers changed?",
    "copies": "too many rows look like events that are known under another identifier. Have the identifiers changed?",
    "scope": "these events are online already under another name of this list. We are looking into it",
    "keys": "what identifies a row has changed on our side. We are looking into it",
}
"""What stops a read, by brake, in words for who can do something about it."""


@dataclass(frozen=True, slots=True)
class Point:
    """One thing about a row: the cell or field it is about, what was found there, what is wrong, and what would help."""

    says: str
    where: str = ""
    found: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A field that differs."""

    where: str
    online: str
    now: str


@dataclass(frozen=True, slots=True)
class Line:
    """One row on the page. `at`: a place that its editor can open; `link`: where its event is seen, "" if that is not known;
    `note`: what is no problem, and good to know all the same.
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

    @property
    def length(self) -> int:
        """About how many characters it takes on the page."""
        told = (len(point.says) + len(point.where) + len(point.found) + len(point.hint) for point in self.points)
        differ = (len(change.where) + len(change.online) + len(change.now) for change in self.changes)
        cells = (len(name) + len(text) for name, text in self.cells)
        return len(self.at) + len(self.name) + sum(told) + sum(differ) + sum(cells)


_OF_PROBLEMS = frozenset({SectionName.MEND, SectionName.REFUSED, SectionName.LOOK})


@dataclass(slots=True)
class Section:
    """The rows of one kind: all are counted, the first are shown. `values`: the same problem with the same value, how often."""

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
        if self.name not in _OF_PROBLEMS:
            return ()
        return [(value, count) for value, count in self.values.most_common(_MOST_VALUES) if count > 1]


@dataclass(slots=True)
class Room:
    """How much more text the page takes; without room for their cells, lines do without them, then there are no more."""

    left: int = MOST_TEXT

    def fill(self, section: Section, lines: Iterable[Line]) -> Section:
        """Count all lines of a section and put the first ones on the page."""
        for line in lines:
            section.total += 1
            section.new += line.is_new
            section.values.update((point.where, point.found, point.says) for point in line.points)
            if self.left > 0 and len(section.lines) < MOST_LINES:
                self.left -= line.length
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
        because = [_STOPPED.get(brake, _UNUSUAL) for brake in self.brakes]
        return f"Nothing new was put online after the last read: {'; '.join(dict.fromkeys(because))}."

    @property
    def shown(self) -> Sequence[Section]:
        """The sections that have rows, and always what is to be mended and what is online."""
        always = {SectionName.MEND, SectionName.ONLINE}
        return [section for section in self.sections if section.total or section.name in always]


_LONGEST = 300
"""Characters of one text; an editor recognises a cell by its beginning."""
_PLAIN = {
    "startAt": "start",
    "endAt": "end",
    "channelId": "channel",
    "classifications": "kind of event",
    "coverImage": "cover image",
    "timezone": "time zone",
}


@dataclass(frozen=True, slots=True)
class Teller:
    """Tells rows. `since`: what came later is new, None: nothing is; `link`: where an event is seen, with `{id}`, or ""."""

    since: datetime | None = None
    link: str = ""

    def problem(
        self, record: ProblemRecord, first_met: datetime, online: Mapping[RowKey, int], like: OtherEntry | None = None
    ) -> Line:
        """Return the line of a row that could not be used, is held back, or is used with a warning.

        `online`: events of such rows; `like`: the entry that a held row resembles.
        """
        event_id = online.get(record.row_key)
        points = tuple(_point(reason) for reason in record.reasons)
        if like is not None:
            points = (Point(f"It looks like the event with the identifier {text_of(str(like))}."),)
        cells = tuple((text_of(name), text_of(cell)) for name, cell in record.cells.items() if cell)
        return Line(
            at=text_of(record.origin),
            name=text_of(f"identifier {record.row_key}") if record.row_key else "without an identifier",
            is_new=self._is_new(first_met),
            event_id=event_id,
            link=self._link(event_id),
            points=points,
            cells=cells,
            note="" if event_id is None else "An earlier version of this row is online, and stays as it is.",
        )

    def entry(self, record: RowRecord) -> Line:
        """Tell of an event that is online, waits, or was not accepted."""
        points: tuple[Point, ...] = ()
        if record.state is EntryState.DELIVERED:
            points = (Point("As a draft: one of us has to publish it."),) if _said(record)["status"] == "draft" else ()
        else:
            points = _standing(record)
        return self._line(record, points, is_new=self._is_new(record.created_at))

    def drift(self, record: RowRecord) -> Line:
        """Tell what the source says now in place of what is online."""
        if record.drift_kind is DriftKind.CANCELLED:
            return self._line(record, (Point("Called off in your file; it is removed by hand."),))
        if record.drift_kind is DriftKind.TO_PUBLISH:
            return self._line(record, (Point("It went out as a draft; your file says that it may be published now."),))
        if record.drift_kind is DriftKind.RETURNED:
            return self._line(
                record, (Point("It was removed by hand, and is in your file again. We decide whether it goes online."),)
            )
        fields = [one for one in payload_diff(record.shown, record.drift_body or record.shown) if one.is_changed]
        changes = tuple(Change(_plain(one.path), text_of(shown(one.delivered)), text_of(shown(one.now))) for one in fields)
        return self._line(record, () if changes else (Point("Its cover image is another one."),), changes)

    def earlier(self, record: RowRecord) -> Line:
        """Return the line of an event whose earlier versions have to be removed."""
        events = ", ".join(map(str, record.earlier_event_ids))
        return self._line(record, (Point(f"Earlier versions that are still online: event {events}."),))

    def vanished(self, record: RowRecord) -> Line:
        """Tell that the source has the row no longer, or that a rule leaves it out."""
        since = "" if record.vanished_at is None else f" since the read of {record.vanished_at:%Y-%m-%d}"
        is_new = record.vanished_at is not None and self._is_new(record.vanished_at)
        said = "Left out of what is put online" if record.vanished_by else "Not in your file"
        return self._line(record, (Point(f"{said}{since}."),), is_new=is_new)

    def _line(
        self, record: RowRecord, points: tuple[Point, ...], changes: tuple[Change, ...] = (), *, is_new: bool = False
    ) -> Line:
        said = _said(record)
        return Line(
            at=text_of(record.origin),
            name=text_of(said["title"] or record.row_key),
            when=said["when"],
            is_new=is_new,
            event_id=record.event_id,
            link=self._link(record.event_id),
            points=points,
            changes=changes,
        )

    def _is_new(self, at: datetime) -> bool:
        return self.since is not None and at >= self.since

    def _link(self, event_id: int | None) -> str:
        return "" if event_id is None else self.link.replace("{id}", str(event_id))


def text_of(text: str) -> str:
    """Return a partner's text, cut to the length that a page shows."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _point(reason: Reason) -> Point:
    where = reason.column or _plain(reason.field)
    return Point(REASON_TEXTS[reason.code], text_of(where), text_of(reason.found), text_of(reason.hint))


def _standing(record: RowRecord) -> tuple[Point, ...]:
    match record.state:
        case EntryState.PENDING:
            return (Point("It waits to be sent."),)
        case EntryState.BLOCKED:
            return (Point("Its channel cannot be used by us at present. Nothing for you to do."),)
        case EntryState.REFUSED:
            return (_refusal(record.answer),)
        case _:
            return (Point("It was sent, and we are finding out whether it has arrived. Nothing for you to do."),)


def _refusal(answer: Answer | None) -> Point:
    if answer is None:
        return Point("The service did not accept it.")
    said = answer.issue or answer.message
    return Point(f"The service says: {text_of(said)}" if said else "The service did not accept it.", _plain(answer.field))


def _said(record: RowRecord) -> dict[str, str]:
    """Return what its payload says: title, when it starts, and whether it is a draft."""
    body = record.event
    zone = body.get("timezone")
    when = " ".join(str(body.get("startAt", ""))[:16].split("T"))
    return {
        "title": str(body.get("title", "")),
        "when": text_of(f"{when} ({zone})" if zone and when else when),
        "status": str(body.get("status", "")),
    }


def _plain(path: str) -> str:
    """Return a field of the payload in words, `approxLocation.city` as `approx location, city`."""
    first, dot, rest = path.partition(".")
    spelt = _PLAIN.get(first) or "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in first)
    return f"{spelt}, {rest.replace('.', ', ')}" if dot else spelt


_PAGES = Path(__file__).with_name("pages")
_FOLD = 100
"""Lines that are seen at once; the others are folded away, so many at a time."""


def write_page(page: Page, file: Path) -> int:
    """Write the page to a file, in place of an older one, which is there until then; return how many bytes it has.

    Raises:
        ConfigError: the file cannot be written.
    """
    style = (_PAGES / "report.css").read_text("utf-8")
    environment = Environment(
        loader=FileSystemLoader(_PAGES),
        autoescape=True,
        finalize=_harmless,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"moment": _moment, "number": "{:,}".format, "folds": _folds}
    template = environment.get_template("report.html.jinja")
    with written_whole(file, "--html") as beside, beside.open("wb") as stream:
        template.stream(page=page, style=style, style_digest=_digest(style)).dump(stream, encoding="utf-8")
        return stream.tell()


def _harmless(value: object) -> object:
    """Replace the harmful characters of any text that is put on the page; markup was made from such text."""
    return replaced(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _digest(style: str) -> str:
    """Return what lets this style in, and no other (Content Security Policy Level 3, `hash-source`)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _folds(lines: Sequence[Line]) -> Iterator[tuple[int, int, list[Line]]]:
    """Yield lines so many at a time, with the numbers of the first and the last."""
    rest, first = iter(lines), 1
    while fold := list(islice(rest, _FOLD)):
        yield first, first + len(fold) - 1, fold
        first += len(fold)
