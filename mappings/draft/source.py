"""Guesses how to read a partner's file from its first bytes: the `source` block of a first mapping file.

charset-normalizer detects the encoding. It misses code pages that spreadsheet programs write, Western European texts with few
accents, and East Asian files with a few broken bytes; this module adds those.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePath
from typing import Any
from xml.parsers.expat import ExpatError, ParserCreate

import orjson
from charset_normalizer import from_bytes

from mappings.draft.guesses import Column, Guess, Role, roles_by_name
from mappings.errors import ConfigError

_PLACES = {"google_sheets": "spreadsheet", "salesforce": "object", "sql": "table", "rest": "url"}
HEAD_BYTES = 8 * 1024 * 1024
"""How many bytes of a file are examined."""


@dataclass(frozen=True, slots=True)
class SourceGuess:
    """The settings of a `source` block except its place, and the evidence of each. `likely`: those that are not certain.

    `lists`: the separators of columns with lists; `choices`: the texts allowed in a column, if the source says so. `faults`: what
    is wrong in the sample.
    """

    settings: Mapping[str, Any]
    why: Mapping[str, str] = field(default_factory=dict)
    likely: frozenset[str] = frozenset()
    lists: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    faults: tuple[Guess, ...] = ()

    @property
    def kind(self) -> str:
        return str(self.settings["kind"])

    def block(self, place: str) -> dict[str, Any]:
        """Return the whole `source` block, in the order in which it is written."""
        return {"kind": self.kind, _PLACES.get(self.kind, "path"): place, **self.settings}

    def plus(self, name: str, value: object, why: str, *, is_sure: bool = True) -> SourceGuess:
        """Return a copy with one more setting."""
        likely = self.likely if is_sure else self.likely | {name}
        return replace(self, settings={**self.settings, name: value}, why={**self.why, name: why}, likely=likely)

    def guesses(self) -> Iterator[Guess]:
        """Yield each setting as a Guess."""
        for name, why in self.why.items():
            if why and name in self.settings:
                yield Guess(f"source.{name}", "", "likely" if name in self.likely else "sure", why)
        yield from self.faults


def guess_source(name: str, content: bytes, *, is_whole: bool) -> SourceGuess:
    """Guess how to read a file. `is_whole`: `content` is the complete file.

    Raises:
        ConfigError: the file is of an unsupported kind.
    """
    begin = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:512]
    suffix = PurePath(name.casefold()).suffix
    if begin.startswith(b"PK\x03\x04"):
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


RECORDS = frozenset({"json", "ndjson", "xml", "rest"})
"""The kinds whose cells may be lists."""
_DEEPEST = 6
_MARKS = ("; ", " | ", ", ", " / ")


def join_lists(guess: SourceGuess, columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> SourceGuess:
    """Return the guess with a `join_lists` setting for each column whose cells are lists of texts."""
    if guess.kind not in RECORDS:
        return guess
    lists = {name: found for name in columns if (found := [*_plain_lists(row.get(name, "") for row in rows)])}
    joined = {name: mark for name, found in lists.items() if (mark := _mark_between(found))}
    return guess.plus("join_lists", joined, f"lists of texts: {', '.join(joined)}") if joined else guess


_NULLS = frozenset(
    {"NULL", "null", r"\N", "NaN", "nan", "NaT", "None", "N/A", "n/a", "(null)", "<null>", "[NULL]", "(NULL)", "<NULL>", "<NA>"}
    | {"-", "--", "–", "—"}
)
_WORDS_TOO = frozenset({"null", "NaN", "nan", "None", "N/A", "n/a"})
"""Null tokens that could be words, beside texts."""
_NOT_FOUND = frozenset({"#N/A", "#N/D", "#N/D!", "#NV", "#N/B", "#SAKNAS!", "#PUUTTUU!"})
"""The error of a lookup without a result, as spreadsheets write it in several languages."""
_AMONG_NUMBERS = frozenset({"NA", "N.A.", "n.a."})
"""Texts that mean nothing in columns of numbers, days or times; elsewhere they may be words."""
_NO_DAY = re.compile(
    r"(?:0000-?00-?00|0001-01-01|9999-?12-?31)(?:[T ][0-9:.]+Z?)?|00\.00\.0000|31\.12\.9999|1900-01-01[T ]00:00:00(?:\.0+)?"
)
"""A day that databases write where there is none, or no end."""
_ERROR = re.compile(r"#[¡¿]?[A-ZÀ-Þ][A-ZÀ-Þ0-9/_]+[!?]|#GETTING_DATA|#{3,}|Err:\d{3}")


def empty_nulls(
    guess: SourceGuess, names: Sequence[str], rows: Sequence[Mapping[str, str]]
) -> tuple[SourceGuess, Sequence[Mapping[str, str]]]:
    """Return the guess with the null tokens of the sample and the errors of spreadsheets in it; and the rows without either."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for name, cell in row.items():
            text = cell.strip()
            if text in _NULLS or text in _AMONG_NUMBERS or _NO_DAY.fullmatch(text) or _is_error(text):
                found[text][name] += 1
    holders = dict.fromkeys(name for columns in found.values() for name in columns)
    rest = {
        name: Column(name, tuple("" if row.get(name, "").strip() in found else row.get(name, "") for row in rows))
        for name in holders
    }
    times = {name for name, column in rest.items() if column.times}
    measured = times | {name for name, column in rest.items() if column.is_number}
    timed = times | {name for name, column in rest.items() if column.roles.keys() & {Role.START, Role.CLOCK, Role.END}}
    everywhere = [text for text in found if text in _NULLS or (text in _NOT_FOUND and not timed & found[text].keys())]
    errors = {text: found[text] for text in found if _is_error(text)}
    is_sheet = guess.kind in {"xlsx", "google_sheets"}  # of these, rows with errors are rejected

    def is_empty_in(name: str, text: str) -> bool:
        if text in errors:
            return not is_sheet and name not in timed
        return name in (measured if text in _AMONG_NUMBERS else times)

    others = [text for text in found if text not in everywhere]
    in_column = {
        name: texts for name in rest if (texts := [text for text in others if name in found[text] and is_empty_in(name, text)])
    }
    if everywhere:
        why = ", ".join(f"{text} in {found[text].total():,} of {', '.join(map(_quoted, found[text]))}" for text in everywhere)
        is_sure = not any(text in _WORDS_TOO and found[text].keys() - measured for text in everywhere)
        guess = guess.plus("empty_if", everywhere, why, is_sure=is_sure)
    if in_column:
        guess = guess.plus("empty_in", in_column, "these texts mean nothing in these columns")
    if errors:
        shown = ", ".join(f"{text} ({columns.total():,})" for text, columns in errors.items())
        total, columns = (
            sum(each.total() for each in errors.values()),
            dict.fromkeys(name for each in errors.values() for name in each),
        )
        advice = "correct them at the source, or name them in `empty_if`"
        fault = Guess("faults", ", ".join(columns), "unsure", f"{total:,} cells hold errors of a spreadsheet: {shown}; {advice}")
        guess = replace(guess, faults=(*guess.faults, fault))
    gone = {name: {*everywhere, *errors, *in_column.get(name, ())} for name in names}
    return guess, [{name: "" if cell.strip() in gone.get(name, ()) else cell for name, cell in row.items()} for row in rows]


