"""Finds the formats of dates and times that read the most cells of a column, with the same parsers as the steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import lru_cache, partial
from itertools import chain, product
from typing import Any, get_args

from mappings.lint.warnings import order_of, swapped
from mappings.lookup_table import plain
from mappings.steps.durations import BareUnit, read_length, unit_words
from mappings.steps.formats import (
    DASHES,
    ZERO_DAY,
    Format,
    NotRealError,
    compile_format,
    read_format,
    read_listed,
    read_span,
    span_format,
)
from mappings.steps.times import EARLY_LANGUAGES, read_clock_span
from mappings.zones import LANGUAGES

_YEAR_FIRST = ("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y年%m月%d日", "%Y년 %m월 %d일", "%Y. %m. %d.", "%Y.%m.%d.")
_DAYS = (
    *_YEAR_FIRST,
    *(f"%d{mark}%m{mark}{year}" for mark in "/.-" for year in ("%Y", "%y")),
    *(f"%m{mark}%d{mark}{year}" for mark in "/.-" for year in ("%Y", "%y")),
)
_COMPACT_DAY = "%Y%m%d"
_NAMED_DAYS = (
    *("%d %B %Y", "%d. %B %Y", "%d de %B de %Y", "%B %d, %Y", "%d %b %Y", "%b %d, %Y", "%d-%b-%Y", "%d-%b-%y", "%d. %b %Y"),
    *("%A, %d %B %Y", "%A, %B %d, %Y", "%A, %d. %B %Y", "%a, %d %b %Y", "%a %d %b %Y", "%A %d %B %Y", "%a, %b %d, %Y"),
    *("%A, %d de %B de %Y", "%a, %d.%m.%Y", "%a %d.%m.%Y", "%A, %d.%m.%Y", "%A %d.%m.%Y", "%a, %d/%m/%Y", "%a %d/%m/%Y"),
    *("%a %d %B %Y", "%a, %d %B %Y", "%a %d. %B %Y"),
    *(f"{day}{weekday}" for day in (*_YEAR_FIRST, "%d.%m.%Y", "%d/%m/%Y") for weekday in ("(%a)", " (%a)", "(%A)", " (%A)")),
)
_CLOCKS = (
    *("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M%p", "%I:%M:%S %p", "%I %p", "%I%p", "%I.%M%p", "%I.%M %p"),
    *("%Hh%M", "%Hh", "%H h", "%H h %M", "%H時%M分", "%H:%M Uhr", "%H.%M Uhr", "%H Uhr", "%H:%M uur", "%H.%M uur", "%H.%M"),
)
_BEFORE_CLOCKS = (
    *(" ", "T", ", ", " - ", " at ", " um ", ", um ", " kl. ", " à ", " a las ", " às "),
    *(" alle ", " om ", " godz. ", ", godz. "),
)
"""What may stand between a day and a time of day."""
_EARLY_CLOCKS = ("%p %I:%M", "%p%I:%M", "%p %I:%M:%S", "%p%I:%M:%S", "%p %I시 %M분", "%p%I時%M分", "%p%I点%M分")
"""Times behind the words for AM and PM, which all hold one of two characters: 午前, 上午, 오전."""
_NO_CLOCK = re.compile(r"[ T](?:00?:00(?::00)?|12:00(?::00)? ?AM|23:59(?::00|:59)?)(?:\.0+)?\Z", re.IGNORECASE)
"""A time of midnight, or of the last minute, that databases append to a day without a time."""
_EIGHT_DIGITS = re.compile(r"\d{8}(?!\d)")
_PROBED = 60
_MOST_FORMATS = 5
_MOST_PARTS = 60
_DISTINCT = 500
_LONGEST = 200
_ENOUGH = 0.6
_SEPARATORS = (";", "\n", "|", ",", " and ", " und ", " et ", " e ", " y ", " i ", " en ", " og ", " och ", " a ", "、")
"""Possible separators between the days of a list."""
_BETWEEN_DAYS = re.compile(rf"\s*[{DASHES}]\s*|\s(?:to|till|until|bis|al?|à|au|até|do|tot|til)\s")
_TIMES_OF_DAY = frozenset({"time", "clock", "clock_range"})
_ALL_DAY = (
    *("all day", "all-day", "ganztägig", "ganztags", "toute la journée", "todo el día", "todo o dia", "o dia todo"),
    *("dia inteiro", "tutto il giorno", "cały dzień", "całodniowe", "hele dag", "de hele dag", "celý den", "hela dagen"),
    *("hele dagen", "koko päivän", "終日", "종일", "全天", "весь день", "tüm gün"),
)
"""Texts in columns of times that mean all day."""


@dataclass(frozen=True, slots=True, eq=False)
class TimeForm:
    """One way to parse a cell: the step `kind`, its format and language, and its parser. `format` is None for clocks in words.

    `kind`: `date`, `datetime`, `moment` (with an offset), `time`, `clock`, `clock_range`, `dates` (split `by` these texts) or
    `date_range`. `locale`: "" for English. `order`: `day` or `month`, the first of two numbers; "" if unambiguous.
    """

    kind: str
    read: Callable[[str], Any]
    format: Format | None = None
    locale: str = ""
    by: tuple[str, ...] = ()
    order: str = ""

    @property
    def sort(self) -> str:
        """The sort of value, which may not be mixed in a column: times of day, moments or days."""
        return "clock" if self.kind in _TIMES_OF_DAY else "moment" if self.kind == "moment" else "day"

    def fits(self, text: str) -> bool:
        """Return whether this form parses the whole text to a real date or time, or several."""
        try:
            return self.read(text) is not None
        except NotRealError:
            return False


def _forms_of_one(texts: Sequence[str]) -> Iterator[TimeForm]:
    """Yield the formats of a single date or time that fit at least one of these texts."""
    return (form for form in _candidates(texts[:_PROBED]) if any(map(form.fits, texts)))


def _candidates(probed: Sequence[str]) -> Iterator[TimeForm]:
    signs = set("".join(probed).casefold())
    clocks = [clock for clock in _CLOCKS if signs.issuperset(re.sub(r"%.|\s", "", clock).casefold())]
    yield from (_form("time", clock) for clock in clocks)
    midnights = {found.group() if (found := _NO_CLOCK.search(text)) else "" for text in probed}
    no_clock = midnights.pop() if len(midnights) == 1 else ""
    days = [*_DAYS, _COMPACT_DAY] if all(map(_EIGHT_DIGITS.match, probed)) else _DAYS
    has_names = any(char.isalpha() for text in probed for char in text if char not in "TZ")
    for locale, spellings in [("en", days), *((locale, _NAMED_DAYS) for locale in LANGUAGES if has_names)]:
        early = _EARLY_CLOCKS if locale in EARLY_LANGUAGES and signs.intersection("午오") else ()
        written = [day for day in (*spellings, *(_YEAR_FIRST if early else ())) if signs.issuperset(set("()").intersection(day))]
        begun = [day for day in written if any(map(compile_format(day, locale).pattern.match, probed))]
        yield from (_form("date", f"{day}{no_clock}", locale) for day in begun)
        joints = [joint for joint in _BEFORE_CLOCKS if any(joint in text for text in probed)]
        for day, between, clock, offset in product(begun, joints, (*clocks, *early), ("", "%z", " %z")):
            yield _form("moment" if offset else "datetime", f"{day}{between}{clock}{offset}", locale)


@lru_cache(maxsize=8192)
def _form(kind: str, spelling: str, locale: str = "en") -> TimeForm:
    form = compile_format(spelling, locale)
    return TimeForm(kind, partial(read_format, form), form, "" if locale == "en" else locale, order=order_of(spelling))


def _forms_of_lists(texts: Sequence[str]) -> Iterator[TimeForm]:
    """Yield the formats of lists of days that fit at least one of these texts."""
    marks = tuple(mark for mark in _SEPARATORS if any(mark in text for text in texts))
    # A comma may also stand inside a day: May 3, 2027; May 4, 2027.
    for by in filter(None, dict.fromkeys((marks, tuple(mark for mark in marks if mark != ",")))):
        cells = [_parts(text, by) for text in texts if len(text) <= _LONGEST]
        if any(len(parts) > 1 for parts in cells):
            for day, whole in _days([parts[-1] for parts in cells if parts]):
                if not any(mark in whole.example for mark in by):
                    yield replace(day, kind="dates", read=_list_reader(day, whole, by), by=by)


def _list_reader(day: TimeForm, whole: Format, by: tuple[str, ...]) -> Callable[[str], Any]:
    span = span_format(whole, day.locale or "en")

    def read(text: str) -> Any:
        parts = _parts(text, by)
        found = read_listed(span, parts) if 0 < len(parts) <= _MOST_PARTS else [None]
        return None if None in found else found

    return read


def _forms_of_ranges(texts: Sequence[str]) -> Iterator[TimeForm]:
    """Yield the formats of ranges of days that fit at least one of these texts."""
    ends = [text[cut.end() :] for text in texts if len(text) <= _LONGEST for cut in _BETWEEN_DAYS.finditer(text)]
    for day, whole in _days(ends):
        span = span_format(whole, day.locale or "en")
        ranged = replace(day, kind="date_range", read=partial(read_span, span))
        if any(not day.fits(text) and ranged.fits(text) for text in texts):
            yield ranged


def _days(texts: Iterable[str]) -> list[tuple[TimeForm, Format]]:
    forms = _forms_of_one([*dict.fromkeys(texts)])
    return [(form, form.format) for form in forms if form.kind == "date" and form.format is not None]


def _parts(text: str, by: tuple[str, ...]) -> list[str]:
    cuts = "|".join(map(re.escape, sorted(by, key=len, reverse=True)))
    return [part for part in map(str.strip, re.split(cuts, text)) if part]


def _clocks_in_words(texts: Sequence[str], *, is_end: bool = False) -> Iterator[TimeForm]:
    """Yield the step for times that no single format parses (19 Uhr 30, kl. 19), or for ranges of them (7-9pm)."""
    form = TimeForm("clock", partial(read_clock_span, has_day_end=is_end))
    spans = [form.read(text) for text in texts if form.fits(text)]
    if spans:
        yield replace(form, kind="clock_range") if any(span and span[1] for span in spans) else form


def _clocks_in_digits(texts: Sequence[str]) -> Iterator[TimeForm]:
    """Yield the format of times without a mark between hours and minutes, such as 1930, if all texts are as long."""
    spellings = {4: "%H%M", 6: "%H%M%S"}
    lengths = set(map(len, texts))
    if len(lengths) == 1 and (spelling := spellings.get(lengths.pop())):
        yield _form("time", spelling)


@dataclass(frozen=True, slots=True)
class TimeSpelling:
    """The formats that one step tries, the most frequent first. `locale`: "" for English."""

    kind: str
    formats: tuple[str, ...]
    locale: str = ""
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnTimes:
    """The formats of a column's dates or times: `fitting` of its `filled` cells fit one of `ways`.

    `order`: the order of day and month (`day` or `month` first), "" if unambiguous. `proving`: how many cells prove that order;
    with 0 the other order fits as well. `odd`: the first cells that fit no format; `all_day`: texts among times that mean all
    day, which count as fitting. `latest`: the last day in the cells.
    """

    ways: tuple[TimeSpelling, ...]
    fitting: int
    filled: int
    order: str = ""
    proving: int = 0
    odd: tuple[str, ...] = ()
    all_day: tuple[str, ...] = ()
    latest: date = date.min

    @property
    def share(self) -> float:
        """The share of the filled cells that fit, 0 to 1."""
        return self.fitting / self.filled if self.filled else 0.0

    @property
    def is_doubtful(self) -> bool:
        """Whether too few cells fit for the column to hold dates or times, apart from its name."""
        return self.share < _ENOUGH

    @property
    def kind(self) -> str:
        """The name of the step that reads most cells; numbers that count from 1970 are moments."""
        return "moment" if self.ways[0].kind == "epoch" else self.ways[0].kind

    @property
    def is_range(self) -> bool:
        """Whether the cells give a start and an end."""
        return self.kind == "clock_range"

    @property
    def is_ambiguous(self) -> bool:
        """Whether no cell shows which of two numbers is the day."""
        return bool(self.order) and not self.proving

    @property
    def unfitting(self) -> TimeSpelling:
        """A format that fits no cell, for a draft whose order of day and month is left to the author."""
        by = self.ways[0].by
        return TimeSpelling("dates" if by else "date", ("%Y-%m-%d",), by=by)

    def in_other_order(self) -> ColumnTimes:
        """Return the same formats with day and month swapped."""
        ways = tuple(replace(way, formats=tuple(map(swapped, way.formats))) for way in self.ways)
        return replace(self, ways=ways, order="month" if self.order == "day" else "day")

    def in_order(self, order: str) -> ColumnTimes:
        """Return the formats for a known order of day and month; "" leaves an ambiguous order as it is."""
        return self.in_other_order() if self.is_ambiguous and order not in ("", self.order) else self


def find_lengths(name: str, cells: Sequence[str]) -> ColumnTimes | None:
    """Return how lengths of time are to be read that fill a column, None if a cell holds none.

    What a number alone counts is not guessed: the column's name says it, as in `duration_minutes`.
    """
    named = {unit_words().get(word) for word in re.split(r"[\W\d_]+", name.casefold())}
    for unit in get_args(BareUnit):
        if unit != "any" and unit not in named:
            continue
        read = partial(read_length, unit=unit)
        if cells and all(TimeForm("duration", read).fits(plain(cell).strip()) for cell in set(cells)):
            return ColumnTimes((TimeSpelling("duration", (unit,)),), len(cells), len(cells))
    return None


def find_epochs(cells: Sequence[str]) -> ColumnTimes | None:
    """Return how a column that is named for times is to be read if its cells count seconds or milliseconds since 1970.

    They lie between 2001 and 2033: numbers with another first digit are identifiers or telephones as well.
    """
    for unit, digits in (("s", r"1\d{9}"), ("ms", r"1\d{12}")):
        if cells and all(re.fullmatch(digits, cell, re.ASCII) for cell in cells):
            latest = datetime.fromtimestamp(int(max(cells)[:10]), UTC).date()
            return ColumnTimes((TimeSpelling("epoch", (unit,)),), len(cells), len(cells), latest=latest)
    return None


def find_clocks(cells: Sequence[str], *, is_end: bool = False) -> ColumnTimes:
    """Return how a column that is named for times of day is to be read, however few of its cells are times.

    `is_end`: 24:00 and midnight are times, the end of their day.
    """
    stripped = [cell.strip() for cell in cells]
    texts = [plain(text).strip() for text in stripped if text.casefold() not in _ALL_DAY]
    all_day = tuple(dict.fromkeys(text for text in stripped if text.casefold() in _ALL_DAY))
    unread = ColumnTimes((TimeSpelling("clock", ("",)),), 0, len(texts), odd=tuple(dict.fromkeys(texts))[:5])
    seen = _see(texts, partial(_clocks_in_words, is_end=is_end)) or _see(texts, _clocks_in_digits) or unread
    return replace(seen, fitting=seen.fitting + len(stripped) - len(texts), filled=len(stripped), all_day=all_day)


def find_times(cells: Sequence[str]) -> ColumnTimes | None:
    """Return the formats of a column's filled cells, None if they are not dates or times."""
    stripped = [cell.strip() for cell in cells]
    all_day = Counter(text for text in stripped if text.casefold() in _ALL_DAY)
    texts = [plain(text).strip() for text in stripped if text not in all_day]
    if sum(ZERO_DAY.match(text) is not None for text in texts) * 2 > len(texts):
        texts = [ZERO_DAY.sub("", text) for text in texts]
    with_digits = [text for text in texts if len(text) <= _LONGEST and any(map(str.isdigit, text))]
    if not with_digits or len(with_digits) < _ENOUGH * len(texts):
        return None
    best: ColumnTimes | None = None
    for seen in _readings(texts):
        if seen is not None and (best is None or seen.fitting > best.fitting):
            best = seen
        if best is not None and best.share == 1:
            break
    if best is None or best.share < _ENOUGH:
        return None
    if best.kind in _TIMES_OF_DAY:
        return replace(best, fitting=best.fitting + all_day.total(), filled=len(stripped), all_day=tuple(all_day))
    return replace(best, filled=len(stripped), odd=(*best.odd, *all_day)[:5])


