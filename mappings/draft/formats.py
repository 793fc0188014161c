"""Times of day as people write them, which no single format reads: 19 Uhr 30, kl. 19, 7-9pm. Formats are `infer_formats`'s."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

from mappings.lint.values import order_of, swapped
from mappings.steps.formats import Format, NotRealError, compile_format, read_clock, read_date, read_datetime
from mappings.steps.ranges import SpanFormat, read_listed, read_span, span_format
from mappings.steps.times import Manner, read_clock_span

_AS_SAID = Manner()


@dataclass(frozen=True, slots=True, eq=False)
class SpokenClock:
    """The step that reads times without a format: `clock`, or `clock_range` where cells hold a beginning and an end."""

    kind: str
    spelling: str = ""
    locale: str = ""
    order: str = ""
    by: tuple[str, ...] = ()

    def fits(self, text: str) -> bool:
        """Whether the whole text is a time, or a range of them."""
        span = _span(text)
        return span is not None and (span[1] is None or self.kind == "clock_range")


def spoken_clocks(texts: Sequence[str]) -> Iterator[SpokenClock]:
    """Yield the step that reads the most of these texts."""
    spans = [span for text in texts if (span := _span(text)) is not None]
    if spans:
        yield SpokenClock("clock_range" if any(end is not None for _, end in spans) else "clock")


def _span(text: str) -> tuple[object, object] | None:
    try:
        return read_clock_span(text, _AS_SAID)
    except NotRealError:
        return None


LANGUAGES = ("en", "pt", "es", "fr", "de", "it", "pl", "nl", "cs", "sv", "da", "fi", "ja", "ko", "zh", "ru", "tr")
_ISO = ("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y年%m月%d日", "%Y년 %m월 %d일", "%Y. %m. %d.")
_COMPACT = "%Y%m%d"
_DAY_FIRST = tuple(f"%d{mark}%m{mark}{year}" for mark in "/.-" for year in ("%Y", "%y"))
_MONTH_FIRST = tuple(f"%m{mark}%d{mark}{year}" for mark in "/.-" for year in ("%Y", "%y"))
_NAMED = (
    *("%d %B %Y", "%d. %B %Y", "%d de %B de %Y", "%B %d, %Y", "%d %b %Y", "%b %d, %Y", "%d-%b-%Y", "%d-%b-%y", "%d. %b %Y"),
    *("%A, %d %B %Y", "%A, %B %d, %Y", "%A, %d. %B %Y", "%a, %d %b %Y", "%a %d %b %Y", "%A %d %B %Y", "%a, %b %d, %Y"),
    *("%A, %d de %B de %Y", "%a, %d.%m.%Y", "%a %d.%m.%Y", "%A, %d.%m.%Y", "%A %d.%m.%Y", "%a, %d/%m/%Y", "%a %d/%m/%Y"),
)
_CLOCKS = (
    *("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M%p", "%I:%M:%S %p", "%I %p", "%I%p", "%I.%M%p", "%I.%M %p"),
    *("%Hh%M", "%Hh", "%H h", "%H h %M", "%H時%M分", "%H:%M Uhr", "%H.%M Uhr", "%H Uhr", "%H.%M"),
)
_USUAL_CLOCKS = frozenset(_CLOCKS[:8])
_OFFSETS = ("", "%z", " %z")
_BETWEEN = (" ", "T", ", ", " - ")
_PROBED = 60
_EIGHT_DIGITS = re.compile(r"\d{8}(?!\d)")


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """One format in one language. `kind`: `date`, `datetime`, `moment` (with an offset) or `time`."""

    kind: str
    format: Format
    locale: str
    read: Callable[[Format, str], Any]

    @property
    def by(self) -> tuple[str, ...]:
        """It reads one day or time, and nothing stands between several."""
        return ()

    @property
    def spelling(self) -> str:
        """The format in strptime notation."""
        return self.format.spelling

    @property
    def order(self) -> str:
        """`day` or `month`, whichever of two numbers comes first; "" where nothing can be confused."""
        return order_of(self.spelling)

    def fits(self, text: str) -> bool:
        """Whether the whole text is a real date or time in this format."""
        if self.format.pattern.fullmatch(text) is None:
            return False
        try:
            return self.read(self.format, text) is not None
        except NotRealError:
            return False


def likely_forms(texts: Sequence[str]) -> Iterator[Form]:
    """Yield the formats that fit at least one of these texts."""
    probed = texts[:_PROBED]
    for form in _candidates(probed):
        if any(map(form.fits, texts)):
            yield form


def _candidates(probed: Sequence[str]) -> Iterator[Form]:
    for clock in _CLOCKS:
        yield _form("time", clock)
    days = [*_ISO, *_DAY_FIRST, *_MONTH_FIRST]
    if all(map(_EIGHT_DIGITS.match, probed)):
        days.append(_COMPACT)
    yield from _with_clocks(days, "en", probed)
    if any(char.isalpha() for text in probed for char in text if char not in "TZ"):
        for locale in LANGUAGES:
            yield from _with_clocks(_NAMED, locale, probed)


def _with_clocks(days: Sequence[str], locale: str, probed: Sequence[str]) -> Iterator[Form]:
    begun = [day for day in days if any(map(compile_format(day, locale).pattern.match, probed))]
    for day in begun:
        yield _form("date", day, locale)
    for day, between, clock, offset in product(begun, _BETWEEN, _clocks_in(probed), _OFFSETS):
        yield _form("moment" if offset else "datetime", f"{day}{between}{clock}{offset}", locale)


def _clocks_in(probed: Sequence[str]) -> Iterator[str]:
    """Yield the clocks that may stand behind a day in these texts: the usual ones, and those with a word that is there."""
    for clock in _CLOCKS:
        word = clock.rpartition("%")[2][1:].strip() or clock.partition("%H")[2][:1].strip(":. ")
        if clock in _USUAL_CLOCKS or (word and any(word in text for text in probed)):
            yield clock


_READ: dict[str, Callable[[Format, str], Any]] = {
    "date": read_date,
    "time": read_clock,
    "datetime": read_datetime,
    "moment": read_datetime,
}


@lru_cache(maxsize=8192)
def _form(kind: str, spelling: str, locale: str = "en") -> Form:
    return Form(kind, compile_format(spelling, locale), "" if locale == "en" else locale, _READ[kind])


_SEPARATORS = (";", "\n", "|", ",", " and ", " und ", " et ", " e ", " y ", " i ", " en ", " og ", " och ", " a ", "、")
"""What may stand between the days of a list; which of them do is what the cells show."""
_BETWEEN_DAYS = re.compile(r"\s*[-–—~〜～]\s*|\s(?:to|till|until|bis|al?|à|au|até|do|tot|til)\s")
_MOST_PARTS = 60
_LONGEST = 200


@dataclass(frozen=True, slots=True, eq=False)
class SeveralDays:
    """A format of one day, in which a cell holds a list of days, cut apart `by` these texts; or, without any, a range."""

    form: Form
    span: SpanFormat
    by: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The step that reads such cells: `dates` or `date_range`."""
        return "dates" if self.by else "date_range"

    @property
    def spelling(self) -> str:
        """The format in strptime notation."""
        return self.form.spelling

    @property
    def locale(self) -> str:
        """The language of its names, "" for English."""
        return self.form.locale

    @property
    def order(self) -> str:
        """`day` or `month`, whichever of two numbers comes first; "" where nothing can be confused."""
        return self.form.order

    def fits(self, text: str) -> bool:
        """Whether the whole text holds real days, or one."""
        try:
            if not self.by:
                return read_span(self.span, text) is not None
            parts = _parts(text, self.by)
            return 0 < len(parts) <= _MOST_PARTS and None not in read_listed(self.span, parts)
        except NotRealError:
            return False


