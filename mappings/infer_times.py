"""Which formats the dates and times of a column are written in, by evidence: day-first and month-first are never guessed between.

A format that fits is proof only where the other order does not fit as well. Which column means what is `infer_roles`'s.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mappings.infer_clocks import SpokenClock, spoken_clocks
from mappings.infer_days import SeveralDays, list_forms, range_forms
from mappings.infer_formats import Form, likely_forms, swapped

_AnyForm = Form | SeveralDays | SpokenClock
_CLOCKS = frozenset({"time", "clock", "clock_range"})
_SEVERAL = frozenset({"dates", "date_range"})
Find = Callable[[Sequence[str]], Iterable[_AnyForm]]
_RANGE = re.compile(r"(\S.*?)\s*(?:[–—〜～~-]|\bto\b|\bbis\b)\s*(\S.*)")
_ENOUGH = 0.6
_LONGEST = 200
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
        return self.ways[0].kind in _CLOCKS

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
        fitting = {form: texts for form, texts in fitting.items() if (form.kind in _CLOCKS) == (best.kind in _CLOCKS)}


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
