"""The value `meta`, compiled: what is known of a row beside its cells. Where a row stands is said by its `Origin`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, assert_never
from zoneinfo import ZoneInfo

from mappings.compiling import Compiled, Compiler
from mappings.evaluation import RowState
from mappings.positions import Spot
from mappings.spec.values import Meta
from mappings.stepping import Flow
from mappings.transforms.step import Kind
from mappings.vocabulary import Origin

_CELL = re.compile(r"(?:(?P<file>.*?)[#:/])?(?P<tab>[^#:/!]*)![A-Z]*\d+")
_QUOTED = re.compile(r"'(?P<tab>(?:[^']|'')+)'![A-Z]*\d+")
"""A tab whose title a spreadsheet puts in quotes: it may hold any sign."""
_LINE = re.compile(r"(?P<file>.+):\d+(?: \(record \d+\))?")


def compile_fact(compiler: Compiler, value: Meta, spot: Spot) -> Compiled:
    """Compile what is known of a row; a number and a day keep their kinds, the others are texts."""
    compiler.look_further()
    source = _source(compiler, value)
    return compiler.through(source, value.do, compiler.ends(value, spot, ""), spot)


def _source(compiler: Compiler, value: Meta) -> Compiled:
    match value.meta:
        case "row":
            compiler.asks_the_line = True
            return Compiled(lambda row: row.origin.number or None, Flow(Kind.NUMBER))
        case "file":
            return Compiled(_of_origin(file_of), Flow(Kind.TEXT))
        case "tab":
            return Compiled(_of_origin(tab_of), Flow(Kind.TEXT))
        case "run_date":
            day = compiler.as_of and compiler.as_of.astimezone(ZoneInfo(value.zone or "UTC")).date()
            compiler.days_asked.add(day.isoformat() if day else "")
            return Compiled(lambda _row: day, Flow(Kind.DATE))
        case _:
            assert_never(value.meta)


def _of_origin(read: Callable[[Origin], str]) -> Callable[[RowState], Any]:
    return lambda row: read(row.origin)


def file_of(origin: Origin) -> str:
    """Return the file that a row stands in, as its place names it, "" where it names none."""
    if _QUOTED.fullmatch(origin.place):
        return ""
    found = _LINE.fullmatch(origin.place) or _CELL.fullmatch(origin.place)
    return (found["file"] or "") if found else ""


def tab_of(origin: Origin) -> str:
    """Return the sheet that a row stands in, "" where its source has none."""
    if quoted := _QUOTED.fullmatch(origin.place):
        return quoted["tab"].replace("''", "'")
    found = _CELL.fullmatch(origin.place)
    return found["tab"] if found else ""
