"""`eventsync rows`: ledger entries and rejected rows, as a list or as a CSV file for the partner's editor."""

from __future__ import annotations

import csv as csv_module
import json
import re
import shlex
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
    from mappings.reasons import REASON_TEXTS, Reason, did_you_mean
    from mappings.row_key import RowKey
    from mappings.sentences import Words
    from pipelines.cli.output.console import Output, counted, document_from
    from pipelines.cli.run_report import Unmapped, unmapped_of, unmapped_table
    from pipelines.cli.state_reader import open_state
    from pipelines.control_characters import replaced
    from pipelines.run.outcome import ALL, IGNORED, RESENT, WAITING
    from pipelines.run.write_back import standing_of
    from state.enums import Decision, DriftKind, EntryState, ProblemKind, Waiting
    from state.ledger.choices import waits_for_access
    from state.ledger.standing import FeedScope, OtherEntry, RowRecord
    from state.queries import LedgerQueries, ProblemRecord, RowFilter


StateWord = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="S",
        help="conflict, blocked, uncertain, refused, held, delivered_unconfirmed, drift, vanished, earlier, warning, rejected;"
        " or pending, delivered, superseded, resent, ignored. Without it: what waits for a person.",
        autocompletion=state_words,
    ),
]


def rows(
    feed: OneFeed,
    state: StateWord = None,
    unmapped: Annotated[bool, typer.Option("--unmapped", help="Values that no lookup knows, each once, with its rows.")] = False,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write them to FILE, with the partner's own columns.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many (100, or all with --csv).")] = None,
    as_json: AsJson = False,
) -> int:
    """List rows of a feed: those that wait for a person, or those in one state.

    For example:

        # What waits for a person
        eventsync rows lisbon-agenda
        # What the partner has to mend
        eventsync rows lisbon-agenda --state rejected --csv for-partner.csv
        # What is missing in your lookups, each value once
        eventsync rows lisbon-agenda --unmapped
        # What changed after it was delivered
        eventsync rows lisbon-agenda --state drift

    Rows that a person has ignored (ignored), and events that are over, wait no longer. A row may be on several lists. Earlier
    events are those that a changed row has replaced by a new draft; a superseded row has given its event to another key.
    Warnings stay until the row or the mapping changes. The CSV file repeats the partner's columns of rejected, held and warned
    rows, then adds place, problem and hint; it is safe to open in a spreadsheet. Exit code 0.
    """
    output = Output(json=as_json)
    if unmapped:
        with open_state() as reader:
            name, scope = reader.find_feed(feed)
            values = unmapped_of(reader.queries, scope) if scope else ()
        output.document(UnmappedValues(feed=name, unmapped=values))
        output.table(f"{name}: values that no lookup knows", *unmapped_table(values))
        return 0
    choices = parse_choice(state)
    most = _SHOWN if limit is None and csv is None else limit
    with open_state() as reader:
        name, scope = reader.find_feed(feed)
        found = chosen_rows(reader.queries, scope, choices) if scope else iter(())
        rows = list(islice(found, most)) if csv is None or as_json else []  # of a file for people, no row is kept
        is_more = bool(rows) and next(found, None) is not None
        count = 0
        if csv is not None:
            lines = _csv_rows(reader.queries, scope, choices, Words(reader.language(name))) if scope else iter(())
            count = write_csv(csv, islice(lines, most))
        elsewhere = "" if scope else reader.elsewhere_sentence()
    output.document(Rows(feed=name, state=state or "waiting", rows=rows, is_more=is_more, csv=csv))
    if csv is not None:
        output.note(f"{csv}: {counted(count, 'row')}")
        return 0
    table = [
        (str(one["state"]), shown_place(one["place"]), one["row_key"], str(one["event_id"] or ""), one["problem"], one["hint"])
        for one in rows
    ]
    output.table(f"{name}: {state or 'what waits for a person'}", _COLUMNS, table)
    more = f"the first {most}; --limit shows more, --csv FILE writes all" if is_more else ""
    output.note(*filter(None, (elsewhere, more)))
    return 0