def _readings(texts: Sequence[str]) -> Iterator[ColumnTimes | None]:
    """Yield the best formats for single values, lists, ranges and times in words."""
    for find_forms in (_forms_of_one, _forms_of_lists, _forms_of_ranges, _clocks_in_words):
        yield _see(texts, find_forms)


def _see(texts: Sequence[str], find_forms: Callable[[Sequence[str]], Iterable[TimeForm]]) -> ColumnTimes | None:
    counts = Counter(text for text in texts if 0 < len(text) <= _LONGEST)
    distinct = [text for text, _ in counts.most_common(_DISTINCT)]
    forms = list(find_forms(distinct))
    order, proving = _order(forms, counts, distinct)
    chosen = _choose([form for form in forms if form.order in ("", order)], counts, distinct)
    if not chosen:
        return None
    if not any(form.order for form in chosen):
        order, proving = "", 0
    # Where cells contradict each other, all of them are dates, and a person has to say which are wrong.
    judging = chosen if proving or not order else forms
    fits = {text: any(form.fits(text) for form in judging) for text in counts}
    odd = tuple(text for text in dict.fromkeys(texts) if text and not fits.get(text, False))[:5]
    named = {form.locale for form in chosen if form.format and form.format.names}
    language = named.pop() if len(named) == 1 else ""
    together: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for form in chosen:
        # Numbers are the same in each language: one step reads them and the names.
        locale = form.locale if form.format and form.format.names else language
        together.setdefault((form.kind, locale, form.by), []).append(form.format.spelling if form.format else "")
    ways = tuple(TimeSpelling(kind, tuple(formats), locale, by) for (kind, locale, by), formats in together.items())
    fitting = sum(count for text, count in counts.items() if fits[text])
    latest = max(
        chain.from_iterable(_days_in(form.read(text)) for text in distinct for form in chosen if form.fits(text)),
        default=date.min,
    )
    return ColumnTimes(ways, fitting, len(texts), order, proving, odd, latest=latest)


