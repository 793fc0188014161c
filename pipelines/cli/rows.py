"""`eventsync rows`: ledger entries and rejected rows, as a list or as a CSV file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.completion import state_words
from pipelines.cli.options import IS_WORKING, AsJson, OneFeed

if IS_WORKING:
    from pipelines.cli.listed_rows import Entry, Problem, chosen_rows, csv_of, parse_choice
    from pipelines.cli.output.console import Output
    from pipelines.cli.output.csv import write_csv
    from pipelines.cli.state_reader import StateReader, open_state
    from pipelines.cli.unmapped import COLUMNS, Unmapped, unmapped_of
    from pipelines.settings import current_settings

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
    if unmapped:
        return list_unmapped(feed, as_json=as_json)
    settings, output = current_settings(), Output(json=as_json)
    choices = parse_choice(state)
    most = SHOWN if limit is None and csv is None else limit
    with open_state(settings) as reader:
        name = reader.feed_name(feed)
        found = _rows(reader, name, choices)
        listed = islice(found, most)
        rows = list(listed) if csv is None or as_json else []  # of a file for people, no row is kept
        count = 0 if csv is None else write_csv(csv, map(csv_of, rows or listed))
        is_more = next(found, None) is not None
        elsewhere = "" if reader.books_of(name) else reader.elsewhere_sentence()
    output.document(Rows(feed=name, state=state or "waiting", rows=rows, is_more=is_more, csv=csv))
    if csv is not None:
        output.note(f"{csv}: {count:,} row{'s' * (count != 1)}")
        return 0
    title = f"{name}: {state or 'what waits for a person'}"
    output.table(title, _COLUMNS, [_row(row) for row in rows])
    if elsewhere:
        output.note(elsewhere)
    if is_more:
        output.note(f"the first {most}; --limit shows more, --csv FILE writes all")
    return 0


class Rows(TypedDict):
    """The rows asked for; `is_more`: there are more than were asked for. `csv`: the file they were written to."""

    feed: str
    state: str
    rows: Sequence[Problem | Entry]
    is_more: bool
    csv: Path | None


class UnmappedValues(TypedDict):
    """Values that no lookup knows, each once, the commonest first."""

    feed: str
    unmapped: Sequence[Unmapped]


SHOWN = 100
_COLUMNS = ("state", "place", "row key", "event", "problem", "what would help")


def list_unmapped(feed: str, *, as_json: bool) -> int:
    """List the values that no lookup knows, as the last run that read the source has met them; return 0.

    Raises:
        ConfigError: there is no such feed.
    """
    settings, output = current_settings(), Output(json=as_json)
    with open_state(settings) as reader:
        name = reader.feed_name(feed)
        book = reader.book(name)
        values = () if reader.books is None or book is None else unmapped_of(reader.books, book)
    output.document(UnmappedValues(feed=name, unmapped=values))
    if not values:
        output.note(f"{name}: the lookups know every value that was looked up")
        return 0
    output.table(f"{name}: values that no lookup knows", COLUMNS, [value.line for value in values])
    return 0


def _rows(reader: StateReader, feed: str, choices: tuple[str, ...]) -> Iterator[Problem | Entry]:
    """Yield the rows asked for, however many there are."""
    book = reader.book(feed)
    if reader.books is not None and book is not None:
        yield from chosen_rows(reader.books, book, choices)


def _row(row: Problem | Entry) -> tuple[object, ...]:
    event_id = "" if row["event_id"] is None else str(row["event_id"])
    return str(row["state"]), row["place"], row["row_key"], event_id, row["problem"], row["hint"]