class ProblemRow(TypedDict):
    """A row that could not be used, is held, or was used with a warning, with its raw cells. `event_id`: the event that an
    earlier version of the row has; `candidate`: the entry that a held row resembles.
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
    """What the source asks for now, where that is another event than was delivered."""

    kind: DriftKind
    event: dict[str, Any] | None


class Decided(TypedDict):
    """What a person has decided about a row."""

    what: Decision
    by: str
    at: datetime | None
    is_set_aside: bool


class Entry(TypedDict):
    """A row as the ledger has it. `state`: the word it was asked for by; `entry_state`: where it stands with the service;
    `event`: the payload that the service shows, or that is to be delivered; `answer`: what the service said last; `candidate`:
    the entry that a held row resembles, or that has the event of a superseded one; `vanished_by`: the rule that leaves it out.
    `copies`: how many events of the row may exist where the service ignores idempotency keys, counted over all runs.
    """

    state: str
    place: str
    row_key: str
    entry_state: EntryState
    event_id: int | None
    earlier_event_ids: Sequence[int]
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
    """The rows asked for; `is_more`: there are more than were asked for. `csv`: the file they were written to."""

    feed: str
    state: str
    rows: Sequence[ProblemRow | Entry]
    is_more: bool
    csv: Path | None


class UnmappedValues(TypedDict):
    """Values that no lookup knows, each once, the commonest first."""

    feed: str
    unmapped: Sequence[Unmapped]


_SHOWN = 100
_NOT_STATES = frozenset({"resent", "drift", "vanished", "earlier"})
"""Words of `--state` that are about something else than an entry's state."""
_COLUMNS = ("state", "place", "row key", "event", "problem", "what would help")


def parse_choice(word: str | None) -> Sequence[str]:
    """Return what a person asked for; without a word, all that waits for a person.

    Raises:
        ConfigError: there is no such choice.
    """
    if word is None:
        return WAITING
    if word not in ALL:
        hint = did_you_mean(word, ALL) or f"there are {', '.join(ALL)}"
        raise ConfigError(f"--state {word}: there is no such state", hint=hint)
    return (word,)


def chosen_rows(queries: LedgerQueries, scope: FeedScope, choices: Iterable[str]) -> Iterator[ProblemRow | Entry]:
    """Yield the rows asked for, choice by choice, oldest first; an ignored row is on no list but that of ignored ones."""
    for choice in choices:
        if choice in tuple(ProblemKind):
            yield from (_problem(record, scope.feed) for record in queries.every_problem(scope, ProblemKind(choice)))
            continue
        yield from (entry_of(record, scope.feed, choice) for record in queries.every_row(scope, filter_of(choice)))


def filter_of(choice: str) -> RowFilter:
    """Return which entries a word of `--state` means."""
    if choice in tuple(Waiting):
        return RowFilter(waiting=Waiting(choice))
    if choice in {RESENT, IGNORED}:
        return RowFilter(is_resent=choice == RESENT, is_ignored=choice == IGNORED)
    return RowFilter(states=frozenset({EntryState(choice)}))


def _problem(record: ProblemRecord, feed: str) -> ProblemRow:
    found = [(reason, reason.column or reason.field) for reason in record.reasons]
    problem = "\n".join((f"{cell} {reason.found!r}: " if cell else "") + REASON_TEXTS[reason.code] for reason, cell in found)
    hint = "\n".join(reason.hint for reason in record.reasons)
    if record.kind is ProblemKind.HELD:
        problem = f"it looks like the event of {record.candidate}" if record.candidate else problem
        hint = _held_hint(feed, record.row_key, record.candidate)
    elif record.kind is ProblemKind.REJECTED and record.event_id is not None:
        problem += f"\nonline as event {record.event_id}, row now unusable"
    words = {"place": record.origin, "problem": problem, "hint": hint}
    return document_from(ProblemRow, record, state=record.kind, **words)


def entry_of(record: RowRecord, feed: str, choice: str = "") -> Entry:
    """Return a ledger entry: with what the list asked for is about, or else with what its state means."""
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


