"""`eventsync explain`: what each step of the mapping makes of one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, FeedOrFile

if IS_WORKING:
    from connectors.sources.catalogue import open_source
    from connectors.sources.contract import Source
    from mappings.compiler.mapper import RowMapper, TracedStep, compile_feed, explain_row
    from mappings.errors import ConfigError
    from mappings.outcome import SourceRow, if_unknown
    from mappings.reasons import did_you_mean
    from mappings.row_key import FeedName, RowKey
    from pipelines.cli.feed_files import named_mapping
    from pipelines.cli.output.console import Output, Progress, document_from
    from pipelines.cli.preview import Outcome, describe_outcome
    from pipelines.cli.rows import Entry, entry_of
    from pipelines.cli.service_lists import known_lists
    from pipelines.cli.state_reader import open_state, typed_key
    from pipelines.clock import now
    from pipelines.settings import current_settings
    from state.queries import RowFilter

Row = Annotated[str, typer.Argument(metavar="ROW", help="A row's key, its number, or its place as it is shown: events.csv:17.")]


def explain(feed: FeedOrFile, row: Row, as_json: AsJson = False) -> int:
    """Show what each step of the mapping makes of one row, and what becomes of it.

    For example:

        # A row by its key, or by its number in the file
        eventsync explain lisbon-agenda LX-2041
        eventsync explain lisbon-agenda 17
        # A place copied from a list of rejections
        eventsync explain drafts/lisbon.yaml agenda.csv:17

    For each field: the raw cell, what goes into each step and what comes out, the step that refused it and why, the rule
    that leaves the row out; then the event as it would be sent, and what the ledger knows of it. Nothing is written or
    sent. A word that is both a key and a number means the key. Exit codes: 0, or 2 where there is no such row.
    """
    settings, output = current_settings(), Output(json=as_json)
    mapping = named_mapping(settings, feed)
    known = known_lists(settings)
    mapper = compile_feed(mapping, known.directory, now())
    with output.progress(f"looking for {row} in {mapping.feed}") as bar:
        source = open_source(mapping.source, mapping.path.parent, mapper.columns, access=settings.access)
        found = _find(mapping.feed, source, mapper, row, bar)
    explanation = explain_row(mapping, known.directory, found, now())
    keys = {outcome.row_key for outcome in explanation.outcomes}
    with open_state() as reader:
        wanted = [RowFilter(row_key=key) for key in sorted(keys) if key]
        records = [
            record for scope in reader.scopes_of(mapping.feed) for one in wanted for record in reader.queries.rows(scope, one)
        ]
        entries = [entry_of(record, mapping.feed) for record in records]
    sent = {entry["row_key"] for entry in entries}
    described = [
        describe_outcome(one if one.row_key in sent or (one.known_as and sent) else if_unknown(one))
        for one in explanation.outcomes
    ]
    documents = [document for document, _ in described]
    of_row = {"place": found.location.place, "cells": found.cells, "steps": explanation.steps}
    output.document(document_from(Explained, known, feed=mapping.feed, **of_row, outcomes=documents, ledger=entries))
    if as_json:
        return 0
    if known.sentence:
        output.note(f"{known.sentence}\n")
    columns = ("field", "step", "goes in", "comes out")
    output.table(f"{found.location}, step by step", columns, _lines(explanation.steps))
    output.note(*(text for _, text in described))
    for entry in entries:
        event = f", event {entry['event_id']}" if entry["event_id"] is not None else ""
        state = ": ".join(filter(None, (f"the ledger has it as {entry['state']}{event}", entry["problem"])))
        output.note("; ".join(filter(None, (state, entry["hint"]))))
    if not entries:
        output.note("the ledger does not know it: no run here has made an event of it")
    return 0


class Explained(TypedDict):
    """One row step by step: its raw cells, what each step made of them, what became of it, what the ledger has of it."""

    feed: str
    lists: Literal["live", "offline"]
    why_offline: str
    place: str
    cells: Mapping[str, str]
    steps: Sequence[TracedStep]
    outcomes: Sequence[Outcome]
    ledger: Sequence[Entry]


_KEPT_KEYS = 50_000
_LONGEST = 300


def _find(feed: FeedName, source: Source, mapper: RowMapper, word: str, bar: Progress) -> SourceRow:
    """Return the row that a person means: by place, by key, else by number."""
    numbered: SourceRow | None = None
    keys: dict[RowKey, None] = {}
    wanted = typed_key(word)
    with source.read() as reading:
        for row in reading.rows:
            bar.advance()
            seen = mapper.keys_of(row)
            if row.location.place == word or wanted in seen:
                return row
            if str(row.location.number) == word.lstrip("#:"):
                numbered = row
            if seen and len(keys) < _KEPT_KEYS:
                keys[seen[0]] = None
    if numbered is None:
        hint = did_you_mean(wanted, keys) or f"`eventsync preview {feed}` shows rows and keys"
        raise ConfigError(f"{feed}: the source has no row {word!r}", hint=hint)
    return numbered


def _lines(steps: Iterable[TracedStep]) -> Iterator[tuple[str, ...]]:
    """One line a step; a field stands on the first line of its steps only."""
    before = None
    for step in steps:
        field = "" if step.field == before else step.field
        before = step.field
        comes_out = f"refused: {step.refused}" if step.refused else step.comes_out or "(nothing)"
        texts = (text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…" for text in (step.goes_in, comes_out))
        yield field, step.step, *texts
