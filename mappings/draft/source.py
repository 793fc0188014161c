"""Guesses how to read a partner's file from its first bytes: the `source` block of a first mapping file.

charset-normalizer detects the encoding. It misses code pages that spreadsheet programs write, Western European texts with few
accents, and East Asian files with a few broken bytes; this module adds those.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePath
from typing import Any
from xml.parsers.expat import ExpatError, ParserCreate

import orjson
from charset_normalizer import from_bytes

from mappings.draft.guesses import Guess
from mappings.errors import ConfigError

_PLACES = {"google_sheets": "spreadsheet", "salesforce": "object"}
HEAD_BYTES = 8 * 1024 * 1024
"""How many bytes of a file are examined."""


@dataclass(frozen=True, slots=True)
class SourceGuess:
    """The settings of a `source` block except its place, and the evidence of each. `is_sure`: the encoding is certain.

    `lists`: the separators of columns with lists; `choices`: the texts allowed in a column, if the source says so.
    """

    settings: Mapping[str, Any]
    why: Mapping[str, str] = field(default_factory=dict)
    is_sure: bool = True
    lists: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return str(self.settings["kind"])

    def block(self, place: str) -> dict[str, Any]:
        """Return the whole `source` block, in the order in which it is written."""
        return {"kind": self.kind, _PLACES.get(self.kind, "path"): place, **self.settings}

    def plus(self, name: str, value: object, why: str) -> SourceGuess:
        """Return a copy with one more setting."""
        return replace(self, settings={**self.settings, name: value}, why={**self.why, name: why})

    def guesses(self) -> Iterator[Guess]:
        """Yield each setting as a Guess."""
        for name, why in self.why.items():
            if why and name in self.settings:
                is_likely = name == "sheet" or (name == "encoding" and not self.is_sure)
                yield Guess(f"source.{name}", "", "likely" if is_likely else "sure", why)


def guess_source(name: str, content: bytes, *, is_whole: bool) -> SourceGuess:
    """Guess how to read a file. `is_whole`: `content` is the complete file.

    Raises:
        ConfigError: the file is of an unsupported kind.
    """
    begin = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:512]
    suffix = PurePath(name.casefold()).suffix
    is_old_workbook = begin.startswith(b"\xd0\xcf\x11\xe0")  # or one with a password: the reader says so
    if is_old_workbook or (begin.startswith(b"PK\x03\x04") and suffix in {".xlsx", ".xlsm", ""}):
        return SourceGuess({"kind": "xlsx"}, {})
    if begin.startswith(b"BEGIN:VCALENDAR"):
        why = {"kind": "it begins with BEGIN:VCALENDAR", "series": "each occurrence of a series in this span is a row"}
        return SourceGuess({"kind": "ics", "series": {"from": "-30d", "to": "365d"}}, why)
    if suffix not in {".csv", ".tsv"}:
        if begin[:1] in {b"{", b"["}:
            return _guess_json(content, is_whole=is_whole)
        if begin[:1] == b"<":
            return _guess_xml(name, content, is_whole=is_whole)
    return _guess_delimited(content, is_whole=is_whole)


_MARKS = ("; ", " | ", ", ", " / ")


def join_lists(guess: SourceGuess, columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> SourceGuess:
    """Return the guess with a `join_lists` setting for each column whose cells are lists of texts."""
    if guess.kind not in {"json", "ndjson", "xml"}:
        return guess
    lists = {name: found for name in columns if (found := [*_plain_lists(row.get(name, "") for row in rows)])}
    joined = {name: mark for name, found in lists.items() if (mark := _mark_between(found))}
    return guess.plus("join_lists", joined, f"lists of texts: {', '.join(joined)}") if joined else guess


def _plain_lists(cells: Iterable[str]) -> Iterator[list[str]]:
    """Yield the cells that are JSON arrays of texts, parsed."""
    for cell in cells:
        if cell.startswith("[") and cell.endswith("]"):
            found = _parse_json(cell)
            if isinstance(found, list) and found and all(isinstance(item, str) for item in found):
                yield found


def _mark_between(lists: Sequence[Sequence[str]]) -> str:
    """Return a separator that occurs in no item, "" if there is none."""
    return next((mark for mark in _MARKS if not any(mark.strip() in item for items in lists for item in items)), "")


def _parse_json(text: str) -> object:
    """Return a text parsed as JSON, None if it is not JSON."""
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(text)
    return None


def _guess_json(content: bytes, *, is_whole: bool) -> SourceGuess:
    text = content.decode("utf-8-sig", "replace")
    lines = [line for line in text.splitlines() if line.strip()][: 3 if is_whole else 2]
    if len(lines) > 1 and all(isinstance(_parse_json(line), dict) for line in lines):
        return SourceGuess({"kind": "ndjson"}, {"kind": "each line is an object"})
    arrays = dict(_arrays(_parse_json(text), ""))
    way = max(arrays, key=lambda each: (arrays[each], -len(each)), default="")
    if way:
        return SourceGuess({"kind": "json", "records": way}, {"records": f"the longest array of objects: {arrays[way]:,}"})
    return SourceGuess({"kind": "json"}, {"kind": f"an array of {arrays[way]:,} objects" if arrays else ""})


def _arrays(node: object, way: str, depth: int = 0) -> Iterator[tuple[str, int]]:
    """Yield the path and the length of each array of objects."""
    if isinstance(node, list) and node and all(isinstance(item, dict) for item in node):
        yield way, len(node)
    if isinstance(node, dict) and depth < 6:
        for name, inner in node.items():
            yield from _arrays(inner, f"{way}.{name}" if way else name, depth + 1)


def _guess_xml(name: str, content: bytes, *, is_whole: bool) -> SourceGuess:
    text = content.decode(guess_encoding(content, is_whole=is_whole)[0], "replace")
    if re.match(r"\s*(?:<!doctype html|<html)", text, re.IGNORECASE):
        hint = "download the file itself; its address may ask for a login"
        raise ConfigError(f"{name} is a web page, not rows", hint=hint)
    element, count = _repeated_element(text)
    if not element:
        hint = "write the mapping by hand, with the element of an event in `source.records`"
        raise ConfigError(f"{name} has no repeated element", hint=hint)
    return SourceGuess({"kind": "xml", "records": element}, {"records": f"occurs {count:,} times in the sample"})


def _repeated_element(text: str) -> tuple[str, int]:
    """Return the path and count of the repeated element nearest the root that contains other elements."""
    counts: Counter[tuple[str, ...]] = Counter()
    parents: set[tuple[str, ...]] = set()
    way: list[str] = []

    def start(name: str, _: object) -> None:
        if len(way) < 30:
            parents.add(tuple(way))
            counts[(*way, name)] += 1
        way.append(name)

    parser = ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, lambda _: way.pop()
    with suppress(ExpatError):  # it may end in the middle
        parser.Parse(text)
    found = [(path, count) for path, count in counts.items() if count > 1 and path in parents]
    path, count = min(found, key=lambda one: (len(one[0]), -one[1]), default=((), 0))
    return "/".join(path), count


_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_WIDE = ("cp932", "cp949", "gb18030", "big5")
_LIKELY = ("windows-1252", "windows-1250", *_WIDE, "windows-1251", "iso-8859-2", "koi8-r")
"""The encodings to try. Later standards of Shift-JIS are excluded: they decode 髙 as another letter."""
_CYRILLIC = ("windows-1251", "koi8-r")
_WESTERN = frozenset("€‚„…‘’“”•–—™«»·°§©®´¡¿\u00a0")
_FOUR_ODD_LETTERS = re.compile(r"[^\W\d_A-Za-z]{4}")
_NO_TEXT = re.compile("[\uf8f0-\uf8f3]")
"""Private-use letters that Python's cp932 makes of bytes without a meaning."""
_EAST_ASIAN_WORD = re.compile("[\u3041-\u30fe\u3005\u4e00-\u9fff\uac00-\ud7a3]{2,}")
_FIRST_BYTES = 256 * 1024


