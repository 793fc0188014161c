"""`eventsync rows`: lists ledger entries and rejected rows, or writes them to a CSV file for the partner's editor."""

from __future__ import annotations

import csv as csv_module
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Annotated, Any, NamedTuple

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, OneFeed, state_words

if IS_WORKING:
    from connectors.event_api.answers import in_short
    from mappings.delivery import Answer
    from mappings.errors import ConfigError
    from mappings.outcome import shown_place
    from mappings.reasons import Reason, did_you_mean
    from mappings.row_key import RowKey, shell_word
    from mappings.sentences import Words
    from pipelines.cli.output.console import Output, counted, document_from
    from pipelines.cli.run_report import Unmapped, unmapped_lines, unmapped_of
    from pipelines.cli.state_reader import filter_of, listed, open_state
    from pipelines.run.outcome import ALL, RESENT, WAITING
    from pipelines.run.write_back import standing_of
    from pipelines.safe_output import replaced
    from state.enums import Decision, DriftKind, EntryState, ProblemKind, Waiting
    from state.ledger.choices import waits_for_access
    from state.ledger.standing import OtherEntry, RowRecord
    from state.queries import ProblemRecord


StateWord = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="S",
        help="conflict, blocked, uncertain, refused, held, delivered_unconfirmed, drift, vanished, warning, rejected; or"
        " pending, delivered, superseded, resent, ignored. Default: all that wait for a person.",
        autocompletion=state_words,
    ),
]


def rows(
    feed: OneFeed,
    state: StateWord = None,
    unmapped: Annotated[
        bool, typer.Option("--unmapped", help="List values that are in no lookup, each once, with the number of rows.")
    ] = False,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write the rows to FILE, with the partner's own columns.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many rows (default: 100, or all with --csv).")] = None,
    as_json: AsJson = False,
) -> int:
    """List rows of a feed: those that wait for a person, or those in one state.

    For example:

        # What waits for a person
        eventsync rows lisbon-agenda
        # What the partner has to correct
        eventsync rows lisbon-agenda --state rejected --csv for-partner.csv
        # Values that are missing in your lookups
        eventsync rows lisbon-agenda --unmapped
        # What changed after it was delivered
        eventsync rows lisbon-agenda --state drift

    Ignored rows and past events do not wait for a person. A row may be on several lists. `superseded`: the row's event was moved
    to another key. Warnings stay until the row or the mapping changes. The CSV file has the partner's columns of rejected, held
    and warned rows, followed by place, problem and hint; it is safe to open in a spreadsheet. Exit code 0.
    """
    output = Output(is_json=as_json)
    if unmapped:
        with open_state() as reader:
            name, scope = reader.find_feed(feed)
            values = unmapped_of(reader.queries, scope) if scope else ()
        output.document(UnmappedValues(feed=name, unmapped=values))
        output.table(f"{name}: values that are in no lookup", unmapped_lines(values))
        return 0
    choices = parse_choice(state)
    most = _SHOWN if limit is None and csv is None else limit
    with open_state() as reader:
        name, scope = reader.find_feed(feed)
        found = listed(reader.queries, scope, choices) if scope else iter(())
        shown = islice(found, most if csv is None or as_json else 0)  # a CSV file alone needs no row in memory
        rows = [row_document(record, name, choice) for choice, record in shown]
        if scope and any(row["state"] == Waiting.VANISHED for row in rows):
            _advise_on_moved(rows, reader.queries.every_row(scope, filter_of(Waiting.HELD)))
        is_more = bool(rows) and next(found, None) is not None
        count = 0
        if csv is not None:
            words, found = Words(reader.language(name)), listed(reader.queries, scope, choices) if scope else iter(())
            count = write_csv(csv, (_csv_row(record, choice, words) for choice, record in islice(found, most)))
        elsewhere = "" if scope else reader.elsewhere_sentence()
    output.document(Rows(feed=name, state=state or "waiting", rows=rows, is_more=is_more, csv=csv))
    if csv is not None:
        output.note(f"{csv}: {counted(count, 'row')}")
        return 0
    if is_shared := sum(row["state"] == Waiting.HELD for row in rows) > 1:
        output.note(*_held_commands(name))
    output.table(f"{name}: {state or 'what waits for a person'}", (_line(row, is_shared=is_shared) for row in rows))
    more = f"only the first {most} are shown; --limit shows more, --csv FILE writes all" if is_more else ""
    output.note(*filter(None, (elsewhere, more)))
    return 0


