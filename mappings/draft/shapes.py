"""Recognises the shapes that people type in a sample: headings above rows, values written once, days as columns."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, product

from mappings.columns import LINK, folded
from mappings.draft.guesses import Column, Role, RoleGuess
from mappings.draft.source import SourceGuess
from mappings.draft.times import find_times
from mappings.patterns import compile_pattern
from mappings.steps.formats import names_of
from mappings.zones import LANGUAGES

TABLES = frozenset({"csv", "tsv", "xlsx", "google_sheets"})
"""The kinds whose rows people type."""
_MARKS = "*†‡#"
_WORD = re.compile(r"[^\W\d_]+")
_RUN = re.compile(r"[^\W\d_]+|\d+|.", re.DOTALL)
_DAY_NUMBER = re.compile(r"\d{1,2}[./]\s?\d{1,2}\b|\b\d{1,2}\b(?!:)")
_ONCE = frozenset({Role.VENUE, Role.CITY, Role.DISTRICT, Role.ADDRESS, Role.START, Role.CATEGORY, Role.TITLE})
"""Roles whose values people write once for several rows."""
_OF_ONE = frozenset({Role.ID, Role.CLOCK, Role.END, Role.END_CLOCK, Role.PRICE, Role.URL, Role.DESCRIPTION})
"""Roles whose values are of one row, or may be missing."""
_DATES = frozenset({"date", "datetime"})
_LEAST_EMPTY = 0.25
_NAMED = {"month": "MONTH", "day": "DAY", "date": "DATE", "text": "HEADING"}
Rows = Sequence[Mapping[str, str]]


def guess_shapes(guess: SourceGuess, columns: Sequence[str], rows: Rows) -> SourceGuess:
    """Return the guess with the settings of the shapes in which the rows of a sample are written, each with its evidence."""
    own = [name for name in columns if not name.endswith(LINK)]
    if guess.kind not in TABLES or len(own) < 2:
        return guess
    texts = [{name: text for name in own if (text := row.get(name, "").strip())} for row in rows]
    notes = [text for row in texts if _is_lone(row) for text in row.values() if text[0] in _MARKS]
    mark = notes[0][0] if notes else ""
    if mark and all(_is_lone(row) or not row.get(own[0], "").startswith(mark) for row in texts if row):
        guess = guess.plus("comment", mark, f"{notes[0]!r} is a note, no event", is_sure=False)
        texts = [row for row in texts if not row.get(own[0], "").startswith(mark)]
    guess, blocks = _with_headings(guess, own, texts)
    days = _days_among(own, texts)
    filled = [name for name in own if name not in days and _is_written_once(name, own, blocks)]
    if filled:
        empty = sum(name not in row for block in blocks for row in block for name in filled)
        why = f"the first of several rows has the value of all: {empty:,} cells below one are empty, none repeats it"
        guess = guess.plus("fill_down", filled, why, is_sure=False)
    return _with_days(guess, own, days, texts) if days else guess


def days_of_months(columns: Sequence[Column], headings: Collection[str]) -> dict[Role, RoleGuess]:
    """Return the days that a column and the months above its rows name together, if any: `ven. 8` below `JANVIER 2027`."""
    # A number may count anything: the name of the column, or a day of the week, says that it counts days.
    days = [column for column in columns if column.filled and (Role.START in column.roles or not column.is_number)]
    months = [column for column in columns if column.name in headings and column.name.startswith(_NAMED["month"])]
    for month, day in product(months, days):
        if day is month:
            continue
        both_cells = zip(day.cells, month.cells, strict=True)
        cells = tuple(f"{one} {other}" if one.strip() and other.strip() else "" for one, other in both_cells)
        both = Column(f"{day.name}, {month.name}", cells, of=(day, month))
        if both.times is not None and both.times.kind == "date":
            return {Role.START: RoleGuess(both, "likely", f'"{day.name}" and "{month.name}" are a date together')}
    return {}


def _is_lone(row: Mapping[str, str]) -> bool:
    """Return whether a row has a single text; merged over its width, it stands in each cell."""
    return len(set(row.values())) == 1


def _kind(text: str) -> str:
    """Return what a heading names: a `month`, a `day` of the week, a `date`, or another `text`."""
    words = _WORD.findall(text.casefold())
    if (times := find_times([text])) is not None and times.kind in _DATES:
        return "date"
    has_month, has_weekday = (len(words) <= 4 and not _names(letters).isdisjoint(words) for letters in ("Bb", "Aa"))
    if _DAY_NUMBER.search(text):
        return "date" if has_month or has_weekday else "text"
    return "month" if has_month else "day" if has_weekday and len(words) == 1 else "text"


@lru_cache(maxsize=3)
def _names(letters: str) -> frozenset[str]:
    """Return the names of months (`B`, short `b`) or days of the week (`A`, `a`) in every language."""
    return frozenset(name for language in LANGUAGES for letter in letters for name in names_of(letter, language))


def _with_headings(guess: SourceGuess, own: Sequence[str], texts: Rows) -> tuple[SourceGuess, list[list[Mapping[str, str]]]]:
    """Return the guess with the headings above rows; and the blocks of rows between headings and blank rows."""
    last = max((at for at, row in enumerate(texts) if row and not _is_lone(row)), default=0)
    lone = {at: next(iter(row.items())) for at, row in enumerate(texts[:last]) if _is_lone(row)}
    column = max(own, key=Counter(name for name, _ in lone.values()).__getitem__)
    kinds = {at: _kind(text) for at, (name, text) in lone.items() if name == column}
    found: defaultdict[str, list[str]] = defaultdict(list)
    for at, kind in kinds.items():
        found[kind].append(lone[at][1])
    cells = [row[column] for row in texts if column in row and not _is_lone(row)]
    patterns = {kind: _pattern(kind, named) for kind, named in found.items() if kind != "text" or len(named) > 1}
    # Where the cells of usual rows look alike, the rows lack the rest.
    patterns = {kind: one for kind, one in patterns.items() if sum(map(compile_pattern(one).finds, cells)) * 5 <= len(cells)}
    heads = {at for at, kind in kinds.items() if kind in patterns}
    is_above = bool(heads) and all(kinds.get(at + 1, "text") != "text" for at, kind in kinds.items() if kind == "text")
    order = ("text", "month", "date", "day") if is_above else ("month", "date", "day", "text")
    headings, whys, is_sure = {}, [], min(heads, default=0) == min((at for at, row in enumerate(texts) if row), default=0)
    for kind in filter(patterns.__contains__, order):
        name = _free(_NAMED[kind], own)
        headings[name] = {"column": column, "matches": patterns[kind]}
        others = (text for at, (_, text) in lone.items() if kinds.get(at) != kind)
        is_sure &= kind != "text" and len(found[kind]) > 1 and not any(map(compile_pattern(patterns[kind]).finds, others))
        whys.append(f"{len(found[kind]):,} rows have one text, such as {found[kind][0]!r}: {name} of the rows below them")
    if headings:
        guess = guess.plus("headings", headings, "; ".join(whys), is_sure=is_sure)
    blocks: list[list[Mapping[str, str]]] = [[]]
    for at, row in enumerate(texts):
        if at in heads or not row:
            blocks.append([])
        elif not _is_lone(row):
            blocks[-1].append(row)
    return guess, [block for block in blocks if block]


def _pattern(kind: str, texts: Sequence[str]) -> str:
    """Return a pattern for headings like these: names that a calendar has, or letters and digits in their order."""
    if kind == "text":
        return r"^\p{L}"
    words = {text.casefold() for text in texts}
    for language in LANGUAGES:
        for letter in "Bb" if kind == "month" else "Aa":
            if words <= (names := names_of(letter, language)).keys():
                return f"(?i)^(?:{'|'.join(dict.fromkeys(map(re.escape, names)))})$"
    shapes = dict.fromkeys("".join(map(_class, _RUN.findall(text))) for text in texts)
    return f"^{next(iter(shapes))}$" if len(shapes) == 1 else f"^(?:{'|'.join(shapes)})$"


def _class(run: str) -> str:
    if run.isdecimal():
        return r"\d{4}" if len(run) == 4 else r"\d+"
    if run[0].isalpha():
        return r"\p{Lu}+" if run.isupper() and len(run) > 1 else r"\p{L}+"
    return run if run in " ,:/-–" else re.escape(run)


def _is_written_once(name: str, own: Sequence[str], blocks: Sequence[Rows]) -> bool:
    """Return whether a value of a column stands in the first of its rows only: each block begins with one, and none repeats."""
    column = Column(name, tuple(row.get(name, "") for block in blocks for row in block))
    is_of_several = column.roles.keys() & _ONCE or name == own[0]
    empty = len(column.cells) - len(column.filled)
    if not is_of_several or column.roles.keys() & _OF_ONE or empty < max(2, _LEAST_EMPTY * len(column.cells)):
        return False
    values = [[row.get(name, "") for row in block] for block in blocks]
    repeats = any(text and text == below for block in values for text, below in pairwise(block))
    return all(block[0] for block in values) and not repeats


def _days_among(own: Sequence[str], texts: Rows) -> list[str]:
    """Return the columns that are days of the week or dates, and hold something else."""
    named = [name for name in own if name.casefold() in _names("A")]
    short = [name for name in own if name.casefold().rstrip(".") in _names("Aa")]
    dated = [name for name in own if _kind(name) == "date"]
    for names, least in ((named, 2), (short, 4), (dated, 3)):
        cells = [row[name] for row in texts for name in names if name in row]
        if len(names) >= least and cells and ((times := find_times(cells)) is None or times.kind not in _DATES):
            return names
    return []


def _with_days(guess: SourceGuess, own: Sequence[str], days: Sequence[str], texts: Rows) -> SourceGuess:
    cells = [row[name] for row in texts for name in days if name in row]
    is_dated, is_clock = _kind(days[0]) == "date", find_times(cells) is not None
    taken = [*own, *guess.settings.get("headings", ())]
    into, cell = _free("DATE" if is_dated else "DAY", taken), _free("TIME" if is_clock else "CLASS", taken)
    shown = [f"#{own.index(name) + 1}" for name in days] if is_dated else days
    # A mark that recurs says on which days something is, not what it is.
    are_words = not is_clock and max(Counter(cells).values()) * 2 <= len(cells) and sum(map(len, cells)) > 3 * len(cells)
    has_clock = any(find_times([row[name] for row in texts if name in row]) for name in own if name not in days)
    after = "they are named by position, as dates change" if is_dated else "a day of the week is a series: see `recur`"
    why = f"{len(days)} columns are days: each of their {len(cells):,} filled cells is a row; {after}"
    setting = {"columns": shown, "into": into, "cell": cell}
    return guess.plus("unpivot", setting, why, is_sure=are_words and has_clock and not is_dated)


def _free(name: str, taken: Sequence[str]) -> str:
    """Return a name for a new column that no column has."""
    return _free(f"{name}_", taken) if folded(name) in map(folded, taken) else name
