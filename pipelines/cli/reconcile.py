"""`eventsync reconcile`: searches the service's list of events for rows whose event id is not known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, OneFeed

if IS_WORKING:
    from mappings.outcome import shown_place
    from mappings.row_key import shell_word
    from pipelines.cli.output.console import Output, document_from, spelt
    from pipelines.cli.state_reader import open_feed_session
    from pipelines.clock import now
    from pipelines.logs import configure_logs
    from pipelines.run.context import open_api, require_service
    from pipelines.run.outcome import ExitCode
    from pipelines.run.reconcile import ListRead, RowVerdict, Verdict
    from pipelines.run.reconcile import reconcile as reconcile_rows
    from pipelines.settings import current_settings
    from state.enums import EntryState
    from state.ledger.decisions import Found
    from state.ledger.standing import read_reconcile_candidates


def reconcile(
    feed: OneFeed,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Search and print; record nothing.")] = False,
    as_json: AsJson = False,
) -> int:
    """Search the service's list of events for a feed's unconfirmed, uncertain and conflicting rows.

    For example:

        # Show what it would find
        eventsync reconcile lisbon-agenda --dry-run
        # Record what is certain
        eventsync reconcile lisbon-agenda

    Reads the whole list (GET /events) and compares it with what was sent and with the source as last read. A row is recorded
    as delivered if one event has its title and start, differs in no field that the list shows, and matches no other row. Any
    other match is only shown, with the command to decide about it. Sending a row again is suggested only if no event of the
    list matches it. The key needs a scope to read events. Exit codes: 0 every row was found, 1 some were not, 2 configuration,
    3 the key may not read events, 4 a run holds the feed, 6 the service is unavailable.
    """
    settings, output = current_settings(), Output(is_json=as_json)
    configure_logs(settings)
    require_service(settings)
    with open_feed_session(feed) as session:
        name = session.scope.feed
        sought = list(read_reconcile_candidates(session.engine, session.scope, now(), session.policy().key_memory_s))
        if all(is_rival for _, is_rival in sought):
            nothing = SoughtCounts(sought=0, found=0, candidates=0, absent=0)
            output.document(Reconciliation(feed=name, counts=nothing, list=None, rows=[], is_dry=False))
            output.note(f"{name}: no row that was sent waits for its event id; nothing to search for")
            return 0
        if not dry_run:
            with session.deciding("reconcile"):
                pass  # fail before a long list is read: nothing can be recorded while a run holds the feed

        def record(found: Sequence[Found]) -> Collection[Found]:
            with session.deciding("reconcile") as decisions:
                return decisions.record_found(found)

        with output.progress(f"{name}: events read") as bar:
            read, verdicts = reconcile_rows(
                rows=sought,
                open_api=lambda: open_api(session.settings, session.policy(), session.engine),
                owners=lambda event_ids: session.queries.owners(session.scope.destination, event_ids),
                record=None if dry_run else record,
                advance=bar.advance,
            )
    number = Counter(one.verdict for one in verdicts)
    found, candidates, absent = (number[one] for one in (Verdict.FOUND, Verdict.CANDIDATE, Verdict.ABSENT))
    counts = SoughtCounts(sought=len(verdicts), found=found, candidates=candidates, absent=absent)
    rows = [_document(name, read, one, is_dry=dry_run) for one in verdicts]
    output.document(Reconciliation(feed=name, counts=counts, list=read, rows=rows, is_dry=dry_run))
    output.note(*_lines(name, read, counts, is_dry=dry_run))
    output.table(f"{name}: searched rows", map(_line, rows[:_SHOWN]))
    if len(rows) > _SHOWN:
        output.note(f"only the first {_SHOWN} are shown; --json prints all")
    return 0 if found == len(verdicts) else int(ExitCode.ATTENTION)


class SoughtCounts(TypedDict):
    """Searched rows by result: `sought = found + candidates + absent`."""

    sought: int
    found: int
    candidates: int
    absent: int


class SoughtRow(TypedDict):
    """A row that was searched in the service's list of events, and the result."""

    row_key: str
    state: EntryState
    place: str
    verdict: Verdict
    event_ids: Sequence[int]
    why: str
    help: str


class Reconciliation(TypedDict):
    """The result of the search for rows whose event is not known; `list` is null if there was nothing to search for."""

    feed: str
    counts: SoughtCounts
    list: ListRead | None
    rows: Sequence[SoughtRow]
    is_dry: bool


_SHOWN = 100
_NAMED = 3


def _lines(feed: str, read: ListRead, counts: SoughtCounts, *, is_dry: bool) -> Iterator[str]:
    of_all = f" of {read.total:,}" if read.total is not None else ""
    yield f"{feed}: {read.events:,}{of_all} events read; the list shows {', '.join(read.fields) or 'no fields'}"
    if not read.is_whole:
        yield "  the list kept changing and may be incomplete: run this again before you decide"
    if read.without_id:
        yield f"  {read.without_id:,} items without an id were left out"
    verb = "would be delivered" if is_dry else "delivered"
    terms = (f"{verb} {counts['found']:,}", f"to be decided {counts['candidates']:,}", f"not found {counts['absent']:,}")
    yield f"  searched {counts['sought']:,} = {' + '.join(terms)}"


def _document(feed: str, read: ListRead, one: RowVerdict, *, is_dry: bool) -> SoughtRow:
    command = f"eventsync resolve {feed} {shell_word(one.row.row_key)}"
    advice, why = "", one.why
    if one.verdict is Verdict.FOUND and is_dry:
        advice = f"`eventsync reconcile {feed}` records it"
    elif one.verdict is Verdict.CANDIDATE:
        advice = "\n".join(f"{command} --event-id {event_id}" for event_id in one.event_ids[:_NAMED])
    elif one.verdict is Verdict.ABSENT:
        why += f"; {read.events:,} were read"
        advice = f"if the list is complete: {command} --resend" if one.may_be_resent and read.is_whole else ""
    found = {"verdict": one.verdict, "event_ids": one.event_ids, "why": why, "help": advice}
    return document_from(SoughtRow, one.row, place=one.row.origin, **found)


def _line(row: SoughtRow) -> dict[str, object]:
    events = ", ".join(map(str, row["event_ids"][:_NAMED])) + (", …" if len(row["event_ids"]) > _NAMED else "")
    row_line = {"was": spelt(row["state"]), "row key": row["row_key"], "place": shown_place(row["place"]), "event": events}
    return {**row_line, "why": row["why"], "what to do": row["help"]}