def list_forms(texts: Sequence[str]) -> Iterator[SeveralDays]:
    """Yield the formats in which at least one of these texts is a list of days."""
    marks = tuple(mark for mark in _SEPARATORS if any(mark in text for text in texts))
    # A comma may also stand inside a day: May 3, 2027; May 4, 2027.
    for by in filter(None, dict.fromkeys((marks, tuple(mark for mark in marks if mark != ",")))):
        cells = [_parts(text, by) for text in texts if len(text) <= _LONGEST]
        for form in _days(parts[-1] for parts in cells if parts):
            listed = SeveralDays(form, span_format(form.format, form.locale or "en"), by)
            if not any(mark in form.format.example for mark in by) and any(len(parts) > 1 for parts in cells):
                yield listed


def range_forms(texts: Sequence[str]) -> Iterator[SeveralDays]:
    """Yield the formats in which at least one of these texts is a range of days."""
    ends = (text[cut.end() :] for text in texts if len(text) <= _LONGEST for cut in _BETWEEN_DAYS.finditer(text))
    for form in _days(ends):
        ranged = SeveralDays(form, span_format(form.format, form.locale or "en"))
        if any(not form.fits(text) and ranged.fits(text) for text in texts):
            yield ranged


def _days(texts: Iterable[str]) -> list[Form]:
    return [form for form in likely_forms([*dict.fromkeys(texts)]) if form.kind == "date"]


