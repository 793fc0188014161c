"""Feeds shown on a page: a mapping, its files and a table of what must become of the rows, taken off the page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from connectors.sources.catalogue import open_source
from mappings.compiler.mapper import compile_feed
from mappings.event import Directory
from mappings.outcome import Absorbed, Gone, MappedRow, Rejection, RowOutcome, Skipped, if_unknown
from mappings.positions import Block, plain, read_yaml
from mappings.reasons import Reason
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import parse_feed

AS_OF = datetime(2027, 5, 1, 8, tzinfo=UTC)
"""When every run on the pages starts, as they say."""
_PIECE = re.compile(
    r"^##+ (?P<title>[^\n]+)$"
    r"|^(?:`(?P<name>[\w./-]+)`(?:, in (?P<encoding>[\w-]+)[^\n]*)?:\n\n)?```(?P<language>\w+)\n(?P<block>.*?)^```"
    r"|(?P<table>^\|[^\n]*\n\|[-|]+\|\n(?:\|[^\n]*\n)*)",
    re.MULTILINE | re.DOTALL,
)
_REASONS = ["key", "field", "column", "found", "what is told"]


@dataclass(slots=True)
class ShownFeed:
    """One example of a page: what stands in the mapping, the files beside it, and the table."""

    title: str
    mapping: str
    files: dict[str, bytes] = field(default_factory=dict)
    table: list[list[str]] = field(default_factory=list)

    def loaded(self, folder: Path, frame: str) -> FeedMapping:
        """Put the files into the folder and load the mapping; what the example does not say is as the frame has it."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        text = orjson.dumps(_merged(_document(frame), _document(self.mapping))).decode()
        return parse_feed(text, folder / "agenda.yaml")

    def outcomes(self, folder: Path, frame: str) -> list[RowOutcome]:
        """Return what becomes of the file's rows."""
        mapping = self.loaded(folder, frame)
        mapper = compile_feed(mapping, Directory(), AS_OF)
        with open_source(mapping.source, folder, mapper.columns).read() as reading:
            return list(map(if_unknown, mapper.over(reading.rows)))

    def lines_of(self, outcomes: list[RowOutcome]) -> list[list[str]]:
        """Return the outcomes as the table has them, its header first."""
        header = self.table[0]
        if header == _REASONS:
            return [header, *(line for outcome in outcomes for line in _reasons(outcome))]
        return [header, *(_line(outcome, header[1:]) for outcome in outcomes)]


def feeds_shown(page: str) -> list[ShownFeed]:
    """Return the examples of a page in their order: a YAML block, the named blocks after it, and the table after those."""
    title = ""
    feeds: list[ShownFeed] = []
    for piece in _PIECE.finditer(page):
        if piece["title"]:
            title = piece["title"]
        elif piece["name"]:
            feeds[-1].files[piece["name"]] = _bytes(piece["block"], piece["encoding"] or "utf-8")
        elif piece["language"] == "yaml":
            feeds.append(ShownFeed(title, piece["block"]))
        elif piece["table"] and feeds and feeds[-1].files and not feeds[-1].table:
            feeds[-1].table = list(_cells(piece["table"]))
    return feeds


def _bytes(block: str, encoding: str) -> bytes:
    """In a file whose encoding is named, \\xNN stands for a byte."""
    if encoding == "utf-8":
        return block.encode()
    return re.sub(rb"\\x([0-9A-F]{2})", lambda found: bytes.fromhex(found[1].decode()), block.encode(encoding))


def _cells(table: str) -> Iterator[list[str]]:
    for line in table.splitlines():
        if not line.startswith("|-"):
            cells = [cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            yield [cell.replace("\\|", "|") for cell in cells]


def _document(text: str) -> dict[str, Any]:
    document, problems = read_yaml(text)
    assert isinstance(document, Block), text
    assert not problems, problems
    return {str(key): plain(value) for key, value in document.items()}


def _merged(frame: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """Add to an example what the frame has: whole keys, and single fields of the event."""
    event = shown.get("event", {})
    named = {name.split(".")[0] for name in event}
    kept = {name: value for name, value in frame["event"].items() if name.split(".")[0] not in named}
    return frame | shown | {"event": kept | event}


def _line(outcome: RowOutcome, paths: list[str]) -> list[str]:
    match outcome:
        case MappedRow():
            event = orjson.loads(outcome.body)
            return [outcome.row_key, *(_shown(outcome, event, path) for path in paths)]
        case Rejection():
            found = f"rejected: {_codes(outcome.reasons)}"
        case Skipped():
            found = f"left out: {outcome.because}"
        case Absorbed():
            found = f"{outcome.into}"
        case Gone():
            found = "gone"
    return [outcome.row_key, found, *("" for _ in paths[1:])]


def _codes(reasons: Iterable[Reason]) -> str:
    return "; ".join(f"{reason.field or 'the row'} {reason.code}" for reason in reasons)


def _shown(row: MappedRow, event: Any, path: str) -> str:
    if path == "warned":
        return _codes(row.warnings)
    if path == "coverImage":
        return row.cover.url if row.cover else ""
    for step in re.findall(r"[^.\[\]]+", path):
        event = dict(enumerate(event)).get(int(step)) if isinstance(event, list) else (event or {}).get(step)
    match event:
        case None:
            return ""
        case str():
            return event.replace("\n", " ⏎ ")
        case list() if all(isinstance(item, str) for item in event):
            return " · ".join(event)
    return orjson.dumps(event).decode()


def _reasons(outcome: RowOutcome) -> Iterator[list[str]]:
    reasons = outcome.reasons if isinstance(outcome, Rejection) else outcome.warnings if isinstance(outcome, MappedRow) else ()
    for reason in reasons:
        yield [outcome.row_key, reason.field, reason.column, reason.found, f"{reason.code}: {reason.hint}"]
