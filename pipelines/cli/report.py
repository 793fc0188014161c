"""`eventsync report`: writes one page about a feed for the partner's editor, in the feed's language.

Every text of a partner is escaped; control characters are replaced.
"""

from __future__ import annotations

import base64
import hashlib
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, OneFeed

if IS_WORKING:
    from pydantic_core import PydanticCustomError

    from mappings.errors import ConfigError
    from mappings.reasons import Reason
    from mappings.row_key import RowKey
    from mappings.sentences import Words
    from mappings.strict import parse_duration
    from pipelines.cli.diff import payload_diff, shown
    from pipelines.cli.output.console import Output, Progress, counts_line, shortened, written_whole
    from pipelines.cli.state_reader import StateReader, filter_of, open_state
    from pipelines.clock import now
    from pipelines.safe_output import replaced
    from state.enums import ProblemKind
    from state.ledger.standing import FeedScope, RowRecord
    from state.queries import LedgerQueries, ProblemRecord, RunRecord


def report(
    feed: OneFeed,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the page to FILE.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Mark what is new since a day (2026-11-01) or an age (7d); default: since the page in FILE, else the last read.",
        ),
    ] = None,
    link: Annotated[
        str | None, typer.Option(metavar="URL", help="Address of an event's page, with {id}: https://events.example/e/{id}.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show the partner's editor which rows are online, which are not and why, and what to correct.

    For example:

        # Only the counts
        eventsync report lisbon-agenda
        # A page to send to the partner
        eventsync report lisbon-agenda --html lisbon-agenda.html
        # For the weekly mail, with links
        eventsync report lisbon-agenda --html week.html --since 7d --link 'https://events.example/e/{id}'

    The page is in the feed's `language`. It is one file without scripts that loads nothing, can be printed, and works with a
    screen reader. It shows the state after the last run and reads no source. Written to the same FILE again, it marks what is
    new or changed since. `eventsync rows FEED --csv FILE` writes the lists as tables. Exit code 0.
    """
    output, made_at = Output(is_json=as_json), now()
    if link is not None and not _LINK.fullmatch(link):
        hint = "for example https://events.example/e/{id}"
        raise ConfigError(f"--link {link}: not a web address with {{id}} in it", hint=hint)
    chosen = _since(since, made_at) or (_made_before(html) if html else None)
    with open_state() as reader, output.progress("reading rows") as bar:
        words = Words(reader.language(reader.feed_name(feed)))
        page, sections = _page(reader, feed, words, chosen, link or "", made_at, bar)
    if html is not None:
        page["bytes"] = write_page(page, sections, html, words)
        page["html"] = html
    output.document(page)
    name = page["feed"]
    if page["read_at"] is None:
        output.note(f"no run has read the source of {name} yet")
    rows = (
        {"what": one.heading.title, "rows": one.total, "new": one.new or "", "changed": one.changed or ""} for one in sections
    )
    output.table(f"{name}: rows by section of the page", rows)
    if page["left_out"]:
        output.note(f"left out by rule: {counts_line(page['left_out'])}")
    kilobytes = (page["bytes"] or 0) / 1_000
    output.note(f"{html}: {kilobytes:,.0f} kB" if html else "--html FILE writes the page for the partner's editor")
    return 0


class SectionName(StrEnum):
    """The sections of the page, in its order: first those where the editor can act."""

    MEND = "mend"
    HELD = "held"
    REFUSED = "refused"
    CHANGED = "changed"
    GONE = "gone"
    LOOK = "look"
    LEFT_OUT = "left-out"
    UNDER_WAY = "under-way"
    DRAFTS = "drafts"
    ONLINE = "online"


class SectionCounts(TypedDict):
    """How many rows a section has, how many of them are new or changed, and how many are shown."""

    rows: int
    new: int
    changed: int
    shown: int


class Report(TypedDict):
    """The page for a partner's editor: the file (`html`), the read it shows, and its sections. `rows_read`: of the last full
    read; `left_out`: how many rows each rule left out of the last read or merged, by its label, if that was a full one.
    """

    feed: str
    service: str
    made_at: datetime
    read_at: datetime | None
    is_whole: bool
    rows_read: int | None
    since: datetime | None
    stopped_by: Sequence[str]
    sections: Mapping[SectionName, SectionCounts]
    left_out: Mapping[str, int]
    html: Path | None
    bytes: int | None


class Heading(NamedTuple):
    """The texts of a section. `states`: the values of `eventsync rows --state` whose rows it shows."""

    title: str
    short: str
    text: str
    states: Sequence[str]


_PAGES = Path(__file__).parent / "output" / "pages"
_WORDS: Mapping[str, Any] = tomllib.loads((_PAGES / "report.toml").read_text("utf-8"))
HEADINGS = {SectionName(name): Heading(**words) for name, words in _WORDS["sections"].items()}
_NUMBER = "{number:number}"
_LINK = re.compile(r"https?://[^\s\"'<>]*\{id\}[^\s\"'<>]*", re.ASCII)
MOST_LINES = 10_000
"""Lines of a section that are shown."""
MOST_TEXT = 12_000_000
"""Characters of partners' text on one page, about as many bytes: a browser opens it in seconds, and it fits in a mail."""
_MOST_VALUES = 25


class Point(NamedTuple):
    """One problem of a row: the text, the cell or field it is about, and what to do."""

    says: str
    where: str = ""
    hint: str = ""


class FieldChange(NamedTuple):
    """A field whose value in the source differs from the one online."""

    where: str
    online: str
    now: str


class Line(NamedTuple):
    """One row on the page. `at`: its place in the partner's file; `link`: the event's page, "" if not known; `note`: information
    that is no problem.
    """

    at: str
    name: str
    when: str = ""
    is_new: bool = False
    is_changed: bool = False
    event_id: int | None = None
    link: str = ""
    points: tuple[Point, ...] = ()
    changes: tuple[FieldChange, ...] = ()
    cells: tuple[tuple[str, str], ...] = ()
    note: str = ""


@dataclass(slots=True)
class Section:
    """The rows of one kind: all are counted, the first are kept. `values`: how often each problem occurs in each column.

    `rules`: how many rows each rule leaves out; of these only the numbers are recorded.
    """

    name: SectionName
    lines: list[Line] = field(default_factory=list)
    total: int = 0
    new: int = 0
    changed: int = 0
    values: Counter[tuple[str, str]] = field(default_factory=Counter)
    rules: Mapping[str, int] = field(default_factory=dict)

    @property
    def heading(self) -> Heading:
        """The texts of the section."""
        return HEADINGS[self.name]

    @property
    def often(self) -> Sequence[tuple[tuple[str, str], int]]:
        """The problems that occur more than once: column and text, and how often."""
        if self.name not in {SectionName.MEND, SectionName.REFUSED, SectionName.LOOK}:
            return ()
        return [(value, count) for value, count in self.values.most_common(_MOST_VALUES) if count > 1]

    def fill(self, lines: Iterable[Line], room: int = MOST_TEXT) -> int:
        """Count all lines and keep the first ones, up to `room` characters; return the room left."""
        for line in lines:
            self.total += 1
            self.new += line.is_new
            self.changed += line.is_changed
            self.values.update((point.where, point.says) for point in line.points)
            if room > 0 and len(self.lines) < MOST_LINES:
                room -= len(str((line.at, line.name, line.points, line.changes, line.cells)))
                self.lines.append(line)
        return room


def _page(
    reader: StateReader, word: str, words: Words, since: datetime | None, link: str, made_at: datetime, bar: Progress
) -> tuple[Report, Sequence[Section]]:
    """Build the report's document, not yet written, and the sections of the page."""
    feed, scope = reader.find_feed(word)
    status = next((one for one in reader.statuses(feed) if one.book == scope), None)
    read = status.last_read if status else None
    since = since or (read.started_at if read else None)
    sections = tuple(map(Section, SectionName))
    if status is not None:
        rows = _Rows(reader.queries, status.book, words, since, link, bar)
        room = MOST_TEXT
        for section in sections:
            if section.name is SectionName.LEFT_OUT:
                held = next(one.total for one in sections if one.name is SectionName.HELD)
                section.rules = _left_out(read, held, words)
                section.total = sum(section.rules.values())
            room = section.fill(rows.lines(section.name), room)
    is_whole = bool(read and read.stage_report and read.stage_report.is_whole)
    report = Report(
        feed=feed,
        service="" if status is None else status.book.destination.partition("#")[0],
        made_at=made_at,
        read_at=read.started_at if read else None,
        is_whole=is_whole,
        rows_read=read.read.read if is_whole and read and read.read else status.last_whole_read if status else None,
        since=since,
        stopped_by=() if status is None or status.gate.is_open else status.gate.brakes,
        sections={
            one.name: SectionCounts(rows=one.total, new=one.new, changed=one.changed, shown=len(one.lines)) for one in sections
        },
        left_out=next(one.rules for one in sections if one.name is SectionName.LEFT_OUT),
        html=None,
        bytes=0,
    )
    return report, sections


def write_page(page: Report, sections: Iterable[Section], file: Path, words: Words) -> int:
    """Write the page in the language of `words`, replacing an older file in one step; return its size in bytes.

    Raises:
        ConfigError: the file cannot be written.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup, escape

    def harmless(value: object) -> object:
        """Replace harmful characters of a text; markup was built from texts that passed here."""
        return replaced(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    always = {SectionName.MEND, SectionName.ONLINE}
    shown_sections = [section for section in sections if section.total or section.name in always]
    texts = _WORDS["stopped"]
    reasons = dict.fromkeys(words.say(texts.get(brake, texts["other"])) for brake in page["stopped_by"])
    on_page = Words(words.language, lambda value: escape(harmless(value)))

    def say(sentence: str, **values: object) -> Markup:
        """Return a sentence as markup; its values may be markup."""
        return Markup(on_page.say(sentence, **values))  # noqa: S704 - sentences are ours, values are escaped

    def count(one: str, several: str, number: int, **values: object) -> Markup:
        return Markup(on_page.count(one, several, number, **values))  # noqa: S704 - as above

    def moment(at: datetime) -> Markup:
        return Markup('<time datetime="{}">{} UTC</time>').format(at.isoformat(), words.say("{at:moment}", at=at))

    style = (_PAGES / "report.css").read_text("utf-8")
    # Content Security Policy Level 3, `hash-source`: this style and no other
    digest = "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = Environment(
        loader=FileSystemLoader(_PAGES),
        autoescape=True,
        finalize=harmless,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"moment": moment, "number": lambda number: words.say(_NUMBER, number=number), "say": say}
    environment.globals |= {"say": say, "count": count, "language": words.language}
    template = environment.get_template("report.html.jinja")
    with written_whole(file, "--html") as beside, beside.open("wb") as stream:
        text = template.stream(page=page, sections=shown_sections, stopped=list(reasons), style=style, style_digest=digest)
        text.dump(stream, encoding="utf-8")
        return stream.tell()


def _left_out(read: RunRecord | None, held: int, words: Words) -> Mapping[str, int]:
    """Return how many rows of the last read, if it was a full one, each rule leaves out or merges, by its label.

    `held`: how many held rows are listed elsewhere.
    """
    report = read and read.stage_report
    if not report or not report.is_whole:
        return {}
    account = report.account
    others = {"duplicate": account.duplicate, "grouped": account.grouped, "held_unlisted": account.held - held}
    counts = {**report.skipped, **{_say(words, name): count for name, count in others.items()}}
    return {label: count for label, count in counts.items() if count > 0}


@dataclass(frozen=True, slots=True)
class _Rows:
    """Turns the rows of a feed into lines for the editor, who knows the partner's file and nothing of eventsync.

    `since`: later rows are new; None: none are. `link`: the address of an event's page with `{id}`, or "". `shown`: the keys of
    delivered rows that an earlier section has, so that none is counted twice.
    """

    queries: LedgerQueries
    scope: FeedScope
    words: Words
    since: datetime | None
    link: str
    bar: Progress
    shown: set[RowKey] = field(default_factory=set)

    def lines(self, name: SectionName) -> Iterator[Line]:
        """Yield the lines of a section, without a limit."""
        for state in HEADINGS[name].states:
            if state in tuple(ProblemKind):
                yield from self._problems(ProblemKind(state))
                continue
            is_delivered = name in {SectionName.ONLINE, SectionName.DRAFTS}
            for record in self.queries.every_row(self.scope, replace(filter_of(state), is_kept=is_delivered)):
                self.bar.advance()
                if is_delivered:
                    is_draft = record.event.get("status") == "draft"
                    if record.row_key in self.shown or is_draft is (name is SectionName.ONLINE):
                        continue
                else:
                    self.shown.add(record.row_key)
                yield self._entry(record, name)

    def _problems(self, kind: ProblemKind) -> Iterator[Line]:
        after = 0
        while page := self.queries.problems(self.scope, kind, after=after):
            met, known = self.queries.first_met(page), self.queries.first_met(page, is_same=False)
            self.bar.advance(len(page))
            yield from (self._problem(record, met[record.problem_id], known[record.problem_id]) for record in page)
            after = page[-1].problem_id

    def _problem(self, record: ProblemRecord, met: datetime, known: datetime) -> Line:
        # An earlier version of a rejected row may be online.
        event_id = None if record.kind is ProblemKind.WARNING else record.event_id
        say, is_fresh = self.words.say, self._is_fresh(met)
        is_known = record.event_id is not None or not self._is_fresh(known)
        points = tuple(self._point(reason) for reason in record.reasons)
        if event_id is not None:
            self.shown.add(record.row_key)
        if record.candidate is not None:
            points = (Point(_say(self.words, "held", other=shortened(str(record.candidate)))),)
        return Line(
            at=shortened(place_in_words(record.origin, self.words)),
            name=say("identifier {key}", key=shortened(record.row_key)) if record.row_key else say("without an identifier"),
            is_new=is_fresh and not is_known,
            is_changed=is_fresh and is_known,
            event_id=event_id,
            link=self._link(event_id),
            points=points,
            cells=tuple((shortened(name), shortened(cell)) for name, cell in record.cells.items() if cell),
            note="" if event_id is None else _say(self.words, "online_before"),
        )

    def _point(self, reason: Reason) -> Point:
        words = self.words
        return Point(shortened(words.problem(reason)), shortened(words.place(reason)), shortened(words.advice(reason)))

    def _entry(self, record: RowRecord, section: SectionName) -> Line:
        event, words = record.event, self.words
        zone, when = event.get("timezone"), str(event.get("startAt", ""))[:16]
        if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d", when):
            when = words.say("{at:moment}", at=when)
        is_changed = section is SectionName.CHANGED
        changes = self._changes(record) if is_changed and record.drift_kind not in _WORDS["drift"] else ()
        text = "" if changes else _text(record, section, words)
        where = words.field(record.answer.field) if section is SectionName.REFUSED and record.answer else ""
        is_new = self._is_fresh(record.vanished_at if section is SectionName.GONE else record.created_at)
        return Line(
            at=shortened(place_in_words(record.origin, words)),
            name=shortened(str(event.get("title", "")) or record.row_key),
            when=shortened(f"{when} ({zone})" if zone and when else when),
            is_new=is_new,
            is_changed=not is_new and is_changed and self._is_fresh(record.updated_at),
            event_id=record.event_id,
            link=self._link(record.event_id),
            points=(Point(text, where),) if text else (),
            changes=changes,
        )

    def _changes(self, record: RowRecord) -> tuple[FieldChange, ...]:
        found = payload_diff(record.shown, record.drift_body or record.shown)
        return tuple(
            FieldChange(self.words.field(one.path), shortened(shown(one.delivered)), shortened(shown(one.now)))
            for one in found
            if one.is_changed
        )

    def _is_fresh(self, at: datetime | None) -> bool:
        return self.since is not None and at is not None and at >= self.since

    def _link(self, event_id: int | None) -> str:
        return "" if event_id is None else self.link.replace("{id}", str(event_id))


def _say(words: Words, name: str, **values: object) -> str:
    return words.say(_WORDS[name], **values)


_PLACE = re.compile(
    r"(?:'(?P<tab>(?:[^']|'')+)'|(?P<name>.+?))(?::|![A-Z]*)(?P<row>\d+)(?: \((?:record \d+|row (?P<shown>\d+))\))?", re.DOTALL
)


def place_in_words(origin: str, words: Words) -> str:
    """Return a row's place in words, `events.csv:41` as `Row 41 of events.csv`; a record id is returned unchanged."""
    found = _PLACE.fullmatch(origin)
    if found is None:
        return origin
    name = found["name"] or found["tab"].replace("''", "'")
    return words.say("Row {row} of {name}", row=found["shown"] or found["row"], name=name)


def _text(record: RowRecord, section: SectionName, words: Words) -> str:
    """Return what the page says about an entry, "" if nothing."""
    match section:
        case SectionName.CHANGED:
            drift = _WORDS["drift"].get(record.drift_kind)
            return words.say(drift) if drift else _say(words, "image_changed")
        case SectionName.GONE:
            gone = _WORDS["gone"]["by_rule" if record.vanished_by else "not_there"]
            return words.say(gone, day=(record.vanished_at or record.updated_at).date())
        case SectionName.REFUSED:
            message = record.answer and (record.answer.issue or record.answer.message)
            return _say(words, "service_says", message=shortened(message)) if message else _say(words, "not_accepted")
        case SectionName.ONLINE | SectionName.DRAFTS:
            return ""
        case _:
            states = _WORDS["states"]
            return words.say(states.get(record.state, states["other"]))


_MADE_AT = re.compile(r'<meta name="eventsync-report" content="([^"]+)">')


def _made_before(file: Path) -> datetime | None:
    """Return when the page in `file` was written, None if it is not such a page."""
    with suppress(OSError, ValueError), file.open(encoding="utf-8", errors="replace") as page:
        found = _MADE_AT.search(page.read(2_000))
        return datetime.fromisoformat(found[1]) if found else None
    return None


def _since(text: str | None, made_at: datetime) -> datetime | None:
    if text is None:
        return None
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            return datetime.fromisoformat(text).replace(tzinfo=UTC)
        return made_at - abs(parse_duration(text))
    except (PydanticCustomError, ValueError, OverflowError) as error:
        raise ConfigError(f"--since {text}: neither a date nor an age", hint="write it like 2026-11-01 or 7d") from error
