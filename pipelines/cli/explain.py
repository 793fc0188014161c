"""`eventsync explain`: shows what each step of the mapping does to one row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, AsOf, FeedOrFile

if IS_WORKING:
    from connectors.sources.catalogue import open_source
    from connectors.sources.contract import Source
    from mappings.compiler.explain import TracedStep, explain_row
    from mappings.compiler.mapper import RowMapper, compile_feed
    from mappings.compiler.payload import EACH_EVENT
    from mappings.compiler.rows import left_out
    from mappings.delivery import split_destination
    from mappings.errors import ConfigError, FileProblem
    from mappings.outcome import Absorbed, MappedRow, Rejection, RowOutcome, Skipped, SourceRow
    from mappings.positions import locate
    from mappings.reasons import did_you_mean
    from mappings.row_key import FeedName, IdempotencyKey, RowKey, typed_key
    from mappings.spec.feed import FeedMapping
    from mappings.spec.rules import Duplicates, Group
    from mappings.yaml.loader import document_of
    from pipelines.cli.feed_files import named_mapping, shown_path
    from pipelines.cli.output.console import Output, Progress, document_from, shortened
    from pipelines.cli.preview import (
        FirstRun,
        Foreseen,
        Held,
        OtherRow,
        Outcome,
        RuleSeen,
        describe_outcome,
        likeness,
        show_basis,
    )
    from pipelines.cli.rows import Entry, entry_of
    from pipelines.cli.service_lists import known_lists
    from pipelines.cli.state_reader import StateReader, open_state
    from pipelines.clock import now
    from pipelines.run.options import as_of_moment
    from pipelines.settings import current_settings
    from state.enums import EntryState
    from state.ledger.standing import FeedScope, RowRecord
    from state.queries import RowFilter

Row = Annotated[
    str,
    typer.Argument(
        metavar="ROW",
        help="As commands print it: a row's or an event's key, a number, a place (events.csv:17), an idempotency key (es1-…), "
        '"event 57", or the text of its title cell.',
    ),
]


def explain(feed: FeedOrFile, row: Row, as_of: AsOf = None, as_json: AsJson = False) -> int:
    """Show each step of the mapping for one row, and its outcome.

    For example:

        # A row by its key, or by its number in the file
        eventsync explain lisbon-agenda LX-2041
        eventsync explain lisbon-agenda 17
        # One event of a row that gives several
        eventsync explain lisbon-agenda 'LX-2041|2027-05-03'
        # A place copied from a list of rejections
        eventsync explain drafts/lisbon.yaml agenda.csv:17

    For each field: the raw cell, input and output of each step, and the step that refused the value, with the reason. For each
    rule: its condition and the value found. Then the event as it would be sent, the rule that leaves the row out, or the other
    row that this one duplicates or resembles; and the row's entry in the ledger. The source is read to its end; nothing is
    written or sent. If ROW is both a key and a number, the key counts. The steps of a row that
    gives several events stand under a heading for each event, with its key and start. Exit codes: 0 done, 2 there is no such row.
    """
    settings, output = current_settings(), Output(is_json=as_json)
    mapping = named_mapping(settings, feed)
    known = known_lists(settings, mapping)
    moment = as_of_moment(as_of, mapping) if as_of else None
    mapper = compile_feed(mapping, known.directory, moment or now())
    first_run = FirstRun()
    with open_state() as reader:
        scopes = reader.scopes_of(mapping.feed)
        if name := _name_of_event(row):
            sent = (record.row_key for scope in scopes for record in reader.queries.rows(scope, RowFilter(name=name)))
            row = next(sent, RowKey(row))
        with output.progress(f"searching {mapping.feed} for {row}") as bar:
            source = open_source(
                mapping.source, mapping.path.parent, mapper.columns, access=settings.access, folders=mapping.folders, now=moment
            )
            found, outcomes = _find(mapping.feed, source, mapper, row, bar, first_run)
        steps = explain_row(mapping, known.directory, found, moment or now()).steps
        keys = sorted({outcome.row_key for outcome, _ in outcomes})
        records = [(key, record) for key in keys for record in _records(reader, scopes, key)]
        entries, known_rows = [entry_of(record, mapping.feed) for _, record in records], dict(records)
        described = []
        for outcome, foreseen in outcomes:
            became = _as_known(outcome, first_run.in_the_end(foreseen), known_rows.get(outcome.row_key))
            other = _known_other(reader, mapping.feed, became, known_rows.get(outcome.row_key), first_run.other(became))
            described.append(describe_outcome(became, _rule_seen(mapping, steps, became), other))
    documents = [document for document, _ in described]
    of_row = {"as_of": moment, "place": found.location.place, "cells": found.cells, "steps": steps}
    output.document(document_from(Explained, known, feed=mapping.feed, **of_row, outcomes=documents, ledger=entries))
    if as_json:
        return 0
    show_basis(output, known, moment)
    starts = {outcome.row_key: json.loads(outcome.body)["startAt"] for outcome, _ in outcomes if isinstance(outcome, MappedRow)}
    output.table(f"{found.location}, step by step", _lines(steps, starts))
    output.note(*(text for _, text in described))
    for entry in entries:
        event = f", event {entry['event_id']}" if entry["event_id"] is not None else ""
        state = ": ".join(filter(None, (f"in the ledger: {entry['state']}{event}", entry["problem"])))
        output.note("; ".join(filter(None, (state, entry["hint"]))))
    if not entries:
        output.note("not in the ledger: no run has staged an event for it")
    return 0


class Explained(TypedDict):
    """One row step by step: its raw cells, the input and output of each step, its outcomes, its entries in the ledger.
    `to_fill_in`, `as_of`: as in the document of `preview`.
    """

    feed: str
    lists: Literal["live", "offline"]
    why_offline: str
    to_fill_in: Sequence[FileProblem]
    as_of: datetime | None
    place: str
    cells: Mapping[str, str]
    steps: Sequence[TracedStep]
    outcomes: Sequence[Outcome]
    ledger: Sequence[Entry]


_KEPT_KEYS = 50_000
_BY_TITLE = 3
_NAMED = 5
_EVENT = re.compile(r"es1-[0-9a-f]{32}|event #?([0-9]{1,18})", re.ASCII)


def _find(
    feed: FeedName,
    source: Source,
    mapper: RowMapper,
    word: str,
    bar: Progress,
    first_run: FirstRun,
) -> tuple[SourceRow, list[tuple[RowOutcome, Foreseen]]]:
    """Return the row that `word` names by place, key, number or title, with its outcomes: by itself, and in a first run.

    The source is read to its end: any other row may have the same key or resemble this one.
    """
    # the first row that the word names by key or place (0), by an event's key (1), by number (2), by its title (3)
    named = dict[int, SourceRow]()
    keys: dict[RowKey, None] = {}
    wanted, number, titled = typed_key(word), word.lstrip("#:"), dict[str, None]()
    column, title = mapper.field_columns.get("title", ""), _as_title(word)

    def compared(rows: Iterable[SourceRow]) -> Iterator[SourceRow]:
        for row in rows:
            bar.advance()
            key = mapper.key_of(row)
            if word in row.location.names or (key and wanted == key):
                named.setdefault(0, row)
            elif key and wanted.startswith(f"{key}|"):
                named.setdefault(1, row)
            elif number == row.location.shown_number:
                named.setdefault(2, row)
            elif title and _as_title(row.cells.get(column, "")) == title:
                named.setdefault(_BY_TITLE, row)
                titled[key or str(row.location)] = None
            if key and len(keys) < _KEPT_KEYS:
                keys[key] = None
            yield row

    became: list[tuple[RowOutcome, Foreseen]] = []
    with source.read() as reading:
        for outcome in mapper.over(compared(reading.rows)):
            foreseen, _ = first_run.take(outcome)
            if any(row.location == outcome.location for row in named.values()):
                became.append((outcome, foreseen))
    if not named:
        accepted = "its key, number, place or title, or an event's key, idempotency key or number, as in `event 57`"
        hint = did_you_mean(wanted, keys) or f"`eventsync preview {feed}` shows rows and keys: write {accepted}"
        raise ConfigError(f"{feed}: {word!r} is not in the source as read now", hint=hint)
    if min(named) == _BY_TITLE and len(titled) > 1:
        some = ", ".join(list(titled)[:_NAMED]) + ", …" * (len(titled) > _NAMED)
        raise ConfigError(f"{feed}: {len(titled):,} rows have the title {word!r}: {some}", hint="name one of them by its key")
    found = named[min(named)]
    return found, [one for one in became if one[0].location == found.location]


def _as_title(text: str) -> str:
    return " ".join(typed_key(text).casefold().split())


def _name_of_event(word: str) -> IdempotencyKey | int | None:
    """Return the idempotency key or the event's id that a word is, None if it is another name."""
    found = _EVENT.fullmatch(word.strip())
    return None if found is None else int(found[1]) if found[1] else IdempotencyKey(found[0])


