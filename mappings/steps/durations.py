"""The step that parses a length of time, as people and machines write it: 90 min, 1h30, 00:45, PT1H30M.

The words for hours and minutes in many languages are those of Unicode's CLDR (babel). Pydantic also parses lengths, but no words,
and it takes a month for 30 days.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache, partial
from itertools import product
from typing import Literal

from babel.units import format_unit
from pydantic import Field

from mappings.lookup_table import plain
from mappings.reasons import ReasonCode
from mappings.steps.formats import NotRealError, read_first
from mappings.steps.step import Family, Kind, Run, Step
from mappings.zones import LANGUAGES

BareUnit = Literal["any", "hours", "minutes", "seconds"]
_UNITS = ("days", "hours", "minutes", "seconds")
_WIDTHS: tuple[Literal["long", "short"], ...] = ("long", "short")
_COMMON = {"d": "days", "h": "hours", "hrs": "hours", "s": "seconds", **dict.fromkeys(("m", "mins", "'", "′"), "minutes")}
_LONGEST = 60
_COLONS = re.compile(r"([0-9]{1,3}):([0-5][0-9])(?::([0-5][0-9]))?")
_ISO = re.compile(r"p([0-9]+d)?(?:t([0-9.,hms]+))?")
_PART = re.compile(r"([0-9]{1,6}(?:[.,][0-9]{1,3})?)\s*([^\W\d_]+|['′]|\Z)\.?")
_BETWEEN = re.compile(r"(?:\s|,|\b(?:and|und|et|e|y|i|en|og|och|ja|и)\b)*")
_NO_SUCH_LENGTH = "units go from the largest to the smallest, each once, and only the last may have a fraction"


@lru_cache(maxsize=1)
def unit_words() -> Mapping[str, str]:
    """Return the unit that each word or sign means, in small letters and without a dot."""
    found: dict[str, str] = {}
    for unit, language, width, count in product(_UNITS, LANGUAGES, _WIDTHS, (1, 2, 5)):
        written = plain(format_unit(count, f"duration-{unit.removesuffix('s')}", width, locale=language))
        found.setdefault(re.sub(r"[\d\s]", "", written).casefold().rstrip("."), unit)
    return found | _COMMON


def read_length(text: str, unit: BareUnit = "any") -> timedelta | None:
    """Parse a length of time; return None if it is not one. `unit`: what a number alone counts, `any` to refuse it.

    Raises:
        NotRealError: it looks like a length, and may be another or none.
    """
    folded = text.casefold()
    if len(folded) > _LONGEST:
        return None
    if colons := _COLONS.fullmatch(folded):
        hours, minutes, seconds = (int(part or 0) for part in colons.groups())
        if hours >= 24 and colons[3] is None:
            raise NotRealError('it may count hours or minutes: write it like "90 min"')
        return timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if iso := _ISO.fullmatch(folded):
        folded = " ".join(filter(None, iso.groups()))
    if not _BETWEEN.fullmatch(_PART.sub(" ", folded)):
        return None
    lengths: dict[str, float] = {}
    for number, word in _PART.findall(folded):
        known = unit_words().get(word)
        if not word and (unit != "any" or lengths):  # after hours alone, a number counts minutes: 1h30
            known = unit if not lengths else "minutes" if [*lengths] == ["hours"] else None
        if known is None:
            return None
        if lengths and (_UNITS.index(known) <= max(map(_UNITS.index, lengths)) or any(part % 1 for part in lengths.values())):
            raise NotRealError(_NO_SUCH_LENGTH)
        lengths[known] = float(number.replace(",", "."))
    return timedelta(**lengths) if lengths else None


class DurationStep(Step, name="duration", family=Family.TIMES, gives=Kind.DURATION):
    """Parse a length of time: hours and minutes, numbers with units in many languages, or ISO 8601. Add it with the value `plus`.

    Months and years have no fixed length, and are refused; so is a bare number, unless it is agreed what it counts.

    Examples:
        duration: "00:45" -> "PT45M"
        duration: "90 min" -> "PT1H30M"
        duration: "1 Std. 30 Min." -> "PT1H30M"
        duration: "1h30" -> "PT1H30M"
        duration: "1,5 Stunden" -> "PT1H30M"
        duration: "PT1H30M" -> "PT1H30M"
        {duration: minutes}: "90" -> "PT1H30M"
        duration: "90" -> not_a_duration
        duration: "90:00" -> not_a_duration
        duration: "P1M" -> not_a_duration
    """

    unit: BareUnit = Field(
        default="any",
        alias="duration",
        description="What a number alone counts: any (the default: it is refused), hours, minutes or seconds.",
    )

    def function(self) -> Run:
        return read_first([partial(read_length, unit=self.unit)], ReasonCode.NOT_A_DURATION, ("1:30", "90 min", "PT1H30M"))