class ProblemRow(TypedDict):
    """A row that was rejected, is held, or was used with a warning; with its raw cells. `event_id`: the event of an earlier
    version of the row; `candidate`: the entry that a held row resembles.
    """

    state: ProblemKind
    place: str
    row_key: str
    event_id: int | None
    candidate: OtherEntry | None
    problem: str
    hint: str
    reasons: Sequence[Reason]
    cells: Mapping[str, str]
    run_id: str
    first_seen_at: datetime
    seen_at: datetime


class Drifted(TypedDict):
    """What the source says now, if it differs from what was delivered."""

    kind: DriftKind
    event: dict[str, Any] | None


class Decided(TypedDict):
    """A person's decision about a row."""

    what: Decision
    by: str
    at: datetime | None
    is_set_aside: bool


class Entry(TypedDict):
    """A row in the ledger. `state`: the value of --state that lists it; `entry_state`: its state in the ledger.

    `event`: the payload that the service shows, or that will be sent; `answer`: the service's last answer; `candidate`: the entry
    that a held row resembles, or that took over a superseded row's event; `vanished_by`: the rule that leaves the row out;
    `copies`: how many events of the row may exist if the service ignores idempotency keys, counted over all runs.
    """

    state: str
    place: str
    row_key: str
    entry_state: EntryState
    event_id: int | None
    idempotency_key: str
    attempts: int
    copies: int
    problem: str
    hint: str
    answer: Answer | None
    event: dict[str, Any]
    candidate: OtherEntry | None
    drift: Drifted | None
    vanished_at: datetime | None
    vanished_by: str
    removed_at: datetime | None
    decision: Decided | None
    updated_at: datetime


class Rows(TypedDict):
    """The listed rows; `is_more`: there are more. `csv`: the file they were written to."""

    feed: str
    state: str
    rows: Sequence[ProblemRow | Entry]
    is_more: bool
    csv: Path | None


class UnmappedValues(TypedDict):
    """Values that are in no lookup, each once, the most frequent first."""

    feed: str
    unmapped: Sequence[Unmapped]


_SHOWN = 100
_NOT_STATES = frozenset({"resent", "drift", "vanished"})
"""Values of `--state` that are not states of an entry."""


def _line(row: ProblemRow | Entry, *, is_shared: bool) -> dict[str, object]:
    """Return a line of the table; `is_shared`: the commands for held rows are printed above it."""
    hint = "" if is_shared and row["state"] == Waiting.HELD else row["hint"]
    line = {"state": row["state"], "place": shown_place(row["place"]), "row key": row["row_key"]}
    return {**line, "event": str(row["event_id"] or ""), "problem": row["problem"], "what to do": hint}


def _held_commands(feed: str) -> Iterator[str]:
    """Yield the commands that decide about held rows, all or one."""
    yield f"held: `eventsync resolve {feed} --state held --same-as` moves the events that these rows look like to their keys;"
    yield f"for one row: `eventsync resolve {feed} KEY --same-as`; `--release` sends it as a separate event, `--ignore` takes it"
    yield "off this list"


