"""`eventsync runs`: past runs and their accounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.completion import feed_words, run_words
from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from mappings.errors import ConfigError
    from mappings.outcome import REASON_TEXTS
    from mappings.strict import written
    from pipelines.cli.output.console import Output
    from pipelines.cli.output.words import REJECTION_COLUMNS, rejection_rows
    from pipelines.cli.run_report import Run, run_document, run_head, run_lines, run_told
    from pipelines.cli.state_reader import StateReader, open_state
    from pipelines.settings import current_settings
    from state.ledger.accounts import StageReport
    from state.queries import RunRecord

RunId = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="A run's id, or the beginning of one.", autocompletion=run_words)
]


def runs(
    run: RunId = None,
    feed: Annotated[
        str | None, typer.Option("--feed", metavar="FEED", help="Only runs of this feed.", autocompletion=feed_words)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many runs, the latest first.")] = 20,
    as_json: AsJson = False,
) -> int:
    """List past runs with their accounts, which balance; or show one run in detail.

    For example:

        # The latest
        eventsync runs
        # Those of one feed
        eventsync runs --feed lisbon-agenda
        # One of them
        eventsync runs 20260301T0615

    Exit codes: 0, or 2 if there is no such run.
    """
    return list_runs(feed, limit=limit, as_json=as_json) if run is None else show_run(run, feed, as_json=as_json)


class PastRuns(TypedDict):
    """The latest runs, youngest first."""

    runs: Sequence[Run]


if IS_WORKING:

    class OneRun(Run):
        """One run in full: `stage` has what its read of the source came to."""

        stage: StageReport | None


_SEARCHED = 5_000
_REASON_COLUMNS = ("rows", "column", "found", "problem", "hint")
_HELD_COLUMNS = ("place", "row key", "looks like a copy of")
_REASONS_SHOWN = 20


def list_runs(feed: str | None, *, limit: int, as_json: bool) -> int:
    """List the latest runs; return 0.

    Raises:
        ConfigError: there is no such feed.
    """
    settings, output = current_settings(), Output(json=as_json)
    with open_state(settings) as reader:
        runs = reader.runs(None if feed is None else reader.feed_name(feed), limit)
        elsewhere = reader.elsewhere_sentence()
    output.document(PastRuns(runs=[run_document(run) for run in runs]))
    for run in runs:
        output.note("\n".join(run_told(run)))
    if not runs:
        output.note("no runs yet" + (f"; {elsewhere}" if elsewhere else ""))
    return 0


def show_run(word: str, feed: str | None, *, as_json: bool) -> int:
    """Show one run in detail; return 0.

    Raises:
        ConfigError: no run, or more than one, begins with `word`.
    """
    settings, output = current_settings(), Output(json=as_json)
    with open_state(settings) as reader:
        run = _found(reader, word, None if feed is None else reader.feed_name(feed))
    output.document(OneRun(**run_document(run), stage=run.stage_report))
    output.note(run_head(run))
    for line in (
        f"service: {run.book.destination.replace('#', ', namespace ')}",
        *_times(run),
        *run_lines(run),
        *run.message.splitlines(),
    ):
        output.note(f"  {line}")
    if run.stage_report:
        _show_stage(output, run.stage_report)
    return 0


def _found(reader: StateReader, word: str, feed: str | None) -> RunRecord:
    runs = [run for run in reader.runs(feed, _SEARCHED) if run.run_id.startswith(word) or run.dagster_run_id == word]
    exact = [run for run in runs if word in {run.run_id, run.dagster_run_id}] or runs
    if not exact:
        raise ConfigError(f"there is no run {word!r}", hint="`eventsync runs` lists the latest ones")
    if len(exact) > 1:
        some = ", ".join(f"{run.run_id} ({run.book.feed})" for run in exact[:5])
        raise ConfigError(f"{len(exact)} runs begin with {word!r}: {some}", hint="give more of the id, or --feed")
    return exact[0]


def _times(run: RunRecord) -> list[str]:
    if run.finished_at is None:
        return [f"phase: {run.phase.value}"]
    took_s = (run.finished_at - run.started_at).total_seconds()
    took = f"took {written(took_s)} s" if took_s >= 0 else "took an unknown time (the clock was set back meanwhile)"
    return [f"{took}, exit code {run.exit_code}"]


def _show_stage(output: Output, report: StageReport) -> None:
    counts = {"warnings": report.warnings, "gone from the source": report.vanished, "gone, being over": report.past}
    counts |= {"withdrawn": report.withdrawn}
    for name, count in counts.items():
        if count:
            output.note(f"  {name}: {count:,}")
    if report.skipped:
        output.note("  left out: " + ", ".join(f"{label} {count:,}" for label, count in report.skipped.items()))
    if report.brakes:
        output.note(f"  stopped by: {', '.join(report.brakes)}")
    if report.reasons:
        shown = report.reasons[:_REASONS_SHOWN]
        rows = [(one.count, one.column or one.field, one.found, REASON_TEXTS[one.code], one.hint) for one in shown]
        output.table("problems, by value", _REASON_COLUMNS, rows)
    if report.rejections:
        output.table("the first rejected rows", REJECTION_COLUMNS, rejection_rows(report.rejections))
    if report.held:
        output.table("the first held rows", _HELD_COLUMNS, [(row.origin, row.row_key, row.twin_key) for row in report.held])
