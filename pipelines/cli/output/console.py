"""Print a command's output: one JSON document, or tables, sentences, errors and a progress bar; and format counts.

rich is imported when something is drawn, so that `eventsync --help` starts fast.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import date, time
from decimal import Decimal
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NotRequired, TextIO, TypeVar, cast

from pydantic import BaseModel
from typing_extensions import TypedDict

from mappings.errors import ConfigError, FileProblem, SyncError
from mappings.outcome import shown_place
from mappings.reasons import REASON_TEXTS, Reason
from mappings.sentences import Words
from pipelines.safe_output import escaped, undisturbed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

    from state.ledger.accounts import ReasonCount, RejectedRow

D = TypeVar("D")


class Error(TypedDict):
    """Why a command failed, and what to do. `problems`: every mistake of a mapping file; `retry_after_s`: how long the other side
    asked to wait, if it did.
    """

    type: str
    message: str
    hint: str
    problems: NotRequired[Sequence[FileProblem]]
    retry_after_s: NotRequired[float | None]


class ErrorDocument(TypedDict):
    """The document that any verb prints instead of its own when it fails; the exit code gives the kind of failure."""

    error: Error


class Progress:
    """A progress bar of one task; without `bar` it does nothing."""

    def __init__(self, bar: RichProgress | None = None) -> None:
        self._bar = bar

    def advance(self, count: int = 1) -> None:
        """Add `count` to the number done."""
        if self._bar:
            self._bar.advance(self._bar.task_ids[0], count)

    def expect(self, count: int) -> None:
        """Set the total to `count` more than are done now."""
        if self._bar:
            task = self._bar.tasks[0]
            self._bar.update(task.id, total=task.completed + count)

    def restart(self, description: str, total: int) -> None:
        """Begin at 0 with something else to count."""
        if self._bar:
            from pipelines.cli.output.drawing import safe_text

            self._bar.reset(self._bar.task_ids[0], description=safe_text(description).plain, total=total)


class Output:
    """Prints the output of one command.

    With `is_json`, stdout carries exactly one JSON document and everything for people goes to stderr. Otherwise people read
    stdout. Colour and bars appear only on a terminal, and no colour under `NO_COLOR`. Control characters and markup in partners'
    texts have no effect.
    """

    def __init__(self, *, is_json: bool = False, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self.is_json = is_json
        self._stdout = _unfailing(stdout or sys.stdout)
        self._stderr = _unfailing(stderr or sys.stderr)
        self._is_document_out = False
        self._watched: Console | None = None

    def document(self, value: object) -> None:
        """Print `value` as the command's JSON document, if --json was given; only the first one is printed.

        Takes JSON values, dataclasses, pydantic models, enums, dates and times (ISO 8601), paths, and sets (sorted).
        """
        if not self.is_json or self._is_document_out:
            return
        self._is_document_out = True
        is_unicode = (self._stdout.encoding or "utf-8").lower().replace("-", "") == "utf8"
        text = json.dumps(value, default=_plain, ensure_ascii=not is_unicode, indent=2, allow_nan=False)
        self._stdout.write(escaped(text) + "\n")
        self._stdout.flush()

    def table(self, title: str, rows: Iterable[Mapping[str, object]]) -> None:
        """Print a table for people; with `json` nothing. Each row has its cells by the names of the columns.

        Long cells are folded, never cut; numbers are right-aligned.
        """
        if not self.is_json:
            from pipelines.cli.output.drawing import drawn_table  # rich loads when something is drawn

            people = self._people()
            people.print(drawn_table(title, rows, people), soft_wrap=True)

    def note(self, *lines: str, indent: int = 0) -> None:
        """Print sentences for people, one per line: on stdout, or on stderr with `json`."""
        from pipelines.cli.output.drawing import safe_text

        for line in lines:
            self._people().print(safe_text(" " * indent + line), soft_wrap=True)

    def aside(self, text: str) -> None:
        """Print a sentence on stderr during work, above the progress bar."""
        from pipelines.cli.output.drawing import console_on, safe_text

        (self._watched or console_on(self._stderr)).print(safe_text(text), soft_wrap=True)

    def introduce(self, text: str, choices: Sequence[str]) -> None:
        """Print on stderr what a question is for, and short lines to choose from in columns."""
        from pipelines.cli.output.drawing import console_on, drawn_columns, safe_text

        console_on(self._stderr).print("", safe_text(text), *([drawn_columns(choices)] if choices else ()), sep="\n")

    def error(self, error: SyncError) -> None:
        """Print an error and its hint on stderr; with `json` also as the document, unless one is already printed."""
        from pipelines.cli.output.drawing import console_on, drawn_error

        console_on(self._stderr).print(drawn_error(error), soft_wrap=True)
        document = document_from(Error, error, type=type(error).__name__, message=str(error))
        self.document(ErrorDocument(error=document))

    @contextmanager
    def progress(self, description: str, total: int | None = None, *, is_counted: bool = True) -> Iterator[Progress]:
        """Show a bar with count, rate and time left on stderr while the block runs, and remove it afterwards.

        Only if stderr is a terminal, and not with `json`. `total` None: not known (yet). Without `is_counted`, show only the
        description and the time passed. Other output appears above the bar.
        """
        if self.is_json or not self._stderr.isatty():
            yield Progress()
            return
        from pipelines.cli.output.drawing import console_on, drawn_progress

        self._watched = console_on(self._stderr)
        try:
            with drawn_progress(self._watched, description, total, is_counted=is_counted) as bar:
                yield Progress(bar)
        finally:
            self._watched = None

    def _people(self) -> Console:
        from pipelines.cli.output.drawing import console_on

        # What is printed while a bar is drawn on the same terminal has to pass above the bar.
        if self._watched and not self.is_json and self._stdout.isatty():
            return self._watched
        return console_on(self._stderr if self.is_json else self._stdout)


def _unfailing(stream: TextIO) -> TextIO:
    """Make a text stream escape characters that it cannot encode, and drop what there is no room for, instead of failing."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return undisturbed(stream)