def _parts(text: str, by: tuple[str, ...]) -> list[str]:
    return [part for part in map(str.strip, _cut(by).split(text)) if part]


@lru_cache(maxsize=64)
def _cut(by: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(by, key=len, reverse=True))))


_AnyForm = Form | SeveralDays | SpokenClock
_CLOCK_FORMATS = frozenset({"time", "clock", "clock_range"})
_SEVERAL = frozenset({"dates", "date_range"})
Find = Callable[[Sequence[str]], Iterable[_AnyForm]]
_RANGE = re.compile(r"(\S.*?)\s*(?:[–—〜～~-]|\bto\b|\bbis\b)\s*(\S.*)")
_ENOUGH = 0.6
_MOST_FORMATS = 5
_DISTINCT = 500


@dataclass(frozen=True, slots=True)
class Written:
    """How dates or times are written: the formats that one step can try, the commonest first, and their language.

    `kind`: `date`, `datetime`, `moment` (with an offset) or `time`; `clock` and `clock_range` (without formats); `dates`
    (lists, cut apart `by` these texts) or `date_range`.
    """

    kind: str
    formats: tuple[str, ...]
    locale: str = ""
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TimesSeen:
    """What a column's cells say about dates or times: `fitting` of its `filled` cells fit one of `ways`.

    `order` is the order of day and month where it matters (`day` or `month`), `proving` how many cells prove it: none means
    that the other order fits as well, and that `ways` is one of two. `odd` are the first cells that fit nothing.
    """

    ways: tuple[Written, ...]
    fitting: int
    filled: int
    order: str = ""
    proving: int = 0
    odd: tuple[str, ...] = ()
    is_range: bool = False

    @property
    def share(self) -> float:
        """The part of the filled cells that fit, 0 to 1."""
        return self.fitting / self.filled if self.filled else 0.0

    @property
    def is_time(self) -> bool:
        """True for times of day without a date."""
        return self.ways[0].kind in _CLOCK_FORMATS

    @property
    def has_several(self) -> bool:
        """True for cells with several days."""
        return not self.kinds.isdisjoint(_SEVERAL)

    @property
    def is_ambiguous(self) -> bool:
        """True where nothing says which of two numbers is the day."""
        return bool(self.order) and not self.proving

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of what was found."""
        return frozenset(way.kind for way in self.ways)

    def in_other_order(self) -> TimesSeen:
        """Return the same cells read the other way round."""
        ways = tuple(replace(way, formats=tuple(map(swapped, way.formats))) for way in self.ways)
        return replace(self, ways=ways, order="month" if self.order == "day" else "day")


def see_times(cells: Sequence[str]) -> TimesSeen | None:
    """Look at a column's filled cells; None where they are no dates or times."""
    texts = [cell.strip() for cell in cells]
    likely = [text for text in texts if len(text) <= _LONGEST and any(map(str.isdigit, text))]
    if not likely or len(likely) < _ENOUGH * len(texts):
        return None
    seen = _best(texts, (likely_forms,))
    if seen is None or seen.share < 1:
        seen = _best(texts, (likely_forms, list_forms, range_forms))
    if seen is not None and seen.share == 1:
        return seen
    begins = [_begin(text) for text in texts]
    ranges = _see(begins, likely_forms) if begins != texts else None
    if ranges is not None and ranges.is_time and (seen is None or ranges.fitting > seen.fitting):
        seen = replace(ranges, is_range=True)
    spoken = _see(texts, spoken_clocks)
    if spoken is not None and (seen is None or spoken.fitting > seen.fitting):
        seen = replace(spoken, is_range=spoken.ways[0].kind == "clock_range")
    return seen if seen is not None and seen.share >= _ENOUGH else None


