"""What every step makes of the neighbours of its valid forms: a day 32, a month 13, 25:61, a sign, another script's digits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path

import pytest
import yaml

from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.event import Directory
from mappings.outcome import Rejection, RowLocation, SourceRow
from mappings.reasons import ReasonCode
from mappings.spec.values import STEPS
from mappings.steps.step import Kind, Step
from mappings.yaml.loader import parse_feed

ISO = {
    Kind.DATE: ({"iso": "date"},),
    Kind.CLOCK: ({"iso": "time", "day_end": "next_day"},),
    Kind.WALL: ({"iso": "wall"},),
    Kind.MOMENT: ({"iso": "moment"},),
    Kind.DURATION: ("duration",),
    Kind.NUMBER: ({"number": "."},),
    Kind.LIST: ({"split": "|"},),
    Kind.OBJECT: ({"price": "either"},),
}
"""The steps that read a text as the kind that another step takes."""
OF_TIMES = frozenset(("plus", "day_of", "clock_of"))
"""Steps that take a date and time with or without an offset."""
FILES = {"categories.csv": "path,slug\ncategories/music/jazz,music\nmusic,music\n"}
EVENT = {
    "channelId": "7",
    "title": "Jazz",
    "startAt": "2026-07-01T18:00:00+01:00",
    "timezone": "Europe/Lisbon",
    "classifications": ["music"],
    "approxLocation.city.placeId": "pt-lisboa",
}
NUMBERS = (*("0", "00", "13", "32", "99", "25", "61", "366", "0000", "9999", "10000", "", "-1", "+1", "1_0", "1e400"), "9" * 5000)
SCRIPTS = ("٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９", "⁰¹²³⁴⁵⁶⁷⁸⁹", "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗", "〇一二三四五六七八九")
AROUND = (
    "-{}",
    "+{}",
    "−{}",
    "{}-",
    "({})",
    '"{}"',
    "{} {}",
    "{0}{0}",
    "\u202e{}",
    "{}\0",
    "\ud800{}",
    "{}\n",
    "{}\u0300",
    "%{}",
    "&{};",
)
TEXTS = (
    *("", " ", "\u00a0", "-", "+", ".", ",", ":", "/", "|", "T", "Z", "[", "{}", "[]", "null", "NaN", "Infinity", "-0", "²", "½"),
)
LONG = ("9" * 25_000, "a" * 25_000, "[" * 25_000, "é" * 25_000)


def neighbours(valid: str) -> Iterator[str]:
    """Yield texts that a slip of the hand, another program or another script makes of a valid one."""
    yield valid
    for found in re.finditer("[0-9]+", valid):
        yield from (valid[: found.start()] + number + valid[found.end() :] for number in NUMBERS)
    if any(map(str.isdigit, valid)):
        yield from (valid.translate(dict(zip(range(ord("0"), ord("9") + 1), digits, strict=True))) for digits in SCRIPTS)
    yield from (around.format(valid, valid) for around in AROUND)
    yield from (valid[:place] + valid[place + 1 :] for place in range(min(len(valid), 40)))
    yield from (valid[:place] + "²" + valid[place:] for place in range(min(len(valid), 40)))
    yield from (valid[::-1], valid.upper(), valid * (25_000 // (len(valid) or 1)))


def mapper_of(written: str, reader: Iterable[Mapping[str, str]], folder: Path) -> RowMapper:
    """Compile a feed that makes one field of the column X by one step, after the step that reads its kind."""
    event = EVENT | {"more": {"from": "X", "do": [*reader, yaml.load(written, yaml.BaseLoader)], "on_empty": "omit"}}
    source = {"kind": "csv", "path": "x.csv"}
    feed = {"feed": "one-step", "source": source, "key": ["ID"], "extra": ["more"], "event": event}
    return compile_feed(parse_feed(yaml.safe_dump(feed, allow_unicode=True), folder / "one-step.yaml"), Directory())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of feeds with the lookup files of the examples."""
    made = tmp_path_factory.mktemp("steps")
    for name, text in FILES.items():
        (made / name).write_text(text, "utf-8")
    return made


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_no_step_raises_for_the_neighbours_of_its_valid_forms(step: type[Step], folder: Path) -> None:
    forms: dict[str, set[str]] = {}
    for example in step.examples:
        texts = (example.goes_in,) if isinstance(example.goes_in, str) else ("|".join(example.goes_in), *example.goes_in)
        forms.setdefault(example.step, set()).update(texts)
    every = {text for texts in forms.values() for text in texts}
    near = sorted({text for valid in every for text in neighbours(valid)} | {*TEXTS, *LONG})
    kinds = (Kind.WALL, Kind.MOMENT) if step.name in OF_TIMES else (step.takes,)
    for written, kind in product(forms, kinds):
        mapped = mapper_of(written, ISO.get(kind, ()), folder)
        for text in near:
            outcome = mapped(SourceRow(RowLocation("x.csv:2", 2), {"ID": "1", "X": text}))
            codes = {reason.code for reason in outcome.reasons} if isinstance(outcome, Rejection) else set()
            assert ReasonCode.INTERNAL_ERROR not in codes, (written, kind, text[:60])
