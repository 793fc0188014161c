"""Reads a `command` source: nothing of what a program prints becomes a row before it has proved its end."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

from connectors.masking import Mask
from connectors.sources.command.messages import RECORDS, Output
from connectors.sources.command.program import Program
from connectors.sources.contract import Access, Bookmark, Clock, Ending, Reading
from connectors.sources.feed_source import masked_errors
from connectors.sources.files.opened_file import StoredFile
from connectors.sources.formats.json import read_json
from connectors.sources.rows import is_marked
from mappings.columns import ColumnRequest
from mappings.errors import ConfigError
from mappings.outcome import RowLocation, SourceRow
from mappings.spec.command import ALLOW, CONFIG, NOT_ALLOWED, STATE
from mappings.spec.source import CommandSource, JsonSource, NdjsonSource

_NO_STATE = "it sent no STATE to continue from: each read of it is full"


@contextmanager
def read_command(
    spec: CommandSource, base: Path, asked: ColumnRequest, access: Access, cursor: str, clock: Clock
) -> Iterator[Reading]:
    """Read under the contract of `Source.read`; the program runs to its end before the block begins.

    A cursor is the last STATE, after the digest of the question that it answers.

    Raises:
        ConfigError: the environment allows no programs, or lacks the configuration.
    """
    if access.programs is None:
        raise ConfigError(f"{spec.place} is a program, and {NOT_ALLOWED}", hint=ALLOW)
    config = _config_of(spec, access)
    bookmark = Bookmark(cursor if spec.resume else "", [spec.run, spec.resume, spec.stream])
    before, deleted = bookmark.before, asked.speller()(spec.deleted)
    with masked_errors(Mask(_texts_in(config))), TemporaryFile(prefix="eventsync-") as kept:
        output, texts = Output(kept, spec), {CONFIG: json.dumps(config), STATE: before}
        with ExitStack() as stack:
            words = [*spec.run[1:], *(spec.resume if before else ())]
            marks = [mark for mark in texts if any(mark in word for word in words)]
            files = {mark: stack.enter_context(_nameless(texts[mark])).fileno() for mark in marks}
            for mark, number in files.items():
                words = [word.replace(mark, f"/dev/fd/{number}") for word in words]
            Program(spec, words, base, access.programs, tuple(files.values()), clock).run(output.take)
        output.finish()
        kept_as: NdjsonSource | JsonSource = NdjsonSource(kind="ndjson", path="-", join_lists=spec.join_lists)
        if spec.stream:
            kept_as = JsonSource(kind="json", path="-", join_lists=spec.join_lists, records=RECORDS[spec.speaks])
        # What a stream announces is no missing column, even if none of its records has it.
        known = frozenset(map(asked.speller(), output.known_columns))
        own = replace(asked, columns=asked.columns | {deleted} - {""}, optional=asked.optional | known | {deleted})

        def ending() -> Ending:
            state = output.state() if spec.resume else ""
            return Ending(bookmark.cursor_at(state or before), (_NO_STATE,) if spec.resume and not state else ())

        with read_json(kept_as, StoredFile(kept, spec.place, "").reopened, own) as reading:
            rows = (_placed(row, spec.place, deleted) for row in reading.rows)
            yield replace(reading, rows=rows, is_whole=not before, ending=ending)


def _config_of(spec: CommandSource, access: Access) -> Any:
    if not spec.config:
        return None
    variable = f"TAP_{spec.config}"
    try:
        return json.loads(access.secret(variable, spec.place))
    except ValueError:
        raise ConfigError(f"{variable} is not JSON", hint="write the configuration of the program as one JSON object") from None


def _texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a configuration, each of which may be a secret."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts_in(inner)


@contextmanager
def _nameless(text: str) -> Iterator[BinaryIO]:
    """Yield a file without a name, in memory if the system has such files, with the text in it."""
    with os.fdopen(os.memfd_create("eventsync"), "r+b") if sys.platform == "linux" else TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        yield file


def _placed(row: SourceRow, place: str, deleted: str) -> SourceRow:
    number = row.location.number
    return replace(row, location=RowLocation(f"{place}:{number}", number), is_gone=is_marked(row.cells.get(deleted, "")))
