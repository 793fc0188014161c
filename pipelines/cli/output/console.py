"""Print to people and scripts: one JSON document, or tables, notes, errors and a progress bar.

rich is imported only once something is drawn: `eventsync --help` does not wait for it.
"""

from __future__ import annotations

import io
import json as json_module
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import date, time
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NotRequired, Protocol, TextIO

from pydantic import BaseModel
from typing_extensions import TypedDict

from mappings.errors import FileProblem, MappingFileError, SyncError, TransientError
from pipelines.control_characters import escaped

if TYPE_CHECKING:
    from rich.console import Console


class Error(TypedDict):
    """Why a command could not do what it was asked for, and what would help. `problems`: every mistake of a mapping file;
    `retry_after_s`: how long the other side asked to wait, if it did.
    """

    type: str
    message: str
    hint: str
    problems: NotRequired[Sequence[FileProblem]]
    retry_after_s: NotRequired[float | None]


class ErrorDocument(TypedDict):
    """What any verb prints in place of its own document where it fails; the exit code says the same in short."""

    error: Error


class Progress(Protocol):
    """A progress bar; without a terminal it does nothing."""

    def advance(self, count: int = 1) -> None:
        """Say that `count` more are done."""
        ...

    def expect(self, total: int) -> None:
        """Say how many there are in all, as soon as that is known."""
        ...


class _Unwatched:
    """The progress bar of a command without a terminal."""

    def advance(self, count: int = 1) -> None:
        """Do nothing."""

    def expect(self, total: int) -> None:
        """Do nothing."""


class Output:
    """Where one command's words go.

    With `json`, stdout carries exactly one JSON document and everything for people goes to stderr. Without, people
    read stdout; colour and bars only where the stream is a terminal, and no colour under `NO_COLOR`. Text of partners
    can neither move the cursor nor be taken for markup.
    """

    def __init__(self, *, json: bool = False, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self.is_json = json
        self._stdout = _unfailing(stdout or sys.stdout)
        self._stderr = _unfailing(stderr or sys.stderr)
        self._is_document_out = False
        self._watched: Console | None = None

    def document(self, value: object) -> None:
        """Print `value` as the command's one JSON document, if it was asked for; for people do nothing.

        Takes what JSON knows, and dataclasses, pydantic models, enums, dates and times (ISO 8601), paths,
        sets (sorted); a number without end, like no limit, is null.
        """
        if not self.is_json:
            return
        if self._is_document_out:
            raise RuntimeError("a command prints one JSON document, and this is its second")
        self._is_document_out = True
        is_unicode = (self._stdout.encoding or "utf-8").lower().replace("-", "") == "utf8"
        text = json_module.dumps(_plain(value), ensure_ascii=not is_unicode, indent=2, allow_nan=False)
        self._stdout.write(escaped(text) + "\n")
        self._stdout.flush()

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Show rows to people; with `json` nothing. Long cells are folded, never cut; numbers stand to the right."""
        if self.is_json:
            return
        from pipelines.cli.output.drawing import drawn_table  # rich loads when something is drawn

        people = self._people()
        people.print(drawn_table(title, columns, rows, people), soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a sentence for people: on stdout, or on stderr where stdout carries a JSON document."""
        from pipelines.cli.output.drawing import safe_text

        self._people().print(safe_text(text), soft_wrap=True)

    def aside(self, text: str) -> None:
        """Print a sentence on stderr while work goes on, above its progress bar."""
        from pipelines.cli.output.drawing import safe_text

        (self._watched or self._console(self._stderr)).print(safe_text(text), soft_wrap=True)

    def error(self, error: SyncError) -> None:
        """Say on stderr what was tried, what came back and what would help; with `json` also as the document.

        If the document is already out, stdout stays as it is.
        """
        from pipelines.cli.output.drawing import drawn_error

        self._console(self._stderr).print(drawn_error(error), soft_wrap=True)
        if self.is_json and not self._is_document_out:
            self.document(ErrorDocument(error=_error_document(error)))

    @contextmanager
    def progress(self, description: str, total: int | None = None) -> Iterator[Progress]:
        """Show a bar with count, rate and time left on stderr while the block runs, and wipe it away afterwards.

        Only where stderr is a terminal and no JSON was asked for. `total` None: not known (yet).
        """
        if self.is_json or not self._stderr.isatty():
            yield _Unwatched()
            return
        from pipelines.cli.output.drawing import drawn_progress

        with self._drawing() as console, drawn_progress(console, description, total) as progress:
            yield progress

    @contextmanager
    def waiting(self, description: str) -> Iterator[None]:
        """Show on stderr what is waited for, and since when, while the block runs.

        Only where `progress` would show a bar; for what nothing can be counted of.
        """
        if self.is_json or not self._stderr.isatty():
            yield
            return
        from pipelines.cli.output.drawing import drawn_wait

        with self._drawing() as console, drawn_wait(console, description):
            yield

    @contextmanager
    def _drawing(self) -> Iterator[Console]:
        """What is said while something is drawn on stderr has to pass above it."""
        self._watched = console = self._console(self._stderr)
        try:
            yield console
        finally:
            self._watched = None

    def _people(self) -> Console:
        if self.is_json:
            return self._console(self._stderr)
        # What is printed while a bar is drawn on the same terminal has to pass above the bar.
        return self._watched if self._watched and self._stdout.isatty() else self._console(self._stdout)

    def _console(self, stream: TextIO) -> Console:
        from pipelines.cli.output.drawing import console_on

        return console_on(stream)


def _unfailing(stream: TextIO) -> TextIO:
    """A terminal that lacks a character shows its escape; it is no reason to fail."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream


def _error_document(error: SyncError) -> Error:
    document = Error(type=type(error).__name__, message=str(error), hint=error.hint)
    match error:
        case MappingFileError():
            document["problems"] = error.problems
        case TransientError():
            document["retry_after_s"] = error.retry_after_s
        case _:
            pass
    return document


def _plain(value: object) -> Any:
    """Return `value` in the words of JSON; keys keep the order in which they were declared or put."""
    match value:
        case Mapping():
            return {str(_plain_one(key)): _plain(one) for key, one in value.items()}
        case list() | tuple() | Iterator():
            return [_plain(one) for one in value]
        case AbstractSet():
            return sorted((_plain(one) for one in value), key=repr)
        case BaseModel():
            return _plain(value.model_dump())
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            return _plain_one(value)


def _plain_one(value: object) -> Any:
    match value:
        case Enum():
            return _plain_one(value.value)
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else None
        case date() | time():
            return value.isoformat()
        case PurePath() | Decimal():
            return str(value)
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case _:
            raise TypeError(f"{type(value).__name__} has no place in a JSON document")