def _is_error(text: str) -> bool:
    return text in _NOT_FOUND or (text[:1] in {"#", "E"} and _ERROR.fullmatch(text) is not None)


def _quoted(name: str) -> str:
    return f'"{name}"'


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
    found: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for path, item in _records(_parse_json(text), ""):
        found[path].append(item)
    records = max(found, key=lambda path: (_are_events(found[path]), len(found[path]), *_plainness(path)), default="")
    number = f"{len(found.get(records, ())):,}"
    if "*" in records.replace("[*]", ""):
        why = f'{number} objects below keys that are data: the column "#key" is the key of each'
        return SourceGuess({"kind": "json", "records": records}, {"records": why})
    if records:
        return SourceGuess({"kind": "json", "records": records}, {"records": f"the longest array of objects: {number}"})
    return SourceGuess({"kind": "json"}, {"kind": f"an array of {number} objects" if found else ""})


def _plainness(path: str) -> tuple[int, int, int]:
    """Rate a path for the same records: one with a number in a name fits one file only, one with `*` says less than names."""
    return -sum(map(str.isdigit, path)), -path.count("*"), -len(path)


def _records(node: object, path: str, depth: int = 0) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects of each array, and the events of each object by keys that are data, with their paths.

    Within the objects of an array only the latter are considered: other arrays are parts of a record.
    """
    if isinstance(node, list) and node and all(isinstance(item, dict) for item in node):
        yield from ((path, item) for item in node)
        inner = ((f"{path}[*].{name}", value) for item in node for name, value in item.items() if isinstance(value, dict))
        yield from (one for name, value in inner for one in _records_by_key(value, f"{name}.", depth + 1) if depth < _DEEPEST)
    elif isinstance(node, dict) and depth < _DEEPEST:
        below = f"{path}." if path else ""
        yield from _records_by_key(node, below, depth)
        for name, value in node.items():
            yield from _records(value, f"{below}{name}", depth + 1)


def _records_by_key(node: Mapping[str, Any], path: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    values = [value for value in node.values() if value]
    if values and all(isinstance(value, dict) for value in values):
        if (len(values) > 1 or any(map(str.isdigit, next(iter(node))))) and _are_events(values):
            yield from ((f"{path}*", value) for value in values)
        elif depth < _DEEPEST:
            yield from (one for value in values for one in _records_by_key(value, f"{path}*.", depth + 1))
    elif values and all(isinstance(value, list) and _are_events(value) for value in values):
        yield from ((f"{path}*", item) for value in values for item in value)


def _are_events(items: Sequence[Any]) -> bool:
    """Return whether most items are objects with a title and a day or time, by their names."""
    wanted = {Role.TITLE}, {Role.START, Role.CLOCK}
    roles = (set().union(*map(roles_by_name, item)) if isinstance(item, dict) else set() for item in items)
    return sum(all(one & found for one in wanted) for found in roles) * 2 > len(items)


def _guess_xml(name: str, content: bytes, *, is_whole: bool) -> SourceGuess:
    text = content.decode(guess_encoding(content, is_whole=is_whole)[0], "replace")
    element, count = _repeated_element(text)
    if not element:
        hint = "write the mapping by hand, with the element of an event in `source.records`"
        raise ConfigError(f"{name} has no repeated element", hint=hint)
    return SourceGuess({"kind": "xml", "records": element}, {"records": f"occurs {count:,} times in the sample"})


def _repeated_element(text: str) -> tuple[str, int]:
    """Return the path and count of the repeated element nearest the root that contains other elements, or has at least two
    attributes if none does.
    """
    counts: Counter[tuple[str, ...]] = Counter()
    parents, attributed = set[tuple[str, ...]](), set[tuple[str, ...]]()
    way: list[str] = []

    def start(name: str, attributes: Mapping[str, str]) -> None:
        if len(way) < 30:
            parents.add(tuple(way))
            attributed.update([(*way, name)] if len(attributes) > 1 else [])
            counts[(*way, name)] += 1
        way.append(name)

    parser = ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, lambda _: way.pop()
    with suppress(ExpatError):  # it may end in the middle
        parser.Parse(text)
    found = [(path, count) for path, count in counts.items() if count > 1 and path in parents | attributed]
    path, count = min(found, key=lambda one: (one[0] not in parents, len(one[0]), -one[1]), default=((), 0))
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
    dialects = _DIALECTS if '"' in text else ((), ("quote",))
    tables = {(delimiter, names): _read_rows(text, delimiter, names) for delimiter in _DELIMITERS for names in dialects}
    delimiter, _ = max(tables, key=lambda one: _evenness(tables[one][0]))
    extra = max(dialects, key=lambda names: (tables[delimiter, names][1], _evenness(tables[delimiter, names][0])))
    rows, _ = tables[delimiter, extra]
    number, header, why_header = header_of(rows)
    width = len(rows[number - 1]) if rows else 0
    widths = _widths(rows)
    settings: dict[str, Any] = {"kind": "tsv" if delimiter == "\t" else "csv"}
    if encoding != "utf-8":
        settings["encoding"] = encoding
    if delimiter not in {",", "\t"}:
        settings["delimiter"] = delimiter
    settings |= {name: _DIALECT[name][0] for name in extra}
    if header:
        settings["header"] = header
    even = f"{widths.count(width)} of {len(widths)} rows have {width} cells each"
    shown = {"encoding": why, "delimiter": even, "header": why_header, "kind": "" if "delimiter" in settings else even}
    shown |= {name: _DIALECT[name][2] for name in extra}
    return SourceGuess(settings, shown, frozenset(() if is_sure else ("encoding",)))


_DIALECT: Mapping[str, tuple[object, Mapping[str, Any], str]] = {
    "skip_blanks": (True, {"skipinitialspace": True}, "a blank stands between a delimiter and a quote"),
    "escape": ("\\", {"escapechar": "\\", "doublequote": False}, r"a quote within a cell is written \""),
    "quote": ("'", {"quotechar": "'"}, "cells stand within single quotes"),
}
"""The settings of other dialects, each with its value, that of the csv module, and its evidence."""
_DIALECTS: tuple[tuple[str, ...], ...] = ((), ("skip_blanks",), ("escape",), ("skip_blanks", "escape"))


def _read_rows(text: str, delimiter: str, settings: Iterable[str]) -> tuple[list[list[str]], bool]:
    """Return the first rows, and whether their quotes are right: none follows a blank, a backslash, or stands bare in a cell."""
    dialect: dict[str, Any] = {"delimiter": delimiter}
    for name in settings:
        dialect |= _DIALECT[name][1]
    rows, strict = list[list[str]](), list[list[str]]()
    for found, is_strict in ((rows, False), (strict, True)):
        with suppress(csv.Error):
            found.extend(islice(csv.reader(io.StringIO(text, newline=""), strict=is_strict, **dialect), _FIRST_ROWS))
    return rows, len(strict) == len(rows) and not any(_UNREAD_QUOTE.match(cell) for cells in rows for cell in cells)


_UNREAD_QUOTE = re.compile(r' +"|.*\\"')


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [len(cells) for cells in rows if any(cell.strip() for cell in cells)]


def _evenness(rows: Sequence[Sequence[str]]) -> float:
    """Rate a delimiter by the share of rows with the usual number of cells; more cells count a little more."""
    widths = _widths(rows)
    if not widths:
        return 0.0
    width, count = Counter(widths).most_common(1)[0]
    return count / len(widths) * (1 + min(width, 40) / 100) if width > 1 else 0.0


def header_of(rows: Sequence[Sequence[str]]) -> tuple[int, dict[str, int], str]:
    """Return the number of the header's row, the setting `header` (empty if the first row is the header), and the evidence."""
    number = header_row(rows)
    if number > 1 and _is_grouped(rows[number - 2 :], is_narrow=True):
        number -= 1
    if _is_grouped(rows[number - 1 :]):
        header = {"row": number, "rows": 2} if number != 1 else {"rows": 2}
        return number, header, f"row {number} names groups of columns, row {number + 1} the columns in them"
    return number, {"row": number} if number != 1 else {}, f"row {number} is the first that is as wide as those below"


