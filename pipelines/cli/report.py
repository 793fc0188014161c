"""`eventsync report`: where a feed stands, on one page for the partner's editor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, OneFeed

if IS_WORKING:
    from pydantic_core import PydanticCustomError

    from mappings.errors import ConfigError
    from mappings.measures import parse_duration
    from mappings.refusals import REASON_TEXTS
    from pipelines.cli.diff import payload_diff, shown
    from pipelines.cli.output.console import Output, Progress
    from pipelines.cli.output.partner_page import Change, Line, Page, Point, Room, Section, SectionName, write_page
    from pipelines.cli.state_reader import StateReader, open_state
    from pipelines.clock import now
    from pipelines.settings import current_settings
    from state.enums import DriftKind, EntryState, ProblemKind, Waiting
    from state.ledger.standing import FeedScope, OtherEntry, RowRecord
    from state.queries import LedgerQueries, ProblemRecord, RowFilter


def report(
    feed: OneFeed,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the page to FILE.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Mark what is new since a day (2026-11-01) or an age (7d); else since the last read."),
    ] = None,
    link: Annotated[
        str | None, typer.Option(metavar="URL", help="Where an event can be seen, with {id}: https://events.example/e/{id}.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show the partner's editor what is online, what is not and why, and what to mend.

    For example:

        # How it stands
        eventsync report lisbon-agenda
        # A page to send to the partner
        eventsync report lisbon-agenda --html lisbon-agenda.html
        # For the weekly mail, with links
        eventsync report lisbon-agenda --html week.html --since 7d --link 'https://events.example/e/{id}'

    The page is one file without scripts: it loads nothing, can be printed, and is read well by a screen reader. It
    says what the last run has left, and reads no source. The lists as tables: `eventsync rows FEED --csv FILE`. Exit code 0.
    """
    settings, output, made_at = current_settings(), Output(json=as_json), now()
    link, chosen = _link(link), _since(since, made_at)
    with open_state(settings) as reader, output.progress("looking through rows") as bar:
        name = reader.feed_name(feed)
        page = _page(reader, name, chosen, link, made_at, bar)
    size = 0 if html is None else write_page(page, html)
    output.document(_document(page, html, size))
    if page.read_at is None:
        output.note(f"{name} was not read yet")
    rows = [(section.heading.title, section.total, section.new or "") for section in page.sections]
    output.table(f"{name}: what became of its rows", _COLUMNS, rows)
    output.note(f"{html}: {size / 1_000:,.0f} kB" if html else "--html FILE writes the page for the partner's editor")
    return 0


class SectionCounts(TypedDict):
    """How many rows belong to a section of the page, how many of them are new, how many are shown."""

    rows: int
    new: int
    shown: int


class Report(TypedDict):
    """The page for a partner's editor: where it was written (`html`), as of which read, and what is on it."""

    feed: str
    service: str
    made_at: datetime
    read_at: datetime | None
    is_whole: bool
    rows_read: int | None
    since: datetime | None
    stopped_by: Sequence[str]
    sections: Mapping[SectionName, SectionCounts]
    html: Path | None
    bytes: int | None


_COLUMNS = ("what", "rows", "new")
_LINK = re.compile(r"https?://[^\s\"'<>]*\{id\}[^\s\"'<>]*", re.ASCII)
_LONGEST = 300
"""Characters of one text; an editor recognises a cell by its beginning."""
_NOT_ACCEPTED = "The service did not accept it."
_FIELDS = {
    "startAt": "start",
    "endAt": "end",
    "channelId": "channel",
    "classifications": "kind of event",
    "coverImage": "cover image",
    "timezone": "time zone",
}
if IS_WORKING:
    _DRIFT_TEXTS: Mapping[DriftKind | None, str] = {
        DriftKind.CANCELLED: "Called off in your file; it is removed by hand.",
        DriftKind.TO_PUBLISH: "It went out as a draft; your file says that it may be published now.",
        DriftKind.RETURNED: "It was removed by hand, and is in your file again. We decide whether it goes online.",
    }
    _PROBLEMS = {
        SectionName.MEND: ProblemKind.REJECTED,
        SectionName.HELD: ProblemKind.HELD,
        SectionName.LOOK: ProblemKind.WARNING,
    }
    _ENTRIES = {
        SectionName.REFUSED: (RowFilter(waiting=Waiting.REFUSED),),
        SectionName.CHANGED: (RowFilter(waiting=Waiting.DRIFT),),
        SectionName.GONE: (RowFilter(waiting=Waiting.VANISHED),),
        SectionName.EARLIER: (RowFilter(waiting=Waiting.EARLIER),),
        SectionName.UNDER_WAY: (
            RowFilter(states=frozenset({EntryState.PENDING})),
            *(RowFilter(waiting=one) for one in (Waiting.BLOCKED, Waiting.UNCERTAIN, Waiting.CONFLICT, Waiting.UNCONFIRMED)),
        ),
        SectionName.ONLINE: (RowFilter(states=frozenset({EntryState.DELIVERED}), is_kept=True),),
    }