def _records(reader: StateReader, scopes: Iterable[FeedScope], key: RowKey) -> Iterator[RowRecord]:
    for scope in scopes if key else ():
        yield from reader.queries.rows(scope, RowFilter(row_key=key))


def _as_known(outcome: RowOutcome, foreseen: Foreseen, record: RowRecord | None) -> Foreseen:
    """Return the outcome of a row, given its ledger entry: held stays held, known is compared also outside the window."""
    if isinstance(outcome, Rejection) and isinstance(foreseen, MappedRow):
        return outcome
    if record is None or not isinstance(outcome, MappedRow) or not isinstance(foreseen, MappedRow | Held | Skipped):
        return foreseen
    if record.state is EntryState.HELD and record.candidate:
        return Held(outcome.location, outcome.row_key, record.candidate.row_key, outcome.part, outcome.body)
    return outcome


def _known_other(
    reader: StateReader, feed: FeedName, became: Foreseen, record: RowRecord | None, other: OtherRow | None
) -> OtherRow | None:
    """Return the other row with its ledger entry; for a held row, the entry that it resembles."""
    if not isinstance(became, Held | Absorbed):
        return None
    of_feed, key, scopes = feed, became.row_key, reader.scopes_of(feed)
    if isinstance(became, Held):
        key = became.original_key
    if record and record.candidate:
        of_feed, namespace = FeedName(record.candidate.feed) or feed, record.candidate.namespace
        scopes = reader.scopes_of(of_feed)
        if namespace:
            scopes = tuple(
                one for one in reader.queries.known(feed=of_feed) if split_destination(one.destination)[1] == namespace
            )
    known = next(_records(reader, scopes, key), None)
    if known is None:
        return other
    alike = other["alike"] if other else {}
    if isinstance(became, Held):
        theirs = likeness(known.event)
        alike = {name: value for name, value in became.alike.items() if theirs.get(name) == value}
    place = other["place"] if other and of_feed == feed else known.origin
    state, of_other = known.state.value, "" if of_feed == feed else of_feed
    return OtherRow(place=place, row_key=key, feed=of_other, state=state, event_id=known.event_id, alike=alike)


