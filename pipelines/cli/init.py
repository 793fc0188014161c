"""`eventsync init`: writes a first mapping file, inferred from a sample of rows."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated, Literal

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from pydantic import SecretStr, TypeAdapter

    from connectors.sources.catalogue import describe_object, open_source, read_sheet_top
    from connectors.sources.contract import Access, LoginRefusedError, Reading
    from connectors.sources.files.opened_file import opened, refuse_other_kinds
    from connectors.sources.files.source import file_at
    from connectors.sources.files.web import FetchLimits, ask, links_of
    from connectors.sources.formats.sheet_grid import SheetTop
    from connectors.sources.shapes import read_shaped
    from mappings.allowed_files import ANYWHERE, OutsideError, allowed_path
    from mappings.columns import ColumnRequest, folded
    from mappings.draft.draft import SourceSample, draft_feed, feed_name, with_examples
    from mappings.draft.guesses import Guess
    from mappings.draft.nested import first_values
    from mappings.draft.paging import guess_pages
    from mappings.draft.questions import Answers
    from mappings.draft.shapes import guess_shapes
    from mappings.draft.source import HEAD_BYTES, RECORDS, SourceGuess, empty_nulls, guess_source, header_of, join_lists
    from mappings.errors import ConfigError, FileProblem, MappingFileError
    from mappings.outcome import RowLocation, SourceRow
    from mappings.reasons import Detail
    from mappings.spec.source import GoogleSheetsSource, SourceSpec, WorkbookSource
    from mappings.spec.source_words import is_address, is_web_address, without_secrets
    from mappings.spec.sql import table_parts
    from mappings.strict import parse_zone
    from pipelines.cli.feed_files import mapping_or_error, shown_path
    from pipelines.cli.findings import CheckedFile, find, is_sound
    from pipelines.cli.output.console import Output, counted, document_from
    from pipelines.clock import now
    from pipelines.settings import Settings, current_settings

    _RowsAndFaults = tuple[tuple[str, ...], Sequence[Mapping[str, str]], bool, tuple[Guess, ...]]

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A CSV, TSV, XLSX, JSON, NDJSON, XML or ICS file: path or URL; a Google sheet's URL; salesforce:OBJECT; or, with "
        "--table, the SQLAlchemy URL of a database, or sql:NAME for the one in SQL_NAME.",
    ),
]


def init(  # one parameter for each option
    source: Source,
    feed: Annotated[
        str | None, typer.Option(metavar="NAME", help="The feed's name, which cannot change later (default: the file's).")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The mapping file to write (default: NAME.yaml in the folder of your feeds)."),
    ] = None,
    zone: Annotated[str, typer.Option(metavar="ZONE", help="The time zone of the partner's times: Europe/Lisbon.")] = "",
    dates: Annotated[
        Literal["day-first", "month-first"] | None,
        typer.Option(help="How to read 03/04/2026, if no value of the sample decides it."),
    ] = None,
    table: Annotated[str, typer.Option(metavar="TABLE", help="The table of a database: events, public.events.")] = "",
    answers: Annotated[
        Path | None, typer.Option(metavar="ANSWERS", help="Take the answers to all questions from this YAML or JSON file.")
    ] = None,
    no_input: Annotated[bool, typer.Option("--no-input", help="Ask no questions.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
    as_json: AsJson = False,
) -> int:
    """Read a sample of a source and write a first mapping file for it, with the evidence for each guess.

    For example:

        # A file that a partner sent
        eventsync init ~/Downloads/agenda.csv --feed lisbon-agenda --zone Europe/Lisbon
        # Print the guesses, write no file
        eventsync init https://partner.example/events.json --json --out /dev/null --force
        # The campaigns of a Salesforce org, with the login of the SALESFORCE_ variables
        eventsync init salesforce:Campaign --zone Europe/Lisbon
        # A table of the database whose address is in SQL_WAREHOUSE
        eventsync init sql:WAREHOUSE --table public.events

    Up to 2,000 rows are read. On a terminal, questions follow about what they cannot show: channel, time zone, order of day and
    month, classifications, places; the service's own lists are offered. What is not answered is written as `fill-in`, for you to
    replace; rows whose dates may be day-first or month-first are rejected until you choose. Events are drafts until you change
    the status. Exit codes: 0 written, 2 the file exists already, the source cannot be read, or an answer is wrong.
    """
    settings, output = current_settings(), Output(is_json=as_json)
    is_sheet = source.startswith(_SPREADSHEETS)
    file_name = source.removeprefix(_ORG).rstrip("/").rpartition("/")[2].partition("?")[0]
    stem = "the spreadsheet" if is_sheet else file_name.partition(".")[0] or file_name
    if source.partition(":")[0].partition("+")[0] in _DATABASES or table:
        stem = _table_of(table)
    if source == _ORG:
        raise ConfigError("salesforce: lacks the name of an object", hint="write it like salesforce:Campaign")
    if feed and feed_name(feed) != feed:
        raise ConfigError(f"--feed {feed}: a feed's name is lower-case words joined by -", hint=f"write {feed_name(feed)}")
    if not feed and is_sheet:
        raise ConfigError(
            "a spreadsheet's address does not name the feed", hint="choose a name, which cannot change later: --feed NAME"
        )
    feed = feed or feed_name(stem.removesuffix("__c"))
    try:
        zone = str(parse_zone(zone)) if zone else ""
    except ValueError as error:
        raise ConfigError(f"--zone {zone}: {error}", hint="write an IANA name, such as Europe/Lisbon") from error
    out = out or settings.feeds / f"{feed}.yaml"
    if out.exists() and not force:
        hint = "choose another --out or --feed, or overwrite it with --force"
        raise ConfigError(f"{shown_path(out)} exists already", hint=hint)
    with output.progress(f"reading a sample of {stem}"):
        sample, is_whole = read_sample(source, out, settings.access, table)
    if not sample.rows:
        raise ConfigError(f"{stem} has no rows to learn from", hint="ask the partner for a file with some events in it")
    chosen = Answers(order=dates.removesuffix("-first") if dates else "")
    text, guesses, questions = draft_feed(sample, feed, zone=zone, answers=chosen, as_of=now())
    if answers or (not (as_json or no_input) and sys.stdin.isatty() and sys.stderr.isatty()):
        from pipelines.cli.init_questions import collect_answers

        given = collect_answers(questions, settings, output, answers)
        given = replace(given, order=given.order or chosen.order)
        text, guesses, _ = draft_feed(sample, feed, zone=zone, answers=given, as_of=now())
    guesses = (*guesses, *_outside(sample.place, out, settings))
    with suppress(MappingFileError):  # a draft with values to fill in has no examples
        text = with_examples(text, out.absolute(), sample.rows, now())
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("w" if force else "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}", hint="choose another file with --out") from error
    findings = find(mapping_or_error(settings, str(out.absolute()))) if out.is_file() else None
    document = {"feed": feed, "out": out, "rows": len(sample.rows), "guesses": guesses, "is_whole": is_whole}
    problems, warnings = (findings["problems"], findings["warnings"]) if findings else ((), ())
    document["fill_ins"] = findings["fill_ins"] if findings else 0
    output.document(document_from(Drafted, sample, **document, problems=problems, warnings=warnings))
    if not as_json:
        _show(output, feed, shown_path(out.absolute()), guesses, findings)
    return 0 if findings is None or is_sound(findings) else 2


class Drafted(TypedDict):
    """The drafted mapping file `out`, the number of sampled `rows`, and the guesses with how sure each one is.

    `fill_ins`: how many values of the file are `fill-in`.
    """

    feed: str
    out: Path
    rows: int
    columns: Sequence[str]
    guesses: Sequence[Guess]
    fill_ins: int
    problems: Sequence[FileProblem]
    warnings: Sequence[FileProblem]
    is_whole: bool


SAMPLED = 2_000
"""Number of rows that are read at most."""
_TOP = 60
"""Number of rows of a sheet among which the header row is searched."""
_ORG = "salesforce:"
_DATABASE = "sql:"
_DATABASES = frozenset({"sql", "postgresql", "postgres", "mysql", "mariadb", "mssql", "oracle", "sqlite", "duckdb", "snowflake"})
_CHANGED = re.compile("(?:last)?(?:updated|modified|changed)(?:at|on)?")
_DELETED = re.compile("deletedat|(?:is)?deleted")
_MOST_SHEETS = 20
_SPREADSHEETS = "https://docs.google.com/spreadsheets/"
_Rows = tuple[tuple[str, ...], Sequence[Mapping[str, str]], bool]


def read_sample(source: str, out: Path, access: Access, table: str = "") -> tuple[SourceSample, bool]:
    """Read the first rows of a source as a mapping file at `out` would read them; also return whether these are all rows.

    Raises:
        SyncError: the source cannot be read.
    """
    if table:
        return _read_table(source, table, access)
    if source.startswith(_ORG):
        return _read_object(source.removeprefix(_ORG), access)
    if source.startswith(_SPREADSHEETS):
        guess = SourceGuess(
            {"kind": "google_sheets"}, {"kind": "the first tab, or the one in the address; name another with `tab`"}
        )
    else:
        with _logins_explained(source, out), opened(file_at(source, Path.cwd(), ANYWHERE)) as file:
            content = file.stream.read(HEAD_BYTES + 1)
        if not content.startswith(b"PK\x03\x04"):  # packed files are unpacked: it is a workbook, or its reader says what it is
            refuse_other_kinds(content, file.name, "rows")
        name, guess = file.name, guess_source(file.name, content[:HEAD_BYTES], is_whole=len(content) <= HEAD_BYTES)
        if guess.kind == "json" and is_web_address(source):
            guess = guess_pages(guess, content, has_link=_has_next_link(source))
    if guess.kind in {"xlsx", "google_sheets"}:
        guess, name, (columns, rows, is_whole) = _read_sheet(guess, source, access)
    else:
        columns, rows, is_whole, faults = _read_rows(guess, source, access)
        joined, firsts = join_lists(guess, columns, rows), first_values(columns, rows) if guess.kind in RECORDS else {}
        if joined is not guess or firsts:
            guess, (columns, rows, is_whole, faults) = joined, _read_rows(joined, source, access, firsts)
            columns = tuple(name for name in columns if name not in firsts.values())
        guess = replace(guess, faults=(*guess.faults, *faults))
    if (shaped := guess_shapes(guess, columns, rows)) is not guess:
        guess, (columns, rows, is_whole) = shaped, _in_shape(shaped, source, (columns, rows, is_whole))
    if guess.kind != "ics":
        guess, rows = empty_nulls(guess, columns, rows)
    return SourceSample(_title(name, rows, is_whole), _path_from(out, source), guess, columns, rows), is_whole


def _has_next_link(address: str) -> bool:
    """Return whether the header `Link` of an answer names a next page."""
    bounds = FetchLimits()

    def ask_once() -> bool:
        with ask(bounds, "GET", address, {}) as answer:
            return "next" in links_of(answer)

    return bounds.retried(ask_once)


@contextmanager
def _logins_explained(source: str, out: Path) -> Iterator[None]:
    """Say how to write the source by hand if the address in the block wants a login: `init` sends no secret."""
    try:
        yield
    except LoginRefusedError as error:
        name, url = _secret_name(out.stem, "PARTNER"), without_secrets(source).partition("?")[0]
        block = f"source: {{kind: rest, url: {url}, auth: {{bearer: {name}}}, records: ..., pages: ...}}"
        hint = f"init sends no secret: write a mapping file with `{block}`, and put the token into REST_{name}"
        raise ConfigError(str(error), hint=hint) from error


def _secret_name(text: str, usual: str) -> str:
    name = re.sub("[^A-Z0-9]+", "_", text.upper()).strip("_")
    return name if name[:1].isalpha() else usual


def _title(name: str, rows: Sequence[object], is_whole: bool) -> str:
    return f"{name}: {'' if is_whole else 'the first '}{len(rows):,} rows read"


def _read_rows(guess: SourceGuess, source: str, access: Access, extra: Collection[str] = ()) -> _RowsAndFaults:
    """Return the columns and the `extra` ones, the first rows, whether these are all, and whether the file is cut off; rows with
    faults are left out.
    """
    return _rows_of({**guess.block(source), "optional": list(extra)}, access, extra)


def _rows_of(block: Mapping[str, object], access: Access, extra: Collection[str] = ()) -> _RowsAndFaults:
    spec = _spec(block)
    with open_source(spec, Path.cwd(), frozenset(extra), access=access, folders=ANYWHERE).read() as reading:
        read = list(islice(reading.rows, SAMPLED + 1))
    usable = [row for row in read[:SAMPLED] if not row.problems or row.unread is not None]
    # A calendar of which every series is over or rejected still shows how its events are written.
    rows: list[Mapping[str, str]] = [row.cells for row in [row for row in usable if row.unread is None] or usable]
    columns = tuple(dict.fromkeys([*reading.columns, *(name for row in rows for name in row)]))
    cut = (
        f"{row.location}: the file seems to be cut off here: {one.hint}"
        for row in read
        for one in row.problems
        if one.detail is Detail.CUT_OFF
    )
    return columns, rows, len(read) <= SAMPLED, tuple(Guess("faults", "", "unsure", why) for why in cut)


def _read_sheet(guess: SourceGuess, source: str, access: Access) -> tuple[SourceGuess, str, _Rows]:
    """Read the fullest sheet of a workbook: find its header row, and whether merged cells apply to each row."""
    kind = GoogleSheetsSource if guess.kind == "google_sheets" else WorkbookSource

    def top_of(**choice: str) -> SheetTop:
        spec = kind.model_validate(guess.block(source) | choice)
        return read_sheet_top(spec, Path.cwd(), SAMPLED + _TOP, access=access, folders=ANYWHERE)

    top = top_of()
    if top.others:
        tops = [top, *(top_of(sheet=name) for name in top.others[:_MOST_SHEETS])]
        names, top = ("", *top.others), max(tops, key=_filled_cells)
        guess = guess.plus("sheet", names[tops.index(top)] or "#1", f"the fullest of {len(names)} sheets", is_sure=False)
    _, header, why = header_of([_without_blank_end(row.cells) for row in top.rows[:_TOP]])
    if header:
        guess = guess.plus("header", header, why)
    spec = kind.model_validate(guess.block(source))
    columns, plain = top.table(spec, is_spread=False)
    spread_columns, spread = top.table(spec, is_spread=True)
    if spread_columns == columns and _is_filled_down(plain, spread):
        guess = guess.plus("merged", "spread", "some cells are merged over several rows: their value applies to each row")
        plain = spread
    return guess, top.name, (columns, plain[:SAMPLED], top.is_whole and len(plain) <= SAMPLED)


def _filled_cells(top: SheetTop) -> int:
    return sum(bool(cell.strip()) for row in top.rows for cell in row.cells)


def _read_object(name: str, access: Access) -> tuple[SourceSample, bool]:
    """Read records of a Salesforce object with all of its fields, except those that Salesforce maintains itself."""
    found = describe_object(name, access=access)
    settings: dict[str, object] = {"kind": "salesforce"}
    why = {"object": f"{found.more} of its fields were not read"} if found.more else {}
    if found.changed:
        settings["incremental"], why["incremental"] = (
            {"by": found.changed},
            "reads only changed records, and all records once a day",
        )
    guess = SourceGuess(settings, why, lists=dict.fromkeys(found.lists, ";"), choices=found.choices)
    block = {"kind": "salesforce", "object": found.name, "fields": found.fields, "api": "rest"}
    columns, rows, is_whole, _ = _rows_of(block, access)
    return SourceSample(_title(found.name, rows, is_whole), found.name, guess, columns, rows), is_whole


def _in_shape(guess: SourceGuess, source: str, read: _Rows) -> _Rows:
    """Return sample rows as the settings for their shape read them."""
    columns, rows, is_whole = read
    mark = guess.settings.get("comment")
    stored = (SourceRow(RowLocation(""), row) for row in rows if not mark or not row[columns[0]].lstrip().startswith(mark))
    reading = Reading(columns, stored, headers=dict(zip(columns, columns, strict=True)))
    with read_shaped(_spec(guess.block(source)), ColumnRequest(frozenset()), lambda _: nullcontext(reading)) as shaped:
        return shaped.columns, [row.cells for row in shaped.rows], is_whole


def _table_of(table: str) -> str:
    """Return a table's name without its schema.

    Raises:
        ConfigError: no table is named.
    """
    if not table:
        raise ConfigError("a database's address does not name a table", hint="name it: --table public.events")
    return table_parts(table)[0]


def _read_table(source: str, table: str, access: Access) -> tuple[SourceSample, bool]:
    """Read rows of a database's table. The mapping file names the address by its variable, and never has it."""
    known = (name for name, secret in access.secrets.items() if secret.get_secret_value() == source and name.startswith("SQL_"))
    stem = _secret_name(source.partition("?")[0].rstrip("/").rpartition("/")[2].partition(".")[0], "WAREHOUSE")
    name = source.removeprefix(_DATABASE)
    if name == source:
        name = next(known, stem).removeprefix("SQL_")
        access.mask.learn(source)
        access = replace(access, secrets={**access.secrets, f"SQL_{name}": SecretStr(source)})
    settings: dict[str, object] = {"kind": "sql", "connection": name}
    columns, rows, is_whole, _ = _rows_of({**settings, "table": table}, access)
    why = {"connection": f"the address of the database is in the variable SQL_{name}: set it where the worker runs"}
    marks = {"by": _CHANGED, "deleted": _DELETED}
    plain = {folded(column).replace("_", ""): column for column in columns[::-1]}
    found = {mark: plain[name] for mark, names in marks.items() for name in plain if names.fullmatch(name)}
    if "by" in found:
        settings["incremental"], why["incremental"] = found, "reads only what changed, by this column, and everything once a day"
    guess = SourceGuess(settings, why, likely=frozenset({"incremental"}))
    return SourceSample(_title(table, rows, is_whole), table, guess, columns, rows), is_whole


