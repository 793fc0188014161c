"""All steps a mapping file may name: the closed union. A new step is one class in a module beside this one, and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Discriminator, Tag

from mappings.steps import dates, lists, lookups, numbers, patterns, ranges, text, times, urls, zones
from mappings.steps.step import Step

FAMILIES: Mapping[str, tuple[type[Step], ...]] = {
    "Text": (
        text.Trim,
        text.Collapse,
        text.Newlines,
        text.StripPrefix,
        text.StripSuffix,
        text.StripControl,
        text.Replace,
        text.Truncate,
        text.Default,
        text.EmptyIf,
        text.FixMojibake,
        lists.Prefix,
        lists.Suffix,
        lists.Pad,
        lists.Characters,
        lists.Length,
    ),
    "Letters": (
        text.Lower,
        text.Upper,
        text.Title,
        text.Sentence,
        text.StripChars,
        text.MapCharacters,
        text.Normalize,
        text.Slugify,
        text.Hash,
    ),
    "Mark-up": (text.HtmlUnescape, text.HtmlToText, text.MarkdownToText, text.Unescape),
    "Patterns": (patterns.RegexExtract, patterns.RegexAll, patterns.RegexSplit, patterns.RegexReplace),
    "Lists": (
        lists.Split,
        lists.Nth,
        lists.First,
        lists.Last,
        lists.JoinParts,
        lists.Slice,
        lists.Count,
        lists.Sort,
        lists.Unique,
    ),
    "Dates and times": (dates.Date, dates.Time, dates.Datetime, times.Clock, times.Iso, times.Epoch, times.Serial),
    "Ranges and lists of days": (ranges.RangeStart, ranges.RangeEnd, ranges.DateRange, times.ClockRange, ranges.Dates),
    "Moments": (zones.WallTimeIn, zones.InZone, zones.Plus, zones.DayOf, zones.ClockOf, zones.NamedZone),
    "Lookups": (lookups.Map, lookups.Lookup, lookups.LastIn, lookups.Country),
    "Web addresses": (
        urls.EncodeSpaces,
        urls.Url,
        urls.Resolve,
        urls.UrlTemplate,
        urls.SetQuery,
        urls.DropQuery,
        urls.OnlyHosts,
        urls.Email,
    ),
    "Numbers": (numbers.Number, numbers.Round, numbers.Price, numbers.YesNo),
    "Kinds": (text.ToText, text.Part),
}
"""The steps by family, in the order of the reference page."""
STEPS: Mapping[str, type[Step]] = {step.name: step for family in FAMILIES.values() for step in family}
TAG = "step:"


def _kind_of_step(value: object) -> str:
    """Name a step as the file writes it: bare, or as the key of a block whose other keys are its parameters."""
    match value:
        case str():
            return TAG + value
        case Step():
            return TAG + value.name
        case dict():
            return TAG + next((key for key in value if key in STEPS), next(iter(value), ""))
        case _:
            return TAG


if TYPE_CHECKING:
    AnyStep = Step
else:
    AnyStep = Annotated[
        Union[tuple(Annotated[step, Tag(TAG + name)] for name, step in STEPS.items())],  # noqa: UP007 - built from the catalogue
        Discriminator(_kind_of_step),
    ]
"""Any step; its name says which."""