def _rule_seen(mapping: FeedMapping, steps: Sequence[TracedStep], became: Foreseen) -> RuleSeen | None:
    """Return the rule that left a row out or absorbed it, with its conditions; None if no rule did."""
    place, spelt, label = 0, "", ""
    match became:
        case Skipped():
            place, label = became.rule, became.because
        case MappedRow():
            label = became.outside
        case Absorbed():
            rule = mapping.rule(Duplicates) or mapping.rule(Group)
            place = mapping.rows.index(rule) + 1 if rule else 0
            spelt = type(rule).__name__.lower() if rule else ""
        case _:
            pass
    for step in steps if label else ():
        number = step.field.removeprefix("rule ")
        if step.comes_out == left_out(label) and number.isdigit() and place in {0, int(number)}:
            place, spelt = int(number), step.step
    if not place:
        return None
    line, column, _ = locate(document_of(mapping.path, mapping.folders), ("rows", place - 1))[0]
    tests, asked = list[TracedStep](), list[TracedStep]()
    for step in steps:  # of a row of several events, only those that are left out
        if step.field == f"rule {place}":
            asked.append(step)
            if step.step == spelt:
                tests += (asked[:-1] or asked) if step.comes_out == left_out(label) else ()
                asked = []
    return RuleSeen(place=place, at=f"{shown_path(mapping.path)}:{line}:{column}", rule=spelt, tests=tests)


def _lines(steps: Iterable[TracedStep], starts: Mapping[RowKey, str]) -> Iterator[dict[str, object]]:
    """Yield one table line per step, and one before each event of several; only the first step of a field names the field."""
    before = None
    for step in steps:
        if step.field == EACH_EVENT:
            before, start = None, starts.get(RowKey(step.step), "")
            yield {"field": f"event {step.step}", "step": "starts" if start else "", "goes in": "", "comes out": start}
            continue
        field = "" if step.field == before else step.field
        before = step.field
        comes_out = f"refused: {step.refused}" if step.refused else step.comes_out or "(nothing)"
        yield {"field": field, "step": step.step, "goes in": shortened(step.goes_in), "comes out": shortened(comes_out)}