def _spec(block: Mapping[str, object]) -> SourceSpec:
    adapter: TypeAdapter[SourceSpec] = TypeAdapter(SourceSpec)
    return adapter.validate_python(block)


def _is_filled_down(plain: Sequence[Mapping[str, str]], spread: Sequence[Mapping[str, str]]) -> bool:
    """Return whether spreading merged cells mostly copies values from the row above, not from the column beside."""
    # A row with one text is a heading or a note, merged over its width.
    texts = [(row, before) for row, before in zip(spread, plain, strict=False) if len({*row.values(), ""}) > 2]
    pairs = [((above, row), before) for (above, _), (row, before) in pairwise(texts)]
    new = [(row, above, name) for (above, row), before in pairs for name in row if row[name] != before.get(name, "")]
    down = sum(above.get(name) == row[name] for row, above, name in new)
    return down * 2 > len(new)


def _without_blank_end(cells: Sequence[str]) -> Sequence[str]:
    return cells[: max((place for place, text in enumerate(cells, start=1) if text.strip()), default=0)]


def _path_from(out: Path, source: str) -> str:
    """Return a local path relative to the mapping file's folder, as the mapping file needs it; any other source unchanged."""
    local = Path(source).expanduser()
    if not local.exists():
        return source
    near = os.path.relpath(local.absolute(), out.absolute().parent)
    return near if near.count("../") < 4 else str(local.absolute())