def _best(texts: Sequence[str], finders: Iterable[Find]) -> TimesSeen | None:
    found = [seen for find in finders if (seen := _see(texts, find)) is not None]
    return max(found, key=lambda seen: seen.fitting, default=None)


def _see(texts: Sequence[str], find: Find) -> TimesSeen | None:
    counts = Counter(text for text in texts if 0 < len(text) <= _LONGEST)
    distinct = [text for text, _ in counts.most_common(_DISTINCT)]
    forms = list(find(distinct))
    order, proving = _order(forms, counts, distinct)
    kept = [form for form in forms if form.order in ("", order)]
    chosen = list(_chosen(kept, counts, distinct))
    if not chosen:
        return None
    # Where cells contradict each other, all of them are dates, and somebody has to say which are wrong.
    judging = chosen if proving or not order else forms
    fits = {text: any(form.fits(text) for form in judging) for text in counts}
    odd = tuple(text for text in dict.fromkeys(texts) if text and not fits.get(text, False))[:5]
    used = order if any(form.order for form in chosen) else ""
    fitting = sum(count for text, count in counts.items() if fits[text])
    return TimesSeen(tuple(_ways(chosen)), fitting, len(texts), used, proving if used else 0, odd)


def _order(forms: Sequence[_AnyForm], counts: Counter[str], distinct: Sequence[str]) -> tuple[str, int]:
    """Return the order of day and month, and how many cells prove it: a cell does that only one order can read.

    Cells that prove both are no proof of either.
    """
    first = {order: [form for form in forms if form.order == order] for order in ("day", "month")}
    proofs = {"day": 0, "month": 0}
    for text in distinct:
        reads = [order for order, ordered in first.items() if any(form.fits(text) for form in ordered)]
        if len(reads) == 1:
            proofs[reads[0]] += counts[text]
    order = max(proofs, key=lambda one: proofs[one])
    return order, 0 if all(proofs.values()) else proofs[order]


def _chosen(forms: Sequence[_AnyForm], counts: Counter[str], distinct: Sequence[str]) -> Iterator[_AnyForm]:
    """Yield formats until all cells fit or nothing more does, the one with the most cells first."""
    fitting = {form: [text for text in distinct if form.fits(text)] for form in forms}
    left = set(distinct)
    for _ in range(_MOST_FORMATS):
        gains = {form: sum(counts[text] for text in texts if text in left) for form, texts in fitting.items()}
        best = max(gains, key=lambda form: gains[form], default=None)
        if best is None or not gains[best]:
            return
        yield best
        left.difference_update(fitting[best])
        # A column holds times of day or dates: cells of the other kind are slips.
        fitting = {
            form: texts for form, texts in fitting.items() if (form.kind in _CLOCK_FORMATS) == (best.kind in _CLOCK_FORMATS)
        }


def _ways(chosen: Iterable[_AnyForm]) -> Iterator[Written]:
    """Put the formats that one step can try together, in the order in which they were found."""
    together: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for form in chosen:
        together.setdefault((form.kind, form.locale, form.by), []).append(form.spelling)
    for (kind, locale, by), formats in together.items():
        yield Written(kind, tuple(formats), locale, by)


def _begin(text: str) -> str:
    found = _RANGE.fullmatch(text) if len(text) <= _LONGEST else None
    return found[1] if found else text