_DIGIT = re.compile(r"\d")


def _is_grouped(rows: Sequence[Sequence[str]], *, is_narrow: bool = False) -> bool:
    """Return whether the first two rows are the header: groups of columns, and names in them, without a digit where the rows
    below have some. `is_narrow`: most columns are in few groups, which is also how a title looks, or a label and its value.
    """
    width = max(map(len, rows[:2]), default=0)
    groups, names, *below = (
        ([*map(str.strip, cells), *[""] * (width - len(cells))] for cells in rows) if len(rows) > 2 else ([], [])
    )
    both = list(zip(groups, names, strict=True))
    has_groups = any(name and not group for group, name in both) or any(map(str.__eq__, groups, groups[1:]))
    if not has_groups or not all(map(any, both)) or any(map(_DIGIT.search, (*groups, *names))):
        return False
    adjacent = any(group and after and name for (group, name), after in zip(both, groups[1:], strict=False))
    if is_narrow and (adjacent or sum(map(bool, groups)) < 2):
        return False
    columns = [[cells[at] for cells in below if cells[at]] for at, name in enumerate(names) if name]
    return any(cells and all(map(_DIGIT.search, cells)) for cells in columns)


def header_row(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of the first row that is wide enough to be the header."""
    usual = Counter(_widths(rows)).most_common(1)
    width = usual[0][0] if usual else 0
    for position, cells in enumerate(rows, start=1):
        if len(cells) >= width > 1 and sum(bool(cell.strip()) for cell in cells) * 2 >= width:
            return position
    return 1
