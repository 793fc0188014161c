"""The command `eventsync`: its verbs, and the one place where errors become messages and exit codes.

What a verb does stands in its own module, which imports what it needs when it runs: `--help` answers at once.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec

import typer

from pipelines.cli import (
    backfill,
    check,
    demo,
    diff,
    explain,
    feeds,
    init,
    metrics,
    preview,
    prune,
    reconcile,
    reload,
    report,
    resolve,
    retry,
    rows,
    run,
    runs,
    sandbox,
    schema,
    state,
    status,
    ui,
    vocabulary,
)
from pipelines.run.signals import INTERRUPTED, deferred, window

if TYPE_CHECKING:
    from mappings.errors import SyncError

P = ParamSpec("P")
NAME = "eventsync"
"""The command's name in help and in completion, also where Python was started with `-m`."""
_NO_FAULTS = (typer.Exit, typer.Abort, typer.TyperException, BrokenPipeError)
"""What may leave a verb beside a `SyncError`: words that mean nothing, and readers of stdout that have gone."""

app = typer.Typer(
    name=NAME,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Rows from spreadsheets, CRMs and partner files become events: every row exactly once, every bad row explained.",
    epilog="First steps: `eventsync demo` · `eventsync check` · `eventsync preview FEED` · `eventsync run FEED`",
)
state_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode="markdown", help="The state DB as a whole: sound, smaller, saved, moved."
)
app.add_typer(state_app, name="state")


def _verb(function: Callable[P, int], group: typer.Typer = app) -> None:
    """Register a verb under its function's name: its number is the exit code, its error a message with the right code."""

    @functools.wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> None:
        with deferred():
            raise typer.Exit(_code_of(lambda: function(*args, **kwargs)))

    shape = resolve.Resolving if function is resolve.resolve else None
    group.command(function.__name__.removesuffix("_"), cls=shape)(told)  # `import` is no name for a function


def _code_of(work: Callable[[], int]) -> int:
    # What an interruption needs to be told is imported before: whatever is being imported then is half made.
    from mappings.errors import SyncError  # noqa: PLC0415  # keeps `--help` fast
    from pipelines.cli.output import Output  # noqa: PLC0415  # as above
    from pipelines.run.outcome import faults_as_errors  # noqa: PLC0415  # as above
    from pipelines.run.signals import InterruptedRunError  # noqa: PLC0415  # as above

    try:
        with faults_as_errors(lambda: f"at work on `eventsync {' '.join(sys.argv[1:2])}`", passing=_NO_FAULTS), window():
            return work()
    except SyncError as error:
        return _explain(error)
    except KeyboardInterrupt:
        stopped = InterruptedRunError("interrupted; the state is intact", hint="run again to go on")
        Output(json="--json" in sys.argv).error(stopped)
        return INTERRUPTED


def _explain(error: SyncError) -> int:
    from pipelines.cli.output import Output  # noqa: PLC0415  # keeps `--help` fast
    from pipelines.run.outcome import outcome_of  # noqa: PLC0415  # as above

    Output(json="--json" in sys.argv).error(error)
    return int(outcome_of(error).exit_code)


for verb in (
    demo.demo,
    sandbox.sandbox,
    ui.ui,
    reload.reload,
    init.init,
    feeds.feeds,
    check.check,
    preview.preview,
    explain.explain,
    run.run,
    backfill.backfill,
    status.status,
    rows.rows,
    runs.runs,
    metrics.metrics,
    retry.retry,
    resolve.resolve,
    reconcile.reconcile,
    diff.diff,
    report.report,
    prune.prune,
    schema.schema,
    vocabulary.vocabulary,
):
    _verb(verb)
_verb(state.verify, state_app)
_verb(state.compact, state_app)
_verb(state.export, state_app)
_verb(state.import_, state_app)
_verb(state.migrate, state_app)
_verb(state.rename, state_app)


def main() -> None:
    """Run the command line and leave with the exit code that scripts rely on.

    SIGINT, SIGTERM and SIGHUP interrupt a verb in good order, also where a parent shell made us ignore them; where a script
    waits for a document, they are kept until there is a verb to write one.
    """
    if "--json" in sys.argv:
        with deferred():
            sys.exit(_with_a_document())
    app(prog_name=NAME)


def _with_a_document() -> int:
    """Run a command whose stdout is read by a script: a mistake in its words is a document, too."""
    try:
        code: int = app(prog_name=NAME, standalone_mode=False)
    except typer.TyperException as mistake:
        from mappings.errors import ConfigError  # noqa: PLC0415  # keeps `--help` fast

        words = mistake.format_message() if isinstance(mistake, typer.BadParameter) else str(mistake)
        return _explain(ConfigError(words, hint="the same words with --help tell by example"))
    return code