def _plain(value: object) -> object:  # noqa: PLR0911  # a table, one arm per type
    """Return a value that `json` cannot write as one that it can."""
    match value:
        case date() | time():
            return value.isoformat()
        case PurePath() | Decimal():
            return str(value)
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case Mapping():
            return dict(value)
        case Iterator():
            return list(value)
        case AbstractSet():
            return sorted(value, key=repr)
        case BaseModel():
            return value.model_dump()
        case _ if is_dataclass(value):
            return {field.name: getattr(value, field.name) for field in fields(value)}
        case _:
            raise TypeError(f"{type(value).__name__} has no place in a JSON document")


def document_from(kind: type[D], source: object, /, **others: object) -> D:
    """Build a document of `kind`, a TypedDict: `others`, and each further field from the attribute of `source` of that name."""
    names = [name for name in kind.__annotations__ if name in others or hasattr(source, name)]
    return cast("D", {name: others[name] if name in others else getattr(source, name) for name in names})


@contextmanager
def written_whole(file: Path, option: str) -> Iterator[Path]:
    """Yield a temporary path beside `file`, which replaces `file` at the end of the block and is deleted after an error.

    Raises:
        ConfigError: the file cannot be written; `option` named it.
    """
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        yield beside
        beside.replace(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}", hint=f"choose another file for {option}") from error
    finally:
        beside.unlink(missing_ok=True)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 row`, `2,000 rows`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


_LONGEST = 300


def shortened(text: str) -> str:
    """Return a partner's text, cut to 300 characters: its beginning is enough to recognise it."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def spelt(word: str) -> str:
    """Return an identifier of ours, such as a state, with spaces for people."""
    return word.replace("_", " ")


def counts_line(counts: Mapping[str, int]) -> str:
    """Return counts as text, without zeros: `pending 3, delivered 2,000`."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)


_READ = ("filtered", "duplicate", "grouped", "rejected", "held", "still_refused", "unchanged", "drifted", "new", "gone")
_PUBLISHED = ("delivered", "delivered_unconfirmed", "refused", "blocked", "uncertain", "conflict", "pending")


def read_line(counts: Mapping[str, int]) -> str:
    """Return the account of a read as an equation: `read 120 = rejected 2 + unchanged 108 + new 10`.

    Further events of a row are added on the left: `read 3 + expanded 7 = new 10`. Zeros are left out. An equation that does not
    balance shows the difference.
    """
    return _equation(counts, ("read", "expanded"), _READ)


def publish_line(counts: Mapping[str, int], drafts: int = 0) -> str:
    """Return the account of a publish as an equation: `new 10 + carried over 2 = delivered 11 (4 as drafts) + refused 1`."""
    delivered = f"delivered {counts.get('delivered', 0):,}"
    some = "" if drafts == counts.get("delivered") else f"{drafts:,} "
    line = _equation(counts, ("new", "carried_over"), _PUBLISHED)
    return line.replace(delivered, f"{delivered} ({some}as drafts)", 1) if drafts else line


def rejection_lines(rows: Iterable[RejectedRow]) -> Iterator[dict[str, object]]:
    """Yield one table line per reason; only the first line of a row names its place."""
    for row in rows:
        for number, reason in enumerate(row.reasons):
            yield {"place": "" if number else shown_place(row.origin), **reason_line(reason)}


def reason_line(reason: Reason | ReasonCount) -> dict[str, object]:
    """Return a reason as a part of a table line."""
    column = reason.column or reason.field
    problem = Words().problem(reason) if isinstance(reason, Reason) else REASON_TEXTS[reason.code]
    return {"column": column, "found": reason.found, "problem": problem, "hint": reason.hint}


def _equation(counts: Mapping[str, int], left: Sequence[str], right: Sequence[str]) -> str:
    total, ended = (sum(counts.get(name, 0) for name in names) for names in (left, right))
    if total == ended:
        return f"{_terms(counts, left)} = {_terms(counts, right)}" if total else _terms(counts, left)
    missing = f"{abs(total - ended):,} rows {'unaccounted for' if total > ended else 'too many'}"
    return f"{_terms(counts, left)} ≠ {_terms(counts, right)}: {missing}"


def _terms(counts: Mapping[str, int], names: Sequence[str]) -> str:
    shown = [f"{'still ' * (name == 'pending')}{spelt(name)} {counts[name]:,}" for name in names if counts.get(name)]
    return " + ".join(shown) or f"{names[0]} 0"