def _choice_texts(record: RowRecord, feed: str, choice: str) -> tuple[str, str]:  # noqa: PLR0911  # one arm per text
    """Return what is wrong with an entry that is resent, vanished, drifted or has earlier events, and what to do by hand."""
    event = "the event" if record.event_id is None else f"event {record.event_id}"
    earlier = f"event{'s' * (len(record.earlier_event_ids) != 1)} {', '.join(map(str, record.earlier_event_ids))}"
    applied, removed, resend = (_command("resolve", feed, record, f"--{one}") for one in ("applied", "removed", "resend"))
    match choice, record.drift_kind:
        case "resent", _:
            may_exist = f"it may exist up to {record.copies:,} times; now {record.state.value}"
            problem = f"where the service ignores Idempotency-Key, {may_exist}"
            return problem, f"look on the service's pages for events beside {event}"
        case Waiting.VANISHED, _:
            since = f"{record.vanished_at:%Y-%m-%d}" if record.vanished_at else "an earlier read"
            left_out = f"left out since {since} by {record.vanished_by}"
            problem = left_out if record.vanished_by else f"gone from its source since {since}"
            return problem, f"if it is cancelled, remove {event} by hand; then {removed}"
        case Waiting.EARLIER, _:
            problem = f"a changed row was sent as a new draft; earlier {earlier}: remove by hand"
            return problem, f"remove {earlier} by hand; then {removed}"
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
    """Return what an entry's state means, or what the service answered, and what would help."""
    resend, named = _command("resolve", feed, record, "--resend"), _command("resolve", feed, record, "--event-id N")
    otherwise = "--resend that it is not, --ignore leaves it so"
    looks = f"`eventsync reconcile {feed}` looks"
    decides = f"{looks} for it; {named} says that it is there, {otherwise}"
    retry = f"`eventsync retry {feed} --keys {shlex.quote(record.row_key)}`"
    refused = f"nothing was created; it is sent again as soon as its payload changes, or as it is after {retry}"
    denied = f"the next run sends it again; if the service only repeats a denial that it has stored: {resend}"
    pending = "the next run sends it" if record.attempts == 0 else "the next run sends it again, with the same key"
    access = f"ask for access to channel {record.channel_id}; then the next run sends it again"
    forgotten = "the next run sends it again with the same key, unless the service may have forgotten that key meanwhile: then"
    problem, hint = {
        EntryState.PENDING: ("not sent yet", denied if waits_for_access(record) else pending),
        EntryState.HELD: ("", _held_hint(feed, record.row_key, record.candidate)),
        EntryState.REFUSED: ("", refused),
        EntryState.DELIVERED: ("", ""),
        EntryState.DELIVERED_UNCONFIRMED: ("the service has it; its id is not known", f"{looks} its id up; {named} tells it"),
        EntryState.BLOCKED: ("", f"{access}; if the service goes on repeating its denial: {resend}"),
        EntryState.UNCERTAIN: ("no answer that could be understood", f"{forgotten} {decides}"),
        EntryState.CONFLICT: ("", f"this key was used for something else, or by a ledger that was lost: {decides}"),
        EntryState.SUPERSEDED: ("", "a row that returns under this key is held"),
    }[record.state]
    if record.removed_at is not None:
        problem = f"event {record.event_id} was removed by hand"
    elif record.state is EntryState.SUPERSEDED:
        problem = f"its event belongs to {record.candidate or 'another key'} now"
    elif record.answer and (record.state is not EntryState.DELIVERED or record.decision is not None):
        problem = in_short(record.answer) or problem
    return problem, hint


def _held_hint(feed: str, row_key: RowKey, other: OtherEntry | None) -> str:
    resolve = f"eventsync resolve {feed} {shlex.quote(row_key)}"
    same = f"`{resolve} --same-as` moves the event of {other or 'the other key'} to this one"
    return f"{same}\n`{resolve} --release` sends the row all the same\n`{resolve} --ignore` leaves it held, off this list"


def _command(verb: str, feed: str, record: RowRecord, option: str = "") -> str:
    return f"`{' '.join(filter(None, ('eventsync', verb, feed, shlex.quote(record.row_key), option)))}`"


_ADDED = ("place", "problem", "hint")
_STARTS_A_FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # OWASP, "CSV Injection"
_PLAIN_NUMBER = re.compile(r"[+-]?\d[\d .,\u00a0\u202f]*")
_BOM = "\ufeff"
_IN_MEMORY = 4_000_000
"""So many bytes of rows are put aside in memory before they go to a file."""


class CsvRow(NamedTuple):
    """A row in the words of the file: where it is, what is wrong with it, what would help, and its own cells."""

    place: str
    problem: str
    hint: str
    cells: Mapping[str, str]


def _csv_rows(queries: LedgerQueries, scope: FeedScope, choices: Iterable[str], words: Words) -> Iterator[CsvRow]:
    """Yield rows as they stand in a CSV file: of a problem the partner's own cells, of an entry its key, state and event."""
    for choice in choices:
        if choice in tuple(ProblemKind):
            yield from (_csv_problem(record, words) for record in queries.every_problem(scope, ProblemKind(choice)))
            continue
        for record in queries.every_row(scope, filter_of(choice)):
            state = choice if choice in _NOT_STATES else record.state.value
            cells = {"row key": record.row_key, "state": state, "event": str(record.event_id or "")}
            cells |= {name: str(record.event.get(name, "")) for name in ("title", "startAt", "status")}
            yield CsvRow(shown_place(record.origin), standing_of(record, words), "", cells)


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
    """Write one line per row to a file; return how many there were.

    UTF-8 with a byte order mark, so that Excel reads it right. All columns must be known before the first line is written:
    rows lie in a file meanwhile, and memory does not grow with them. A partner's column called like one of ours keeps its name
    and ours becomes `eventsync place`. Cells that a spreadsheet would run as a formula begin with an apostrophe (`safe_cell`).

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
    """Return text that no spreadsheet takes for a formula: an apostrophe goes before = + - @ TAB CR LF.

    Plain numbers (`-5`, `+48 123`) stay as they are. Harmful characters are `replaced`.
    """
    is_formula = text.startswith(_STARTS_A_FORMULA) and not _PLAIN_NUMBER.fullmatch(text)
    return f"'{replaced(text)}" if is_formula else replaced(text)
