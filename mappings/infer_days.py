"""Cells that hold several days, as lists (3, 5 and 7 May 2027) or as ranges (3-5 May 2027): the formats that read them whole.

One day in a cell is `infer_times`'s; what the steps make of such cells stands in `transforms.spans`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mappings.infer_formats import Form, likely_forms
from mappings.steps.formats import NotRealError
from mappings.steps.ranges import SpanFormat, read_listed, read_span, span_format

_SEPARATORS = (";", "\n", "|", ",", " and ", " und ", " et ", " e ", " y ", " i ", " en ", " og ", " och ", " a ", "、")
"""What may stand between the days of a list; which of them do is what the cells show."""
_BETWEEN = re.compile(r"\s*[-–—~〜～]\s*|\s(?:to|till|until|bis|al?|à|au|até|do|tot|til)\s")
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
    ends = (text[cut.end() :] for text in texts if len(text) <= _LONGEST for cut in _BETWEEN.finditer(text))
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
