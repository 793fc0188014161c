"""The command `reconcile` at work: what is looked for and with what, and how it is told what was found.

How rows and events are matched is `pipelines.reconciliation.matching`'s.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pipelines.cli.at_hand import FeedAtHand, feed_at_hand
from pipelines.cli.output import Output
from pipelines.clock import now
from pipelines.run.context import open_api, require_service, sharing_over
from pipelines.run.outcome import ExitCode
from pipelines.run.reconcile import ListRead, Reconciled, ReconcileJob, RowVerdict, Verdict, reconcile
from pipelines.settings import current_settings
from pipelines.telemetry.logs import configure_logs
from state.ledger.decisions import Found
from state.ledger.sought import Sought, read_sought

_COLUMNS = ("was", "row key", "place", "event", "why", "what would help")
_SHOWN = 100
_NAMED = 3


def reconcile_feed(feed: str, *, is_dry: bool, as_json: bool) -> int:
    """Look for the feed's rows and tell what was found; return 0 if every row was, else 1.

    Raises:
        ConfigError: there is no such feed, or no service is configured.
        HeldByAnotherError: a run holds the feed.
        SyncError: the list cannot be read.
    """
    settings, output = current_settings(), Output(json=as_json)
    configure_logs(settings)
    require_service(settings)
    with feed_at_hand(settings, feed) as at_hand:
        rows = list(read_sought(at_hand.engine, at_hand.book, now(), at_hand.policy().key_memory_s))
        if all(row.is_rival for row in rows):
            return _tell_nothing(output, at_hand)
        if not is_dry:
            _leave_if_held(at_hand)
        with output.progress(f"{at_hand.book.feed}: events read") as bar:
            reconciled = reconcile(_job(at_hand, rows, bar.advance, is_dry=is_dry))
    return _tell(output, at_hand, reconciled, is_dry=is_dry)


def _leave_if_held(at_hand: FeedAtHand) -> None:
    """Do not read a long list for nothing: what is found could not be recorded while a run holds the feed."""
    with at_hand.deciding("reconcile"):
        return


def _job(at_hand: FeedAtHand, rows: Sequence[Sought], advance: Any, *, is_dry: bool) -> ReconcileJob:
    def record(found: Sequence[Found]) -> Collection[Found]:
        with at_hand.deciding("reconcile") as decisions:
            return decisions.record_found(found)

    sharing = sharing_over(at_hand.engine, at_hand.settings)
    return ReconcileJob(
        rows=rows,
        open_api=lambda: open_api(at_hand.settings, at_hand.policy(), sharing=sharing),
        owners=lambda event_ids: at_hand.books.owners(at_hand.book.destination, event_ids),
        record=None if is_dry else record,
        advance=advance,
    )


def _tell_nothing(output: Output, at_hand: FeedAtHand) -> int:
    counts = {"sought": 0, "found": 0, "candidates": 0, "absent": 0}
    output.document({"feed": at_hand.book.feed, "counts": counts, "list": None, "rows": [], "is_dry": False})
    output.note(f"{at_hand.book.feed}: every row that was sent has its event; nothing to look for")
    return 0


def _tell(output: Output, at_hand: FeedAtHand, reconciled: Reconciled, *, is_dry: bool) -> int:
    feed, read, counts = at_hand.book.feed, reconciled.read, reconciled.counts()
    rows = [_document(feed, read, one, is_dry=is_dry) for one in reconciled.verdicts]
    output.document({"feed": feed, "counts": counts, "list": read, "rows": rows, "is_dry": is_dry})
    for line in _lines(feed, read, counts, is_dry=is_dry):
        output.note(line)
    shown = [_row(row) for row in rows[:_SHOWN]]
    output.table(f"{feed}: rows looked for", _COLUMNS, shown)
    if len(rows) > _SHOWN:
        output.note(f"the first {_SHOWN}; --json has all")
    return 0 if counts["found"] == counts["sought"] else int(ExitCode.ATTENTION)


def _lines(feed: str, read: ListRead, counts: dict[str, int], *, is_dry: bool) -> Iterator[str]:
    of_all = f" of {read.total:,}" if read.total is not None else ""
    yield f"{feed}: {read.events:,}{of_all} events read; items tell {', '.join(read.fields) or 'nothing'}"
    if not read.is_whole:
        yield "  the list changed all the while and may not have been read whole: look again before you decide"
    if read.without_id:
        yield f"  {read.without_id:,} items without an id were left out"
    verb = "would be delivered" if is_dry else "delivered"
    terms = (f"{verb} {counts['found']:,}", f"to be decided {counts['candidates']:,}", f"not found {counts['absent']:,}")
    yield f"  looked for {counts['sought']:,} = {' + '.join(terms)}"


def _document(feed: str, read: ListRead, one: RowVerdict, *, is_dry: bool) -> dict[str, Any]:
    return {
        "row_key": one.row.row_key,
        "state": one.row.state,
        "place": one.row.origin,
        "verdict": one.verdict,
        "event_ids": one.event_ids,
        "why": one.why if one.verdict is not Verdict.ABSENT else f"{one.why}; {read.events:,} were read",
        "help": _help(feed, read, one, is_dry=is_dry),
    }


def _help(feed: str, read: ListRead, one: RowVerdict, *, is_dry: bool) -> str:
    command = f"eventsync resolve {shlex.quote(feed)} {shlex.quote(one.row.row_key)}"
    match one.verdict:
        case Verdict.FOUND:
            return f"`eventsync reconcile {feed}` records it" if is_dry else ""
        case Verdict.CANDIDATE:
            return "\n".join(f"{command} --event-id {event_id}" for event_id in one.event_ids[:_NAMED])
        case Verdict.ABSENT if one.may_be_resent and read.is_whole:
            return f"if the list is complete: {command} --resend"
        case Verdict.ABSENT:
            return ""


def _row(document: dict[str, Any]) -> tuple[str, ...]:
    events = ", ".join(map(str, document["event_ids"][:_NAMED])) + (", …" if len(document["event_ids"]) > _NAMED else "")
    state = f"{document['state']}".replace("_", " ")
    return state, document["row_key"], document["place"], events, document["why"], document["help"]
