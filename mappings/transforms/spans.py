"""Days written together, of which one says what the other leaves out: 3-5 May 2026, 28 Feb - 2 Mar 2026, 3, 5 and 7 May 2026.

The formats come from the author; only month and year may be left out, and only where the neighbour writes them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from itertools import product

from mappings.transforms.formats import ChooseYear, Format, NotRealError, compile_format, date_of, values_of

Values = dict[str, int]
_LONGEST = 200
_BETWEEN = re.compile(
    r"\s*(?:-|–|—|−|~|〜|～|→)\s*|\s+(?:to|till|until|bis|a|à|au|al|até|ao|do|tot|t/m|til|till|и|до|and|und|et|y|e|i)\s+",
    re.IGNORECASE,
)
_OPENING = re.compile(r"(?:from|between|vom|von|du|de|del|dal|van|od|desde|entre|fra|с|от)\s+(?=\S)", re.IGNORECASE)
BETWEEN_WORDS = "to, till, until, bis, a, à, au, al, até, ao, do, tot, t/m, til, и, до, and, und, et, y, e, i"
OPENING_WORDS = "from, between, vom, von, du, de, del, dal, van, od, desde, entre, fra, с, от"
_MONTHS = frozenset("mBb")
_YEARS = frozenset("Yy")


@dataclass(frozen=True, slots=True)
class SpanFormat:
    """A format, with its forms for a day whose month or year stands with a later day, or with an earlier one."""

    whole: Format
    earlier: tuple[Format, ...]
    """What may stand before the text that ends the span: the beginning of the format, up to the day at least."""
    later: tuple[Format, ...]
    """What may stand after the text that begins it: the end of the format, from the day at the latest."""


def span_format(whole: Format, language: str) -> SpanFormat:
    """Work out the shorter forms of a format."""
    tokens = re.findall(r"%.?|\s+|[^%\s]+", whole.spelling)
    places = [place for place, piece in enumerate(tokens) if re.fullmatch("%[A-Za-z]", piece)]
    day = tokens.index("%d")
    begun = {"".join(tokens[: end + 1]) for end in places if end >= day}
    begun |= {"".join(tokens[: end + 2]) for end in places if end >= day and _is_attached(tokens, end + 1)}
    ended = {"".join(tokens[start:]) for start in places if start <= day}
    return SpanFormat(whole, _longest_first(begun, language), _longest_first(ended, language))


def _longest_first(spellings: set[str], language: str) -> tuple[Format, ...]:
    return tuple(compile_format(spelling, language) for spelling in sorted(spellings, key=lambda each: (-len(each), each)))


def _is_attached(tokens: list[str], place: int) -> bool:
    return place < len(tokens) and not tokens[place].isspace() and not tokens[place].startswith("%")


def read_span(form: SpanFormat, text: str, choose_year: ChooseYear | None = None) -> tuple[date, date | None] | None:
    """Return the first and the last day that the whole text writes (None: it writes one day), or None.

    Raises:
        NotRealError: there is no such day, the range can be cut in two places, or it ends before it begins.
    """
    if len(text) > _LONGEST:
        return None
    alone = values_of(form.whole, text)
    if alone is not None:
        return date_of(alone, choose_year), None
    text = _OPENING.sub("", text, count=1) if _OPENING.match(text) else text
    halves = [(text[: cut.start()], text[cut.end() :]) for cut in _BETWEEN.finditer(text)]
    found = {days for start, end in halves for days in _days(form, start, end, choose_year)}
    if len(found) > 1:
        raise NotRealError("it can be read as more than one range: write both days in full")
    return next(iter(found), None)


def _days(form: SpanFormat, start: str, end: str, choose_year: ChooseYear | None) -> set[tuple[date, date | None]]:
    found: set[tuple[date, date | None]] = set()
    for first, last in product(_readings(form.earlier, start), _readings(form.later, end)):
        filled = _filled(first, last, needs_year=choose_year is None)
        if filled is not None:
            found.add(_in_order(date_of(filled[0], choose_year), date_of(filled[1], choose_year)))
    return found


def read_listed(form: SpanFormat, texts: list[str], choose_year: ChooseYear | None = None) -> list[date | None]:
    """Return the day that each text writes, None where it writes none; what it leaves out stands with the next.

    Raises:
        NotRealError: there is no such day; it names the text.
    """
    days: list[date | None] = []
    following: Values = {}
    for text in reversed(texts):
        values = _with_following(form, text, following, needs_year=choose_year is None)
        try:
            days.append(None if values is None else date_of(values, choose_year))
        except NotRealError as error:
            raise NotRealError(f'"{text}": {error}') from error
        following = values or {}
    return days[::-1]


def _with_following(form: SpanFormat, text: str, following: Values, *, needs_year: bool) -> Values | None:
    values = values_of(form.whole, text)
    if values is not None:
        return values
    short = next(iter(_readings(form.earlier, text)), None)
    filled = None if short is None else _filled(short, following, needs_year=needs_year)
    return None if filled is None else filled[0]


def _readings(forms: tuple[Format, ...], text: str) -> list[Values]:
    return [values for values in (values_of(form, text) for form in forms) if values is not None]


def _filled(first: Values, last: Values, *, needs_year: bool) -> tuple[Values, Values] | None:
    """Complete each from the other, or return None where both leave the same thing out."""
    for letters in (_MONTHS, _YEARS):
        said = {letter: value for values in (last, first) for letter, value in values.items() if letter in letters}
        if not said and (letters is _MONTHS or needs_year):
            return None
        first = first if first.keys() & letters else first | said
        last = last if last.keys() & letters else last | said
    return first, last


def _in_order(first: date, last: date) -> tuple[date, date]:
    if last < first:
        raise NotRealError(f"it ends on {last.isoformat()}, before it begins on {first.isoformat()}: write both years")
    return first, last
