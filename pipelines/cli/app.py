"""The command `eventsync`: its verbs, each imported on first use, and the one place where errors become exit codes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer
from typer.core import TyperGroup

from pipelines.cli import options

if TYPE_CHECKING:
    from mappings.errors import SyncError

P = ParamSpec("P")
NAME = "eventsync"
"""The command's name in help and completion, also when Python was started with `-m`."""
VERBS = (
    *("demo", "sandbox", "ui", "reload", "init", "feeds", "check", "preview", "explain", "run", "backfill", "status", "rows"),
    *("runs", "metrics", "retry", "resolve", "reconcile", "diff", "report", "prune", "schema", "vocabulary", "state"),
)
"""The verbs in the order of the help. The module `pipelines.cli.VERB` has a function of the same name, or a tuple `COMMANDS`."""
_PASSING = (typer.Exit, typer.Abort, typer.TyperException, BrokenPipeError)
"""Exceptions that pass through a verb unchanged: exits, usage errors and a closed stdout."""


_SHOWING = frozenset(
    {"feeds", "preview", "explain", "status", "rows", "runs", "metrics", "diff", "report", "schema", "vocabulary"}
)
"""Verbs that change nothing."""


class Verbs(TyperGroup):
    """A command group that imports a verb when it is used: no command waits for the imports of another."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all verbs, in the order of the help."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name, None if there is no such verb."""
        del ctx
        return _command(cmd_name) if cmd_name in VERBS else None


app = typer.Typer(
    cls=Verbs,
    name=NAME,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Rows from spreadsheets, CRMs and partner files become events: every row exactly once, every bad row explained.",
    epilog="First steps: `eventsync demo` · `eventsync check` · `eventsync preview FEED` · `eventsync run FEED`",
)


def _show_versions(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        from state.migrations.upgrade import HEAD

        python = sys.version.partition(" ")[0]
        typer.echo(f"eventsync {version(NAME)}, Python {python}, Dagster {version('dagster')}, state schema {HEAD}")
        raise typer.Exit


@app.callback()
def _options(
    versions: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_versions,
            is_eager=True,
            help="Print the versions of eventsync, Python, Dagster and the state schema.",
        ),
    ] = False,
) -> None:
    del versions


@functools.cache
def _command(verb: str) -> Any:
    module = import_module(f"pipelines.cli.{verb}")
    commands = getattr(module, "COMMANDS", None)
    made = typer.Typer(
        name=verb,
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        no_args_is_help=commands is not None,
        help=None if commands is None else module.HELP,
    )
    for function in commands or (getattr(module, verb),):
        name = function.__name__.removesuffix("_")  # `import` is no name for a function
        made.command(name, cls=getattr(module, "Command", None))(_exiting(function))
    return typer.main.get_command(made)


def _exiting(function: Callable[P, int]) -> Callable[P, None]:
    """Wrap a verb: exit with the code it returns, or print its error and exit with the code of that error."""

    @functools.wraps(function)
    def exit_with_code(*args: P.args, **kwargs: P.kwargs) -> None:
        if not options.IS_WORKING:
            raise typer.BadParameter("--help cannot be the value of an option")
        from pipelines.run.signals import signals_deferred

        with signals_deferred():
            raise typer.Exit(_code_of(lambda: function(*args, **kwargs)))

    return exit_with_code


def _code_of(work: Callable[[], int]) -> int:
    # Imported before the work begins: an interruption may come while another import is half done.
    from mappings.errors import SyncError
    from pipelines.run.outcome import faults_as_errors
    from pipelines.run.signals import InterruptedRunError, signals_raised
    from pipelines.safe_output import lost_output

    try:
        with faults_as_errors(f"at work on `eventsync {' '.join(sys.argv[1:2])}`", passing=_PASSING), signals_raised():
            return _printed(work())
    except SyncError as error:
        lost_output()  # or Python would try again at its end, and leave with a code of its own
        return _show_error(error)
    except KeyboardInterrupt:
        return _show_error(InterruptedRunError("interrupted; the state is intact", hint="run the same command again to continue"))


def _printed(code: int) -> int:
    """Return the exit code of a verb that did its work: a full stdout fails only verbs whose work is to show something."""
    from pipelines.safe_output import lost_output

    why = lost_output()
    if why:
        from mappings.errors import ConfigError

        hint = "the work itself is done; `eventsync status` shows it" if sys.argv[1] not in _SHOWING else "print to another place"
        shown = _show_error(ConfigError(f"the output could not be written: {why}", hint=hint))
        return code or (shown if sys.argv[1] in _SHOWING else 0)
    return code


def _show_error(error: SyncError) -> int:
    from pipelines.cli.output.console import Output
    from pipelines.run.outcome import outcome_of

    Output(is_json="--json" in sys.argv).error(error)
    return int(outcome_of(error).exit_code)


def main() -> None:
    """Run the command line and exit with the command's exit code.

    SIGINT, SIGTERM and SIGHUP interrupt a verb cleanly, even if a parent shell made this process ignore them. With `--json` they
    are deferred until a verb runs that can print a document.
    """
    if "--json" in sys.argv:
        from pipelines.run.signals import signals_deferred

        with signals_deferred():
            sys.exit(_run_for_script())
    app(prog_name=NAME)


def _run_for_script() -> int:
    """Run a command with `--json`: a usage error is printed as a document, too."""
    try:
        code: int = app(prog_name=NAME, standalone_mode=False)
    except typer.TyperException as mistake:
        from mappings.errors import ConfigError

        message = mistake.format_message() if isinstance(mistake, typer.BadParameter) else str(mistake)
        return _show_error(ConfigError(message, hint="`--help` shows examples"))
    return code