def _advise_on_moved(rows: Iterable[ProblemRow | Entry], held: Iterable[RowRecord]) -> None:
    """Replace the advice for each vanished row that a held row looks like: its event may have a new key."""
    of_feed = ((one.row_key, one.candidate) for one in held if one.candidate)
    alike = {other.row_key: key for key, other in of_feed if not other.feed and not other.namespace}
    for row in rows:
        if row["state"] == Waiting.VANISHED and (key := alike.get(RowKey(row["row_key"]))):
            row["hint"] = f"row {key} is held and looks like it: decide about that row first"


def parse_choice(word: str | None) -> Sequence[str]:
    """Return the lists that a value of --state means; without one, all that wait for a person.

    Raises:
        ConfigError: there is no such value.
    """
    if word is None:
        return WAITING
    if word not in ALL:
        hint = did_you_mean(word, ALL) or f"there are {', '.join(ALL)}"
        raise ConfigError(f"--state {word}: there is no such state", hint=hint)
    return (word,)


def row_document(record: ProblemRecord | RowRecord, feed: str, choice: str) -> ProblemRow | Entry:
    """Build the JSON document of a row on the list `choice`."""
    return _problem(record, feed) if isinstance(record, ProblemRecord) else entry_of(record, feed, choice)


def _problem_line(reason: Reason) -> str:
    sentence, cell = Words().problem(reason), reason.column or reason.field
    found = "" if not reason.found or reason.found in sentence else f" {reason.found!r}"
    return f"{cell}{found}: {sentence}" if cell else sentence


def _problem(record: ProblemRecord, feed: str) -> ProblemRow:
    problem = "\n".join(map(_problem_line, record.reasons))
    hint = "\n".join(reason.hint for reason in record.reasons)
    if record.kind is ProblemKind.HELD:
        problem = f"it looks like the event of {record.candidate}" if record.candidate else problem
        hint = _held_hint(feed, record.row_key, record.candidate)
    elif record.kind is ProblemKind.REJECTED and record.event_id is not None:
        problem += f"\nonline as event {record.event_id}, row now unusable"
    words = {"place": record.origin, "problem": problem, "hint": hint}
    return document_from(ProblemRow, record, state=record.kind, **words)


def entry_of(record: RowRecord, feed: str, choice: str = "") -> Entry:
    """Build the JSON document of a ledger entry; `choice`: the list it is shown on, "" for none."""
    is_about_state = choice not in _NOT_STATES
    problem, hint = _state_texts(record, feed) if is_about_state else _choice_texts(record, feed, choice)
    if record.is_set_aside and choice != RESENT:
        hint = f"ignored by {record.decided_by}: {_command('resolve', feed, record, '--undo')} lists it again"
    elif not is_about_state and choice != RESENT:
        hint += f"; or {_command('resolve', feed, record, '--ignore')} takes it off the list until the row changes"
    drift = json.loads(record.drift_body) if record.drift_body else None
    at, by = record.decided_at, record.decided_by
    return document_from(
        Entry,
        record,
        state=record.state.value if is_about_state else choice,
        place=record.origin,
        entry_state=record.state,
        idempotency_key=record.key,
        problem=problem,
        hint=hint,
        drift=Drifted(kind=record.drift_kind, event=drift) if record.drift_kind else None,
        decision=Decided(what=record.decision, by=by, at=at, is_set_aside=record.is_set_aside) if record.decision else None,
    )