def _page(reader: StateReader, feed: str, since: datetime | None, link: str, made_at: datetime, bar: Progress) -> Page:
    book = reader.book(feed)
    status = next((one for one in reader.statuses(feed) if one.book == book), None)
    read = status.last_read if status else None
    since = since or (read.started_at if read else None)
    sections = tuple(map(Section, SectionName))
    if reader.books is not None and status is not None:
        rows = _Rows(reader.books, status.book, since, link, bar)
        room = Room()
        for section in sections:
            room.fill(section, rows.lines(section.name))
    return Page(
        feed=feed,
        service="" if status is None else status.book.destination.partition("#")[0],
        made_at=made_at,
        read_at=read.started_at if read else None,
        is_whole=bool(read and read.stage_report and read.stage_report.is_whole),
        since=since,
        sections=sections,
        rows_read=read.read.read if read and read.read else None,
        brakes=() if status is None or status.gate.is_open else status.gate.brakes,
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a feed as lines for its editor, who knows their own file and nothing of ours.

    `since`: what came later is new, None: nothing is; `link`: where an event is seen, with `{id}`, or "".
    """

    books: LedgerQueries
    book: FeedScope
    since: datetime | None
    link: str
    bar: Progress

    def lines(self, name: SectionName) -> Iterator[Line]:
        """Yield the lines of a section, however many there are."""
        if name in _PROBLEMS:
            yield from self._problems(_PROBLEMS[name])
        for which in _ENTRIES.get(name, ()):
            for record in self.books.every_row(self.book, which):
                self.bar.advance()
                yield self._entry(record, name)

    def _problems(self, kind: ProblemKind) -> Iterator[Line]:
        after = 0
        while page := self.books.problems(self.book, kind, after=after):
            keys = [one.row_key for one in page]
            # An earlier version of a row that cannot be used may be online; its editor should know that.
            online = {} if kind is ProblemKind.WARNING else self.books.event_ids(self.book, keys)
            candidates = self.books.candidates(self.book, keys) if kind is ProblemKind.HELD else {}
            met = self.books.first_met(page)
            self.bar.advance(len(page))
            for record in page:
                yield self._problem(record, met[record.problem_id], online.get(record.row_key), candidates.get(record.row_key))
            after = page[-1].problem_id

    def _problem(self, record: ProblemRecord, met: datetime, event_id: int | None, candidate: OtherEntry | None) -> Line:
        points = tuple(
            Point(REASON_TEXTS[one.code], text_of(one.column or _plain(one.field)), text_of(one.found), text_of(one.hint))
            for one in record.reasons
        )
        if candidate is not None:
            points = (Point(f"It looks like the event with the identifier {text_of(str(candidate))}."),)
        return Line(
            at=text_of(record.origin),
            name=text_of(f"identifier {record.row_key}") if record.row_key else "without an identifier",
            is_new=self._is_new(met),
            event_id=event_id,
            link=self._link(event_id),
            points=points,
            cells=tuple((text_of(name), text_of(cell)) for name, cell in record.cells.items() if cell),
            note="" if event_id is None else "An earlier version of this row is online, and stays as it is.",
        )

    def _entry(self, record: RowRecord, section: SectionName) -> Line:
        event = record.event
        zone, when = event.get("timezone"), " ".join(str(event.get("startAt", ""))[:16].split("T"))
        is_changed = section is SectionName.CHANGED
        since = {SectionName.GONE: record.vanished_at, SectionName.CHANGED: None, SectionName.EARLIER: None}
        changes = _changes(record) if is_changed and record.drift_kind not in _DRIFT_TEXTS else ()
        text = "" if changes else _text(record, section)
        where = _plain(record.answer.field) if section is SectionName.REFUSED and record.answer else ""
        return Line(
            at=text_of(record.origin),
            name=text_of(str(event.get("title", "")) or record.row_key),
            when=text_of(f"{when} ({zone})" if zone and when else when),
            is_new=self._is_new(since.get(section, record.created_at)),
            event_id=record.event_id,
            link=self._link(record.event_id),
            points=(Point(text, where),) if text else (),
            changes=changes,
        )

    def _is_new(self, at: datetime | None) -> bool:
        return self.since is not None and at is not None and at >= self.since

    def _link(self, event_id: int | None) -> str:
        return "" if event_id is None else self.link.replace("{id}", str(event_id))


def _changes(record: RowRecord) -> tuple[Change, ...]:
    fields = (one for one in payload_diff(record.shown, record.drift_body or record.shown) if one.is_changed)
    return tuple(Change(_plain(one.path), text_of(shown(one.delivered)), text_of(shown(one.now))) for one in fields)


def _text(record: RowRecord, section: SectionName) -> str:  # noqa: PLR0911  # one arm per section
    """Return what the editor should know of an entry, "" if nothing."""
    match section:
        case SectionName.CHANGED:
            return _DRIFT_TEXTS.get(record.drift_kind, "Its cover image is another one.")
        case SectionName.GONE:
            since = "" if record.vanished_at is None else f" since the read of {record.vanished_at:%Y-%m-%d}"
            return f"{'Left out of what is put online' if record.vanished_by else 'Not in your file'}{since}."
        case SectionName.EARLIER:
            return f"Earlier versions that are still online: event {', '.join(map(str, record.earlier_event_ids))}."
        case SectionName.REFUSED:
            message = record.answer and (record.answer.issue or record.answer.message)
            return f"The service says: {text_of(message)}" if message else _NOT_ACCEPTED
        case SectionName.ONLINE:
            return "As a draft: one of us has to publish it." if record.event.get("status") == "draft" else ""
        case _ if record.state is EntryState.PENDING:
            return "It waits to be sent."
        case _ if record.state is EntryState.BLOCKED:
            return "Its channel cannot be used by us at present. Nothing for you to do."
        case _:
            return "It was sent, and we are finding out whether it has arrived. Nothing for you to do."


def text_of(text: str) -> str:
    """Return a partner's text, cut to the length that a page shows."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _plain(path: str) -> str:
    """Return a field of the payload in words, `approxLocation.city` as `approx location, city`."""
    first, dot, rest = path.partition(".")
    words = _FIELDS.get(first) or "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in first)
    return f"{words}, {rest.replace('.', ', ')}" if dot else words


def _since(text: str | None, made_at: datetime) -> datetime | None:
    if text is None:
        return None
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            return datetime.fromisoformat(text).replace(tzinfo=UTC)
        return made_at - abs(parse_duration(text))
    except (PydanticCustomError, ValueError, OverflowError) as error:
        raise ConfigError(f"--since {text}: neither a day nor an age", hint="for example 2026-11-01 or 7d") from error


def _link(text: str | None) -> str:
    if text is None:
        return ""
    if not _LINK.fullmatch(text):
        raise ConfigError(f"--link {text}: no web address with {{id}} in it", hint="for example https://events.example/e/{id}")
    return text


def _document(page: Page, html: Path | None, size: int) -> Report:
    return Report(
        feed=page.feed,
        service=page.service,
        made_at=page.made_at,
        read_at=page.read_at,
        is_whole=page.is_whole,
        rows_read=page.rows_read,
        since=page.since,
        stopped_by=page.brakes,
        sections={one.name: SectionCounts(rows=one.total, new=one.new, shown=len(one.lines)) for one in page.sections},
        html=html,
        bytes=size,
    )
