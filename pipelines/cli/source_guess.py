"""Guess from its first bytes what kind of file a partner has sent and how to read it: the `source` block of a first mapping."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

import orjson

from mappings.draft.dialect import guess_dialect, guess_encoding
from mappings.draft.moments import Guessed
from mappings.draft.write_yaml import block, comment, scalar
from mappings.errors import ConfigError

HEAD_BYTES = 8 * 1024 * 1024
"""So much of a file is looked at."""
_MARKS = ("; ", " | ", ", ", " / ")
_TAG = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<(/?)([A-Za-z_][\w:.-]*)[^<>]*?(/?)>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Head:
    """The first bytes of a file, and whether they are all of it."""

    name: str
    content: bytes
    is_whole: bool


@dataclass(frozen=True, slots=True)
class SourceGuess:
    """The settings of a `source` block beside its place, and why each was chosen; `place_key` is what the place is called."""

    settings: Mapping[str, Any]
    why: Mapping[str, str] = field(default_factory=dict)
    is_sure: bool = True
    place_key: str = "path"

    def at(self, place: str) -> Mapping[str, Any]:
        """Return the whole block, in the order in which it is written."""
        return {"kind": self.settings["kind"], self.place_key: place, **self.settings}

    def lines(self, place: str) -> tuple[str, ...]:
        """Write the block's lines, the evidence behind each setting."""
        return tuple(self._line(key, value) for key, value in self.at(place).items())

    def guesses(self) -> tuple[Guessed, ...]:
        """Return what was guessed, for the report."""
        return tuple(
            Guessed(f"source.{key}", "", "likely" if key == "encoding" and not self.is_sure else "sure", why)
            for key, why in self.why.items()
            if why and key in self.settings
        )

    def _line(self, key: str, value: object) -> str:
        told = f"{key}: {block(value) if isinstance(value, dict) else _spelt(str(value))}"
        why = self.why.get(key, "")
        return f"{told} # {comment(why)}" if why else told


def is_google_sheet(source: str) -> bool:
    """Whether that is the address of a Google spreadsheet, as a browser shows it."""
    return source.startswith("https://docs.google.com/spreadsheets/")


def google_sheet() -> SourceGuess:
    """Say how a Google spreadsheet is read."""
    why = {"kind": "the first tab, or the one in the address; name another with `tab`"}
    return SourceGuess({"kind": "google_sheets"}, why, place_key="spreadsheet")


def guess_source(head: Head) -> SourceGuess:
    """Say how a file is read.

    Raises:
        ConfigError: it is of a kind that nothing here reads.
    """
    begin = head.content.lstrip(b"\xef\xbb\xbf \t\r\n")[:512]
    suffix = PurePath(head.name.casefold()).suffix
    for is_kind, guess in _KINDS:
        if is_kind(begin, suffix):
            return guess(head)
    return _delimited(head)