def _days_in(value: object) -> Iterator[date]:
    """Yield the days of what a form reads: of a date or moment, or of several."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from _days_in(one)
    elif isinstance(value, date):
        yield value.date() if isinstance(value, datetime) else value


def _order(forms: Sequence[TimeForm], counts: Counter[str], distinct: Sequence[str]) -> tuple[str, int]:
    """Return the order of day and month, and how many cells prove it, that is, fit one order only.

    If cells prove both orders, neither counts as proved.
    """
    proofs = {"day": 0, "month": 0}
    for text in distinct:
        reads = {form.order for form in forms if form.order and form.fits(text)}
        if len(reads) == 1:
            proofs[reads.pop()] += counts[text]
    order = max(proofs, key=lambda one: proofs[one])
    return order, 0 if all(proofs.values()) else proofs[order]


def _choose(forms: Sequence[TimeForm], counts: Counter[str], distinct: Sequence[str]) -> list[TimeForm]:
    """Return formats until all cells fit or no format adds cells, the one with the most cells first."""
    fitting = {form: {text for text in distinct if form.fits(text)} for form in forms}
    left, chosen = set(distinct), list[TimeForm]()
    while len(chosen) < _MOST_FORMATS:
        gains = {form: sum(counts[text] for text in texts & left) for form, texts in fitting.items()}
        best = max(gains, key=lambda form: gains[form], default=None)
        if best is None or not gains[best]:
            break
        chosen.append(best)
        left -= fitting[best]
        # A column holds times of day, or days, or moments: cells of another sort are slips.
        fitting = {form: texts for form, texts in fitting.items() if form.sort == best.sort}
    return chosen
