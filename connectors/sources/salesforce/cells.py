"""What a Salesforce value becomes as a cell: the same text whether it came as JSON or as CSV.

Which field is of which type is `salesforce_shape`'s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from connectors.sources.formats.nested import Number

Convert = Callable[[Any], str]
"""Makes a cell of a value: a text, a number, true, false or null (None), and of nested ones a JSON text."""

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{3})(?:Z|\+00:?00)", re.ASCII)
_TIME = re.compile(r"(\d\d:\d\d:\d\d)\.(\d{3})Z?", re.ASCII)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"
_SHORT_ID = re.compile(r"[0-9A-Za-z]{15}", re.ASCII)


def long_id(text: str) -> str:
    """Return an id with 18 characters; one with 15 gets its last three, which say which letters of it are capitals."""
    if not _SHORT_ID.fullmatch(text):
        return text
    fives = (text[place : place + 5] for place in (0, 5, 10))
    return text + "".join(
        _LETTERS[sum(1 << place for place, letter in enumerate(five) if "A" <= letter <= "Z")] for five in fives
    )


def moment(text: str) -> str:
    """Return a moment, sent as `...T17:30:00.000+0000` or `....000Z`, as `...T17:30:00Z`; milliseconds stay if there are any."""
    if text.endswith((".000+0000", ".000Z")):
        return f"{text[:19]}Z"
    match = _MOMENT.fullmatch(text)
    return text if match is None else f"{match[1]}.{match[2]}Z"


def time_of_day(text: str) -> str:
    """Return a time of day, which Salesforce sends with a Z that means nothing: `19:30:00`."""
    match = _TIME.fullmatch(text)
    return text if match is None else match[1] if match[2] == "000" else f"{match[1]}.{match[2]}"


def number(text: str) -> str:
    """Return a number with the digits that were sent, written out (`1.0E7` is 10000000), without a final `.0`."""
    if text[-2:] == ".0":
        return text[:-2]
    if "E" in text or "e" in text:
        return f"{Decimal(text):f}".removesuffix(".0")
    return text


def unknown(value: Any) -> str:
    """Return the cell of a value whose field's type is not known, by what it looks like."""
    match value:
        case Number():
            return number(value)
        case str():
            return moment(value) if _MOMENT.fullmatch(value) else value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case dict() | list():
            return json.dumps(_bare(value), ensure_ascii=False)
        case _:
            return number(str(value))


def convert_for(kind: str) -> Convert:
    """Return what makes cells of the values of a field of this type."""
    match kind:
        case "id" | "reference":
            return _text_by(long_id)
        case "datetime":
            return _text_by(moment)
        case "time":
            return _text_by(time_of_day)
        case "double" | "currency" | "percent" | "int" | "long":
            return _text_by(number)
        case "":
            return unknown
        case _:
            return _plain


def children_text(records: Sequence[Mapping[str, Any]], fields: Mapping[tuple[str, ...], Convert]) -> str:
    """Return child rows as a JSON list of objects, their values as cells; a parent's fields stand in an object of its own."""
    return json.dumps([_child(record, fields) for record in records], ensure_ascii=False)


def picked(record: Mapping[str, Any], steps: Sequence[str]) -> Any:
    """Return the value to which the steps lead, None where a parent is missing."""
    value: Any = record
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _text_by(spell: Callable[[str], str]) -> Convert:
    return lambda value: spell(value if type(value) is str else str(value)) if value not in (None, "") else ""


def _plain(value: Any) -> str:
    return value if type(value) is str else unknown(value)


def _child(record: Mapping[str, Any], fields: Mapping[tuple[str, ...], Convert]) -> dict[str, Any]:
    child: dict[str, Any] = {}
    for steps, convert in fields.items():
        holder = child
        for step in steps[:-1]:
            holder = holder.setdefault(step, {})
        holder[steps[-1]] = convert(picked(record, steps))
    return child


def _bare(value: Any) -> Any:
    """Return nested values as cells, without what Salesforce says of the record as such."""
    match value:
        case {"records": list(records)}:
            return [_bare(record) for record in records]
        case dict():
            return {key: _bare(inner) for key, inner in value.items() if key != "attributes"}
        case list():
            return [_bare(inner) for inner in value]
        case _:
            return unknown(value)
