"""`run --dry-run`: a run on a copy of the feed's ledger, as far as the first request; nothing real is written or sent.

The copy is `state.rehearsal`'s; stage, brakes and gate are those of a real run. What is shown is `rehearsal_report`'s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mappings.delivery import Intent
from mappings.errors import SyncError
from mappings.spec.feed import FeedMapping
from pipelines.cli.output import Output, Progress
from pipelines.cli.rehearsal_report import SHOWN, Owed, Rehearsal, Sending, show_rehearsals
from pipelines.cli.severity import worst
from pipelines.clock import new_run_id, now
from pipelines.run.brakes import BrakeError, brake_error, pass_the_gate
from pipelines.run.context import RunContext
from pipelines.run.feed_run import FeedRun, RunIdentity, Watcher
from pipelines.run.options import RunOptions
from pipelines.run.outcome import ExitCode, Outcome, faults_as_errors, outcome_of
from pipelines.run.publish import PublishReport
from pipelines.run.signals import InterruptedRunError, is_stop_asked
from pipelines.run.standing import outcome_of_publish
from pipelines.settings import Settings
from state.archive.rehearsal import rehearsal_copy
from state.database import existing_database
from state.ledger.accounts import PublishAccount
from state.ledger.outbox import Outbox
from state.ledger.row_record import Book
from state.views.books import Books
from state.views.views import RowFilter

_CLAIMED_AT_ONCE = 500
_LAUNCHED_BY = "a rehearsal"


def rehearse_feeds(settings: Settings, feeds: Sequence[FeedMapping], options: RunOptions, output: Output) -> int:
    """Rehearse each feed and show what a run would do; return 0, or the gravest exit code that a run would end with.

    5: a brake would stop it. What only the service's answers to events can tell is not known.
    """
    rehearsals = []
    for mapping in feeds:
        with output.progress(f"rehearsing {mapping.feed}") as bar:
            rehearsals.append(_rehearse(settings, mapping, options, bar))
        if is_stop_asked():
            break
    show_rehearsals(output, rehearsals)
    return worst({int(rehearsal.outcome.exit_code) for rehearsal in rehearsals})


def _rehearse(settings: Settings, mapping: FeedMapping, options: RunOptions, bar: Progress) -> Rehearsal:
    try:
        with (
            faults_as_errors(lambda: "rehearsing"),
            existing_database(settings.state_url) as engine,
            rehearsal_copy(engine, settings.destination, mapping.feed) as copy,
        ):
            run = FeedRun(
                workshop=RunContext(settings, copy),
                mapping=mapping,
                ticket=RunIdentity(new_run_id(now()), _LAUNCHED_BY),
                options=options,
                watcher=Watcher(read=bar.advance),
            )
            return _on_copy(run)
    except SyncError as error:
        return Rehearsal(mapping.feed, outcome_of(error))
    except KeyboardInterrupt:
        interrupted = InterruptedRunError("interrupted; nothing was written or sent", hint="rehearse it again")
        return Rehearsal(mapping.feed, outcome_of(interrupted))


def _on_copy(run: FeedRun) -> Rehearsal:
    feed = run.mapping.feed
    staged = None if run.options.publish_only else run.stage()
    rehearsed = Outcome("rehearsed", ExitCode.DONE)
    if staged and staged.stopping:
        return Rehearsal(feed, outcome_of(brake_error(staged.stopping, feed)), staged)
    if run.options.stage_only:
        return Rehearsal(feed, rehearsed, staged)
    try:
        pass_the_gate(run.workshop.ledger(run.mapping), run.mapping, run.options, _LAUNCHED_BY)
    except BrakeError as closed:
        return Rehearsal(feed, outcome_of(closed), staged)
    owed = _owed(run)
    told = outcome_of_publish(PublishReport(PublishAccount(), None, 0.0, standing=owed.standing), run.mapping)
    outcome = replace(told, name=rehearsed.name) if told.exit_code is ExitCode.DONE else told
    return Rehearsal(feed, outcome, staged, owed, _waiting(run))


def _waiting(run: FeedRun) -> Mapping[str, int]:
    """Count what would wait for a person after the run, before any answer of the service."""
    (status,) = Books(run.workshop.engine, run.workshop.now).status(
        destination=run.workshop.settings.destination, feed=run.mapping.feed
    )
    return status.waiting


def _owed(run: FeedRun) -> Owed:
    """Return how many rows the run would send, the first of them in the order of sending, and what nobody has decided on."""
    with run.workshop.lease(run.mapping, _LAUNCHED_BY, is_patient=False) as lease:
        outbox = run.workshop.publish_job(run.mapping, run.ticket.run_id, lease, run.options, run.watcher.settled).outbox
        owed = outbox.owed
        intents = outbox.settle_and_claim((), SHOWN)
        first = tuple(_sending(run, intent) for intent in intents)
        count = len(intents) + _rest(outbox) if run.options.keys else min(owed, run.options.limit or owed)
        return Owed(count, first, outbox.standing())


def _rest(outbox: Outbox) -> int:
    """Count what is left in an outbox of picked keys, by taking it out."""
    count = 0
    while claimed := len(outbox.settle_and_claim((), _CLAIMED_AT_ONCE)):
        count += claimed
    return count


def _sending(run: FeedRun, intent: Intent) -> Sending:
    book = Book(run.workshop.settings.destination, run.mapping.feed)
    entry = Books(run.workshop.engine).rows(book, RowFilter(row_key=intent.row_key))[0]
    return Sending(entry.origin, intent.row_key, intent.key, json.loads(intent.body))