def _outside(place: str, out: Path, settings: Settings) -> Iterator[Guess]:
    """Yield what to do about a file that the mapping file may not read where it is."""
    try:
        if not is_address(place):
            allowed_path(place, out.absolute().parent, settings.files)
    except OutsideError as error:
        yield Guess("source.path", "", "unsure", f"{error}: {error.hint}")


def _show(output: Output, feed: str, shown: Path, guesses: Sequence[Guess], findings: CheckedFile | None) -> None:
    rows = ({"setting": one.about, "column": one.column, "how sure": one.surety, "why": one.why} for one in guesses)
    output.table(f"{feed}: guesses from the sample", rows)
    if findings is not None:
        output.note(*(f"  error: {problem}" for problem in findings["problems"]))
        unsure = dict.fromkeys(guess.about for guess in guesses if guess.surety == "unsure")
        to_do = [f"{counted(findings['fill_ins'], 'value')} to fill in"] if findings["fill_ins"] else []
        to_do += [f"{counted(len(unsure), 'setting')} to review: {', '.join(unsure)}"] if unsure else []
        output.note(f"{shown} is written{', with ' * bool(to_do)}{' and '.join(to_do)}")
        output.note(
            f"next: {'edit the file, then run' if to_do else 'run'}\n  eventsync check {shown}\n  eventsync preview {shown}"
        )