def _choice_texts(record: RowRecord, feed: str, choice: str) -> tuple[str, str]:
    """Return problem and advice for an entry on one of the lists resent, vanished and drift."""
    event = "the event" if record.event_id is None else f"event {record.event_id}"
    applied, removed, resend = (_command("resolve", feed, record, f"--{one}") for one in ("applied", "removed", "resend"))
    match choice, record.drift_kind:
        case "resent", _:
            may_exist = f"it may exist up to {record.copies:,} times; now {record.state.value}"
            problem = f"if the service ignores Idempotency-Key, {may_exist}"
            return problem, f"search the service's pages for copies of {event}"
        case Waiting.VANISHED, _:
            since = f"{record.vanished_at:%Y-%m-%d}" if record.vanished_at else "an earlier read"
            left_out = f"left out since {since} by {record.vanished_by}"
            problem = left_out if record.vanished_by else f"gone from its source since {since}"
            return problem, f"if it is cancelled, remove {event} by hand; then {removed}"
        case _, DriftKind.TO_PUBLISH:
            return "sent as a draft; the source now says published", f"publish {event} by hand; then {applied}"
        case _, DriftKind.CANCELLED:
            return "cancelled at the source since it was sent", f"withdraw {event} by hand; then {removed}"
        case _, DriftKind.RETURNED:
            return f"{event} was removed by hand, and the row is back in the source", f"{resend} creates the event again"
        case _:
            sent, wanted = record.event, json.loads(record.drift_body or record.shown)
            changed = sorted(name for name in sent.keys() | wanted.keys() if sent.get(name) != wanted.get(name))
            problem = f"changed since it was sent: {', '.join(changed) or 'its cover image'}"
            return problem, f"{_command('diff', feed, record)} shows all; change {event} by hand; then {applied}"


def _state_texts(record: RowRecord, feed: str) -> tuple[str, str]:
    """Return problem and advice for an entry, by its state and the service's last answer."""
    resend, named = _command("resolve", feed, record, "--resend"), _command("resolve", feed, record, "--event-id N")
    otherwise = "--resend if it does not; --ignore takes the row off the list"
    looks = f"`eventsync reconcile {feed}` searches the service"
    decides = f"{looks} for the event; {named} if it exists, {otherwise}"
    retry = f"`eventsync retry {feed} --keys {shell_word(record.row_key, in_list=True)}`"
    refused = f"nothing was created; it is sent again when its payload changes, or unchanged after {retry}"
    denied = f"the next run sends it again; if the service only repeats a stored denial: {resend}"
    pending = "the next run sends it" if record.attempts == 0 else "the next run sends it again, with the same key"
    access = f"ask for access to channel {record.channel_id}; then the next run sends it again"
    forgotten = "the next run sends it again with the same key, unless the service may have forgotten that key; then"
    problem, hint = {
        EntryState.PENDING: ("not sent yet", denied if waits_for_access(record) else pending),
        EntryState.HELD: ("", _held_hint(feed, record.row_key, record.candidate)),
        EntryState.REFUSED: ("", refused),
        EntryState.DELIVERED: ("as a draft" if record.event.get("status") == "draft" else "", ""),
        EntryState.DELIVERED_UNCONFIRMED: (
            "the service has the event; its id is not known",
            f"{looks} for the id; {named} records it",
        ),
        EntryState.BLOCKED: ("", f"{access}; if the service keeps repeating its denial: {resend}"),
        EntryState.UNCERTAIN: ("no usable answer; the event may exist", f"{forgotten} {decides}"),
        EntryState.CONFLICT: ("", f"this key was used for something else, or by a ledger that was lost; {decides}"),
        EntryState.SUPERSEDED: ("", "a row that returns under this key is held"),
    }[record.state]
    if record.removed_at is not None:
        problem = f"event {record.event_id} was removed by hand"
    elif record.state is EntryState.SUPERSEDED:
        problem = f"its event was moved to {record.candidate or 'another key'}"
    elif record.answer and (record.state is not EntryState.DELIVERED or record.decision is not None):
        problem = in_short(record.answer) or problem
        if record.state is EntryState.UNCERTAIN and record.is_refused:
            problem += "; an earlier attempt may have created the event"
    return problem, hint


def _held_hint(feed: str, row_key: RowKey, other: OtherEntry | None) -> str:
    resolve = f"eventsync resolve {feed} {shell_word(row_key)}"
    same = f"`{resolve} --same-as` moves the event of {other or 'the other key'} to this one"
    release = f"`{resolve} --release` sends the row as a separate event"
    return f"{same}\n{release}\n`{resolve} --ignore` takes it off this list; it stays held"


