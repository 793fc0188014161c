"""`eventsync runs`: lists past runs with their accounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, run_words

if IS_WORKING:
    from mappings.errors import ConfigError, MappingFileError
    from mappings.outcome import shown_place
    from mappings.row_key import FeedName
    from mappings.strict import written
    from pipelines.cli.output.console import Output, reason_line, rejection_lines
    from pipelines.cli.run_report import Run, run_document, show_run
    from pipelines.cli.state_reader import StateReader, open_state
    from state.ledger.accounts import StageReport
    from state.queries import RunRecord

RunOrFeed = Annotated[
    str | None,
    typer.Argument(metavar="[RUN or FEED]", help="The id of a run, or its beginning; or a feed.", autocompletion=run_words),
]


def runs(
    run: RunOrFeed = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many runs, newest first.")] = 20,
    as_json: AsJson = False,
) -> int:
    """List past runs with their accounts; or show one run in detail, or each feed of a run that several feeds shared.

    For example:

        # The latest runs
        eventsync runs
        # The runs of one feed
        eventsync runs lisbon-agenda
        # One run in detail
        eventsync runs 5f0c2a41

    Exit codes: 0, or 2 if there is no such run.
    """
    output = Output(is_json=as_json)
    with open_state() as reader:
        feed = FeedName(run) if run is not None and reader.scopes_of(run) else None
        found = () if run is None or feed else _found(reader, run)
        if len(found) == 1:
            return _show_one(output, found[0])
        if run is not None and not (feed or found):
            feed = _feed_of_folder(reader, run)
        runs = found or reader.runs(feed, limit)
        elsewhere = reader.elsewhere_sentence()
    output.document(PastRuns(runs=[run_document(one) for one in runs]))
    for one in runs:
        show_run(output, one)
    if not runs:
        output.note(f"{feed} has not run yet" if feed else "no feed has run here yet", *filter(None, [elsewhere]))
    return 0


class PastRuns(TypedDict):
    """The latest runs, newest first."""

    runs: Sequence[Run]


if IS_WORKING:

    class OneRun(Run):
        """One run in detail; `stage`: the report of its read of the source."""

        stage: StageReport | None


_SEARCHED = 5_000
_REASONS_SHOWN = 20


def _found(reader: StateReader, word: str) -> Sequence[RunRecord]:
    """Return the run with this id, or with an id that begins so: one record for each of its feeds; nothing if there is none.

    Raises:
        ConfigError: more than one run matches.
    """
    runs = [run for run in reader.runs(limit=_SEARCHED) if run.run_id.startswith(word) or run.dagster_run_id == word]
    exact = [run for run in runs if word in {run.run_id, run.dagster_run_id}] or runs
    if len({(run.run_id, run.book.destination) for run in exact}) > 1:
        some = ", ".join(f"{run.run_id} ({run.book.feed})" for run in exact[:5])
        raise ConfigError(f"the id {word!r} fits {len(exact)} runs: {some}", hint="write more of the id")
    return exact


def _feed_of_folder(reader: StateReader, word: str) -> FeedName:
    """Return the name of a feed of the folder, whether or not it ran.

    Raises:
        MappingFileError: its file is broken.
        ConfigError: there is none.
    """
    try:
        return reader.feed_name(word)
    except MappingFileError:
        raise
    except ConfigError as error:
        hint = "`eventsync runs` lists the latest runs, `eventsync feeds` the feeds"
        raise ConfigError(f"there is no run or feed {word!r}", hint=hint) from error


def _show_one(output: Output, run: RunRecord) -> int:
    stage = run.stage_report
    output.document(OneRun(**run_document(run), stage=stage))
    show_run(output, run)
    output.note(f"service: {run.book.destination.replace('#', ', namespace ')}", _time(run), indent=2)
    if stage is None:
        return 0
    counts = {"warnings": stage.warnings, "gone from the source": stage.vanished, "gone, past events": stage.past}
    counts |= {"withdrawn": stage.withdrawn}
    output.note(*(f"{name}: {count:,}" for name, count in counts.items() if count), indent=2)
    if stage.brakes:
        output.note(f"stopped by: {', '.join(stage.brakes)}", indent=2)
    if stage.reasons:
        shown = stage.reasons[:_REASONS_SHOWN]
        output.table("problems, by value", ({"rows": one.count, **reason_line(one)} for one in shown))
    if stage.rejections:
        output.table("the first rejected rows", rejection_lines(stage.rejections))
    if stage.held:
        held = (
            {"place": shown_place(row.origin), "row key": row.row_key, "looks like a copy of": row.twin_key} for row in stage.held
        )
        output.table("the first held rows", held)
    return 0


def _time(run: RunRecord) -> str:
    if run.finished_at is None:
        return f"phase: {run.phase.value}"
    took_s = (run.finished_at - run.started_at).total_seconds()
    if run.exit_code is None:
        return f"killed; the next run took over after {written(took_s)} s"
    took = f"took {written(took_s)} s" if took_s >= 0 else "duration unknown (the clock was set back during the run)"
    return f"{took}, exit code {run.exit_code}"