def guess_encoding(head: bytes, *, is_whole: bool) -> tuple[str, str, bool]:
    """Return an encoding, the evidence, and whether it is certain: UTF-8 that decodes is certain, anything else is likely."""
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            return encoding, "the file begins with a byte order mark", True
    if _decodes(head, "utf-8", is_whole=is_whole):
        return "utf-8", "every byte decodes as UTF-8", True
    first = head[:_FIRST_BYTES]
    is_western = _reads_western(first)
    name = _best_encoding(first)
    if name in _WIDE and not is_western and _decodes(head, name, is_whole=is_whole):
        return name, f"every byte is text in {name}, and the text looks right", False
    cells = [cell for cell in re.split(rb"[\n;,\t]", first) if not cell.isascii()]
    for wide in ("utf-8", *(() if is_western else _WIDE)):
        good = [cell for cell in cells if _decodes(cell, wide, is_whole=True)]
        bad = len(cells) - len(good)
        if 0 < bad <= max(1, len(cells) // 10) < len(cells) and wide in ("utf-8", _best_encoding(b"\n".join(good))):
            return wide, f"all cells but {bad} decode as {wide}: those must be corrected at the source", False
    if is_western and name not in _CYRILLIC:
        name = "windows-1252"
    fitting = (one for one in (name, *_LIKELY) if one and _decodes(head, one, is_whole=is_whole))
    chosen = next(fitting, "windows-1252")
    return chosen, f"the bytes are not UTF-8 and look like {chosen}: check the letters with accents", False


def _best_encoding(content: bytes) -> str:
    """Return the encoding that charset-normalizer detects, "" if none; an East Asian one only for East Asian words."""
    names = {codecs.lookup(name).name.replace("-", "_"): name for name in _LIKELY}
    best = from_bytes(content, cp_isolation=list(names)).best()
    name = "" if best is None else names.get(best.encoding, "")
    if name not in _WIDE:
        return name
    text = content.decode(name, "replace")
    letters = sum(map(len, _EAST_ASIAN_WORD.findall(text)))
    return name if letters >= max(8, 0.75 * sum(not char.isascii() for char in text)) else ""


def _decodes(content: bytes, encoding: str, *, is_whole: bool) -> bool:
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(content, is_whole)
    except (UnicodeDecodeError, LookupError):
        return False
    return encoding != "cp932" or _NO_TEXT.search(text) is None


def _reads_western(content: bytes) -> bool:
    """Return whether every byte beyond ASCII decodes to a letter or sign of Western European texts.

    A few bytes may fit any code page. A Western word never has four such letters in a row; nearly every Cyrillic or Greek word
    has.
    """
    try:
        text = content.decode("windows-1252")
    except UnicodeDecodeError:
        return False
    is_western = all(char.isalpha() or char in _WESTERN for char in set(text) if not char.isascii())
    return is_western and _FOUR_ODD_LETTERS.search(text) is None


_DELIMITERS = (",", ";", "\t", "|")
_FIRST_ROWS = 200


def _guess_delimited(content: bytes, *, is_whole: bool) -> SourceGuess:
    encoding, why, is_sure = guess_encoding(content, is_whole=is_whole)
    text = content.decode(encoding, "replace").lstrip("\ufeff")
    tables = {delimiter: _read_rows(text, delimiter) for delimiter in _DELIMITERS}
    delimiter = max(_DELIMITERS, key=lambda one: _evenness(tables[one]))
    rows = tables[delimiter]
    number = header_row(rows)
    width = len(rows[number - 1]) if rows else 0
    widths = _widths(rows)
    settings: dict[str, Any] = {"kind": "tsv" if delimiter == "\t" else "csv"}
    if encoding != "utf-8":
        settings["encoding"] = encoding
    if delimiter not in {",", "\t"}:
        settings["delimiter"] = delimiter
    if number != 1:
        settings["header"] = {"row": number}
    even = f"{widths.count(width)} of {len(widths)} rows have {width} cells each"
    header = f"row {number} is the first that is as wide as those below"
    shown = {"encoding": why, "delimiter": even, "header": header, "kind": "" if "delimiter" in settings else even}
    return SourceGuess(settings, shown, is_sure)


def _read_rows(text: str, delimiter: str) -> list[list[str]]:
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(islice(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), _FIRST_ROWS))
    return rows


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [len(cells) for cells in rows if any(cell.strip() for cell in cells)]


def _evenness(rows: Sequence[Sequence[str]]) -> float:
    """Rate a delimiter by the share of rows with the usual number of cells; more cells count a little more."""
    widths = _widths(rows)
    if not widths:
        return 0.0
    width, count = Counter(widths).most_common(1)[0]
    return count / len(widths) * (1 + min(width, 40) / 100) if width > 1 else 0.0


def header_row(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of the first row that is wide enough to be the header."""
    usual = Counter(_widths(rows)).most_common(1)
    width = usual[0][0] if usual else 0
    for position, cells in enumerate(rows, start=1):
        if len(cells) >= width > 1 and sum(bool(cell.strip()) for cell in cells) * 2 >= width:
            return position
    return 1