def _command(verb: str, feed: str, record: RowRecord, option: str = "") -> str:
    return f"`{' '.join(filter(None, ('eventsync', verb, feed, shell_word(record.row_key), option)))}`"


_ADDED = ("place", "problem", "hint")
_CELL_START = re.compile(r'(?:^|[,;\n\u2028\u2029])[,;"\s]*+([=+\-@＝＋－＠]?)')
"""Where a reader that splits at a comma, semicolon or line break may begin a cell, and what starts a formula (OWASP, "CSV
Injection").
"""
_BOM = "\ufeff"
_IN_MEMORY = 4_000_000
"""Bytes of rows that are buffered in memory before they go to a temporary file."""


class CsvRow(NamedTuple):
    """A line of the CSV file: the row's place, problem and hint, and its cells."""

    place: str
    problem: str
    hint: str
    cells: Mapping[str, str]


def _csv_row(record: ProblemRecord | RowRecord, choice: str, words: Words) -> CsvRow:
    """Return a line of the CSV file: a problem row with the partner's cells, an entry with its key, state and event."""
    if isinstance(record, ProblemRecord):
        return _csv_problem(record, words)
    state = choice if choice in _NOT_STATES else record.state.value
    cells = {"row key": record.row_key, "state": state, "event": str(record.event_id or "")}
    cells |= {name: str(record.event.get(name, "")) for name in ("title", "startAt", "status")}
    return CsvRow(shown_place(record.origin), standing_of(record, words), "", cells)


def _csv_problem(record: ProblemRecord, words: Words) -> CsvRow:
    problems, advice = dict[str, None](), dict[str, None]()
    for reason in record.reasons:
        place = f"{name}: " if (name := words.place(reason)) else ""
        problems[place + words.problem(reason)] = None
        if hint := words.advice(reason):
            advice[place + hint] = None
    if record.event_id is not None and record.kind is not ProblemKind.WARNING:
        problems[words.say("An earlier version of this row is online, and stays as it is.")] = None
    return CsvRow(shown_place(record.origin), "\n".join(problems), "\n".join(advice), record.cells)


def write_csv(target: Path, rows: Iterable[CsvRow]) -> int:
    """Write one line per row to a file; return the number of rows.

    UTF-8 with a byte order mark, which Excel needs. All columns must be known before the first line is written, so rows are
    buffered in a temporary file and memory stays bounded. If a partner's column has the name of one of ours, ours becomes
    `eventsync place`. No spreadsheet runs a cell as a formula (`safe_cell`).

    Raises:
        ConfigError: the file cannot be written.
    """
    columns, count = dict[str, None](), 0
    try:
        with SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="ascii") as shelf:
            for row in rows:
                columns.update(dict.fromkeys(row.cells))
                shelf.write(json.dumps([dict(row.cells), row.place, row.problem, row.hint]) + "\n")
            shelf.seek(0)
            with target.open("w", encoding="utf-8", newline="", errors="replace") as file:
                file.write(_BOM)
                writer = csv_module.writer(file, quoting=csv_module.QUOTE_ALL)
                added = (f"eventsync {name}" if name in columns else name for name in _ADDED)
                writer.writerow(map(safe_cell, (*columns, *added)))
                for count, line in enumerate(shelf, start=1):  # noqa: B007  # returned
                    cells, *texts = json.loads(line)
                    writer.writerow(map(safe_cell, (*(cells.get(column, "") for column in columns), *texts)))
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}", hint="choose another file for --csv") from error
    return count


def safe_cell(text: str) -> str:
    """Return text that no spreadsheet runs as a formula, in whole or, split at a comma, semicolon, tab or line break, in part.

    An apostrophe precedes = + - @ wherever a cell may begin. A tab becomes a space, and harmful characters are `replaced`.
    """
    plain = replaced(text).replace("\t", " ")
    return _CELL_START.sub(lambda found: f"{found[0][:-1]}'{found[1]}" if found[1] else found[0], plain)
