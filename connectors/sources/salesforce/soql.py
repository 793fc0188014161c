"""Building the queries of one reading from a mapping's words: what to select, which records, in which order.

Nothing is ever glued into a query unquoted; what an author wrote in SOQL himself is asked as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from connectors.sources.salesforce.shape import Field
from mappings.errors import ConfigError
from mappings.spec.soql import FieldTest

_NUMBERS = frozenset({"double", "currency", "percent", "int", "long"})
_NUMBER = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,20})?", re.ASCII)
_YES_NO = re.compile("true|false")
_OWN_DATE = re.compile(r"[A-Z][A-Z_]{3,40}(?::\d{1,5})?", re.ASCII)
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_DATE_HINT = "write it like 2026-05-03, or as Salesforce does: TODAY, LAST_N_DAYS:30"
_MOMENT_HINT = "write it with its offset, like 2026-05-03T19:30:00+01:00, or as Salesforce does: TODAY, LAST_N_DAYS:30"


@dataclass(frozen=True, slots=True)
class Asking:
    """What one reading asks of one object: the select list, and the conditions that all records must meet."""

    select: str
    object: str
    conditions: tuple[str, ...] = ()

    def query(self, *more: str, order: str = "") -> str:
        """Return the query, with further conditions and an order."""
        return self._after(f"SELECT {self.select}", more) + (f" ORDER BY {order}" if order else "")

    def count(self, *more: str) -> str:
        """Return the query that counts the same records."""
        return self._after("SELECT COUNT()", more)

    def _after(self, opening: str, more: Sequence[str]) -> str:
        conditions = " AND ".join((*self.conditions, *more))
        return f"{opening} FROM {self.object}" + (f" WHERE {conditions}" if conditions else "")


def quoted(text: str) -> str:
    """Return a text as SOQL writes it (SOQL and SOSL Reference, Quoted String Escape Sequences)."""
    return f"'{text.translate(_ESCAPES)}'"


def conditions(tests: Sequence[FieldTest], fields: Mapping[str, Field]) -> tuple[str, ...]:
    """Return the conditions of a mapping's `where`; `fields` are the fields that its paths mean.

    Raises:
        ConfigError: values do not suit their fields' types; all of them.
    """
    found, wrong = list[str](), list[str]()
    for number, test in enumerate(tests, start=1):
        try:
            found.append(_condition(test, fields[test.field]))
        except ValueError as error:
            wrong.append(f"source.where {number}: {error}")
    if wrong:
        raise ConfigError("; ".join(wrong), hint="correct the values in the mapping file")
    return tuple(found)


def since(path: str, stamp: str) -> str:
    """Return the condition for records changed at a moment or later."""
    return f"{path} >= {stamp}"


def until(path: str, stamp: str, *, with_none: bool) -> str:
    """Return the condition for records changed at a moment or before; `with_none`: and for those that tell none."""
    return f"({path} = null OR {path} <= {stamp})" if with_none else f"{path} <= {stamp}"


def after_row(path: str, stamp: str, last_id: str) -> str:
    """Return the condition for what comes after one record, in the order of (`path`, Id); no stamp, "", comes first."""
    if not stamp:
        return f"({path} != null OR ({path} = null AND Id > {quoted(last_id)}))"
    return f"({path} > {stamp} OR ({path} = {stamp} AND Id > {quoted(last_id)}))"


def child_query(name: str, paths: Sequence[str]) -> str:
    """Return the query for child rows; without an order they would come differently every time."""
    return f"(SELECT {', '.join(paths)} FROM {name} ORDER BY Id)"  # noqa: S608  # names that the org itself told us


def _condition(test: FieldTest, field: Field) -> str:
    literals = [_literal(field, text) for text in test.value]
    match test.op:
        case "missing":
            return f"{field.path} = null"
        case "present":
            return f"{field.path} != null"
        case "in" | "not in" | "includes" | "excludes":
            return f"{field.path} {test.op.upper()} ({', '.join(literals)})"
        case _:
            return f"{field.path} {test.op.upper()} {literals[0]}"


def _literal(field: Field, text: str) -> str:
    match field.kind:
        case "boolean":
            return _matching(text.lower(), _YES_NO, field, "write true or false")
        case kind if kind in _NUMBERS:
            return _matching(text, _NUMBER, field, "write a number, like 12.50")
        case "date":
            return text if _is_date(text) else _matching(text, _OWN_DATE, field, _DATE_HINT)
        case "datetime":
            return _utc(text) or _matching(text, _OWN_DATE, field, _MOMENT_HINT)
        case _:
            return quoted(text)


def _matching(text: str, pattern: re.Pattern[str], field: Field, hint: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(f'"{text}" is no value of {field.path}, a {field.kind}: {hint}')
    return text


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _utc(text: str) -> str:
    """Return a moment as SOQL writes it, "" if the text is none."""
    try:
        said = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return "" if said.tzinfo is None else f"{said.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{said.microsecond // 1000:03}Z"
