"""`eventsync report`: where a feed stands, for the partner's editor. What stands on the page is `reporting.page`'s."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, OneFeed

if IS_WORKING:
    from pydantic_core import PydanticCustomError

    from mappings.errors import ConfigError
    from mappings.measures import parse_duration
    from pipelines.cli.output.console import Output, Progress
    from pipelines.cli.output.partner_page import Line, Page, Room, Section, SectionName, Teller, write_page
    from pipelines.cli.state_reader import StateReader, open_state
    from pipelines.clock import now
    from pipelines.settings import current_settings
    from state.enums import EntryState, ProblemKind, Waiting
    from state.ledger.row_record import Book, RowRecord
    from state.views.books import Books
    from state.views.views import FeedStatus, RowFilter


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
    """Tell the partner's editor what is online, what is not and why, and what to mend.

    For example:

        # How it stands
        eventsync report lisbon-agenda
        # A page to send to the partner
        eventsync report lisbon-agenda --html lisbon-agenda.html
        # For the weekly mail, with links
        eventsync report lisbon-agenda --html week.html --since 7d --link 'https://events.example/e/{id}'

    The page is one file without scripts: it asks nobody for anything, can be printed, and is read well by a screen reader. It
    says what the last run has left, and reads no source. The lists as tables: `eventsync rows FEED --csv FILE`. Exit code 0.
    """
    # keeps `--help` fast

    return show_report(feed, html=html, since=since, link=link, as_json=as_json)


class SectionCounts(TypedDict):
    """How many rows a section of the page tells of, how many of them since the last one, how many are shown."""

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


if IS_WORKING:
    _UNDER_WAY = (Waiting.BLOCKED, Waiting.UNCERTAIN, Waiting.CONFLICT, Waiting.UNCONFIRMED)


def show_report(feed: str, *, html: Path | None, since: str | None, link: str | None, as_json: bool) -> int:
    """Tell how a feed stands, and write the page for its editor to `html`; return 0.

    Raises:
        ConfigError: there is no such feed, `since` or `link` cannot be understood, or the file cannot be written.
    """
    settings, output, made_at = current_settings(), Output(json=as_json), now()
    link, chosen = _link(link), _since(since, made_at)
    with open_state(settings) as reader, output.progress("looking through rows") as bar:
        name = reader.feed_name(feed)
        status = _status(reader, name)
        page = _page(reader, name, status, Teller(chosen or _last_read(status), link), made_at, bar)
    size = 0 if html is None else write_page(page, html)
    output.document(_document(page, html, size))
    if page.read_at is None:
        output.note(f"{name} was not read yet")
    rows = [(section.heading.title, section.total, section.new or "") for section in page.sections]
    output.table(f"{name}: what became of its rows", _COLUMNS, rows)
    output.note(f"{html}: {size / 1_000:,.0f} kB" if html else "--html FILE writes the page for the partner's editor")
    return 0


def _status(reader: StateReader, feed: str) -> FeedStatus | None:
    book = reader.book(feed)
    return next((one for one in reader.statuses(feed) if one.book == book), None)


def _last_read(status: FeedStatus | None) -> datetime | None:
    return status.last_read.started_at if status and status.last_read else None


def _page(reader: StateReader, feed: str, status: FeedStatus | None, teller: Teller, made_at: datetime, bar: Progress) -> Page:
    sections: tuple[Section, ...] = tuple(map(Section, SectionName))
    if reader.books is not None and status is not None:
        room, rows = Room(), _Reader(reader.books, status.book, teller, bar)
        sections = tuple(room.fill(section, rows.lines(section.name)) for section in sections)
    read = status.last_read if status else None
    return Page(
        feed=feed,
        service="" if status is None else status.book.destination.partition("#")[0],
        made_at=made_at,
        read_at=read.started_at if read else None,
        is_whole=bool(read and read.stage_report and read.stage_report.is_whole),
        since=teller.since,
        sections=sections,
        rows_read=read.read.read if read and read.read else None,
        brakes=() if status is None or status.gate.is_open else status.gate.brakes,
    )


class _Reader:
    """Reads the rows of a section from the books, and tells them."""

    def __init__(self, books: Books, book: Book, teller: Teller, bar: Progress) -> None:
        self._books, self._book, self._teller, self._bar = books, book, teller, bar

    def lines(self, name: SectionName) -> Iterator[Line]:  # noqa: C901, PLR0911  # one arm per section
        """Yield the lines of a section, however many there are."""
        match name:
            case SectionName.MEND:
                return self._problems(ProblemKind.REJECTED)
            case SectionName.HELD:
                return self._problems(ProblemKind.HELD)
            case SectionName.LOOK:
                return self._problems(ProblemKind.WARNING)
            case SectionName.CHANGED:
                return self._waiting(self._teller.drift, Waiting.DRIFT)
            case SectionName.GONE:
                return self._waiting(self._teller.vanished, Waiting.VANISHED)
            case SectionName.EARLIER:
                return self._waiting(self._teller.earlier, Waiting.EARLIER)
            case SectionName.REFUSED:
                return self._waiting(self._teller.entry, Waiting.REFUSED)
            case SectionName.UNDER_WAY:
                pending = self._entries(RowFilter(states=frozenset({EntryState.PENDING})), self._teller.entry)
                return chain(pending, self._waiting(self._teller.entry, *_UNDER_WAY))
            case SectionName.ONLINE:
                return self._entries(RowFilter(states=frozenset({EntryState.DELIVERED}), is_kept=True), self._teller.entry)

    def _problems(self, kind: ProblemKind) -> Iterator[Line]:
        """An earlier version of a row that cannot be used may be online; its editor should know that."""
        after = 0
        while page := self._books.problems(self._book, kind, after=after):
            online = {} if kind is ProblemKind.WARNING else self._books.event_ids(self._book, [one.row_key for one in page])
            met = self._books.first_met(page)
            like = self._books.candidates(self._book, [one.row_key for one in page]) if kind is ProblemKind.HELD else {}
            self._bar.advance(len(page))
            yield from (self._teller.problem(record, met[record.problem_id], online, like.get(record.row_key)) for record in page)
            after = page[-1].problem_id

    def _waiting(self, tell: Callable[[RowRecord], Line], *kinds: Waiting) -> Iterator[Line]:
        return chain.from_iterable(self._entries(RowFilter(waiting=kind), tell) for kind in kinds)

    def _entries(self, which: RowFilter, tell: Callable[[RowRecord], Line]) -> Iterator[Line]:
        for record in self._books.every_row(self._book, which):
            self._bar.advance()
            yield tell(record)


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
