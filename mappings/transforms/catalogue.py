"""All steps a mapping file may name: the closed union. A new step is one class in a module beside this one, and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Tag

from mappings.choices import OneOf
from mappings.transforms import (
    addresses,
    cases,
    characters,
    clocks,
    countries,
    kinds,
    lists,
    lookups,
    markup,
    mojibake,
    moments,
    numbers,
    patterns,
    prices,
    ranges,
    shaping,
    stamps,
    text,
    times,
    urls,
    yes_no,
    zone_names,
)
from mappings.transforms.step import Step

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
        mojibake.FixMojibake,
        shaping.Prefix,
        shaping.Suffix,
        shaping.Pad,
        shaping.Characters,
        shaping.Length,
    ),
    "Letters": (
        cases.Lower,
        cases.Upper,
        cases.Title,
        cases.Sentence,
        characters.StripChars,
        characters.MapCharacters,
        characters.Normalize,
        characters.Slugify,
        characters.Hash,
    ),
    "Mark-up": (markup.HtmlUnescape, markup.HtmlToText, markup.MarkdownToText, markup.Unescape),
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
    "Dates and times": (times.Date, times.Time, times.Datetime, clocks.Clock, stamps.Iso, stamps.Epoch, stamps.Serial),
    "Ranges and lists of days": (
        ranges.RangeStart,
        ranges.RangeEnd,
        ranges.DateRange,
        clocks.ClockRange,
        ranges.Dates,
    ),
    "Moments": (moments.WallTimeIn, moments.InZone, moments.Plus, moments.DayOf, moments.ClockOf, zone_names.Zone),
    "Lookups": (lookups.Map, lookups.Lookup, lookups.LastIn, countries.Country),
    "Web addresses": (
        urls.EncodeSpaces,
        urls.Url,
        addresses.Resolve,
        addresses.UrlTemplate,
        addresses.SetQuery,
        addresses.DropQuery,
        addresses.OnlyHosts,
        addresses.Email,
    ),
    "Numbers": (numbers.Number, numbers.Round, prices.Price, yes_no.YesNo),
    "Kinds": (kinds.ToText, kinds.Part),
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
        OneOf(_kind_of_step),
    ]
"""Any step, told apart by its name."""