def joined_lists(guess: SourceGuess, columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> SourceGuess:
    """Return the guess with the columns whose cells are lists of plain texts joined, or itself where there are none."""
    if guess.settings["kind"] not in {"json", "ndjson", "xml"}:
        return guess
    lists = {name: found for name in columns if (found := [*_plain_lists(row.get(name, "") for row in rows)])}
    joined = {name: mark for name, found in lists.items() if (mark := _mark_between(found))}
    if not joined:
        return guess
    why = {**guess.why, "join_lists": f"lists of texts: {', '.join(joined)}"}
    return replace(guess, settings={**guess.settings, "join_lists": joined}, why=why)


def _plain_lists(cells: Iterable[str]) -> Iterator[list[str]]:
    """Yield the cells that are JSON arrays of texts."""
    for cell in cells:
        if cell.startswith("[") and cell.endswith("]"):
            try:
                found = orjson.loads(cell)
            except orjson.JSONDecodeError:
                continue
            if isinstance(found, list) and found and all(isinstance(item, str) for item in found):
                yield found


def _mark_between(lists: Sequence[Sequence[str]]) -> str:
    """Return what can stand between the items because it stands in none of them."""
    return next((mark for mark in _MARKS if not any(mark.strip() in item for items in lists for item in items)), "")


def _delimited(head: Head) -> SourceGuess:
    dialect = guess_dialect(head.content, is_whole=head.is_whole)
    settings: dict[str, Any] = {"kind": "tsv" if dialect.delimiter == "\t" else "csv"}
    if dialect.encoding != "utf-8":
        settings["encoding"] = dialect.encoding
    if dialect.delimiter not in {",", "\t"}:
        settings["delimiter"] = dialect.delimiter
    if dialect.quote != '"':
        settings["quote"] = dialect.quote
    if dialect.header_row != 1:
        settings["header"] = {"row": dialect.header_row}
    why = {**dialect.why, "kind": dialect.why["delimiter"] if dialect.delimiter in {",", "\t"} else ""}
    return SourceGuess(settings, why, is_sure=dialect.is_sure)


def _workbook(_head: Head) -> SourceGuess:
    return SourceGuess({"kind": "xlsx"}, {"kind": "the first sheet; name another with `sheet`"})


def _calendar(_head: Head) -> SourceGuess:
    return SourceGuess({"kind": "ics"}, {"kind": "it begins with BEGIN:VCALENDAR"})


def _json(head: Head) -> SourceGuess:
    text = head.content.decode("utf-8-sig", "replace")
    lines = [line for line in text.splitlines() if line.strip()][:3]
    if len(lines) > 1 and all(_is_object(line) for line in lines[: 2 if not head.is_whole else 3]):
        return SourceGuess({"kind": "ndjson"}, {"kind": "an object stands on each line"})
    way, count = _records(text)
    if not way:
        return SourceGuess({"kind": "json"}, {"kind": f"an array of {count:,} objects" if count else ""})
    return SourceGuess({"kind": "json", "records": way}, {"records": f"the longest array of objects: {count:,}"})


def _is_object(line: str) -> bool:
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False


def _records(text: str) -> tuple[str, int]:
    """Return the way to the longest array of objects, and its length; "" where the document is that array or is cut off."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return "", 0
    arrays = dict(_arrays(document, ""))
    way = max(arrays, key=lambda each: (arrays[each], -len(each)), default="")
    return way, arrays.get(way, 0)


def _arrays(node: object, way: str, depth: int = 0) -> Iterator[tuple[str, int]]:
    if isinstance(node, list) and node and all(isinstance(item, dict) for item in node):
        yield way, len(node)
    if isinstance(node, dict) and depth < 6:
        for name, inner in node.items():
            yield from _arrays(inner, f"{way}.{name}" if way else name, depth + 1)


def _xml(head: Head) -> SourceGuess:
    encoding = guess_encoding(head.content, is_whole=head.is_whole)[0]
    text = head.content.decode(encoding, "replace")
    if re.match(r"\s*(?:<!doctype html|<html)", text, re.IGNORECASE):
        raise ConfigError(
            f"{head.name} is a web page, not rows", hint="the address may ask for a login, or lead to a page about the data"
        )
    element, count = _repeated(text)
    if not element:
        raise ConfigError(
            f"no element stands several times in {head.name}", hint="which one is an event? Write the mapping by hand"
        )
    return SourceGuess({"kind": "xml", "records": element}, {"records": f"stands {count:,} times in what was looked at"})


def _repeated(text: str) -> tuple[str, int]:
    """Return the way to the element nearest the root that stands several times and has elements inside, and how often."""
    counts: dict[tuple[str, ...], int] = {}
    parents: set[tuple[str, ...]] = set()
    way: list[str] = []
    for tag in _TAG.finditer(text):
        closing, name, alone = tag.groups()
        if name is None:
            continue
        if closing:
            if name in way:
                del way[len(way) - 1 - way[::-1].index(name) :]
            continue
        parents.add(tuple(way))
        counts[(*way, name)] = counts.get((*way, name), 0) + 1
        if not alone and len(way) < 30:
            way.append(name)
    found = [(path, count) for path, count in counts.items() if count > 1 and path in parents]
    path, count = min(found, key=lambda one: (len(one[0]), -one[1]), default=((), 0))
    return "/".join(path), count


def _spelt(text: str) -> str:
    return '"\\t"' if text == "\t" else scalar(text)


_KINDS: tuple[tuple[Callable[[bytes, str], bool], Callable[[Head], SourceGuess]], ...] = (
    (lambda begin, suffix: begin.startswith(b"PK\x03\x04") and suffix in {".xlsx", ".xlsm", ""}, _workbook),
    (lambda begin, _suffix: begin.startswith(b"BEGIN:VCALENDAR"), _calendar),
    (lambda begin, suffix: begin[:1] in {b"{", b"["} and suffix not in {".csv", ".tsv"}, _json),
    (lambda begin, suffix: begin[:1] == b"<" and suffix not in {".csv", ".tsv"}, _xml),
)
"""How the kinds are recognised, in this order; everything else is delimited text."""
