"""Conditions compiled to functions of one row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, assert_never

from mappings.compiler.evaluation import Getter, RowState, is_empty
from mappings.lookup_table import normaliser
from mappings.patterns import compile_pattern
from mappings.positions import Loc, MappingProblem
from mappings.refusals import ReasonCode, Refusal
from mappings.spec.values import All, Condition, Not, Test, TestName
from mappings.spec.values import Any as AnyOf
from mappings.steps.patterns import short_enough
from mappings.zones import EndOfDay

Holds = Callable[[RowState], bool]
"""A compiled condition. Raises Refusal where the value it looks at is unusable."""
Check = Callable[[Any, RowState], bool]
"""Decides whether a value of a row passes one test."""
Refer = Callable[[str], Getter]
"""Returns the getter of a named value (`$name`) or of a constant text; nothing there is None."""
ReadColumn = Callable[[str], Getter]


def compile_condition(condition: Condition, refer: Refer, read_column: ReadColumn) -> Holds:
    """Return the function that decides a condition for a row."""
    match condition:
        case All():
            parts = tuple(compile_condition(part, refer, read_column) for part in condition.all)
            return lambda row: all(part(row) for part in parts)
        case AnyOf():
            parts = tuple(compile_condition(part, refer, read_column) for part in condition.any)
            return lambda row: any(part(row) for part in parts)
        case Not():
            negated = compile_condition(condition.negated, refer, read_column)
            return lambda row: not negated(row)
        case Test():
            return _compile_test(condition, refer, read_column)
        case _:
            assert_never(condition)


def _compile_test(test: Test, refer: Refer, read_column: ReadColumn) -> Holds:
    subject = read_column(test.column) if test.column is not None else refer(test.value or "")
    checks = tuple(_compile_check(name, test, refer) for name in test.tests)
    if len(checks) == 1:
        only = checks[0]
        return lambda row: only(subject(row), row)

    def holds(row: RowState) -> bool:
        value = subject(row)
        return all(check(value, row) for check in checks)

    return holds


def _compile_check(name: TestName, test: Test, refer: Refer) -> Check:  # noqa: C901, PLR0911 - one arm per test
    wanted: Any = getattr(test, name)
    same = normaliser(test.ignore)
    match name:
        case "equals" if _is_reference(wanted):
            other = refer(wanted)
            if not test.ignore:
                return lambda value, row: bool(value == other(row))
            return lambda value, row: same(_as_text(value)) == same(_as_text(other(row)))
        case "equals":
            known = same(wanted)
            return lambda value, _row: same(_as_text(value)) == known
        case "among":
            several = frozenset(map(same, wanted))
            return lambda value, _row: same(_as_text(value)) in several
        case "matches":
            finds = compile_pattern(wanted, ignore_case="case" in test.ignore).finds
            return lambda value, _row: finds(short_enough(_as_text(value)))
        case "contains":
            parts = tuple(map(same, wanted))
            return lambda value, _row: _contains(value, parts, same)
        case "state":
            is_missing = wanted == "missing"
            return lambda value, _row: is_empty(value) is is_missing
        case "before":
            later = _time_or_reference(wanted, refer)
            return lambda value, row: is_earlier(value, later(row))
        case "after":
            earlier = _time_or_reference(wanted, refer)
            return lambda value, row: is_earlier(earlier(row), value)
        case "less":
            most = as_number(wanted)
            return lambda value, _row: not is_empty(value) and as_number(value) < most
        case "greater":
            least = as_number(wanted)
            return lambda value, _row: not is_empty(value) and as_number(value) > least
        case _:
            assert_never(name)


def _is_reference(text: str) -> bool:
    return text.startswith("$") and not text.startswith("$$")


def _contains(value: Any, parts: tuple[str, ...], same: Callable[[str], str]) -> bool:
    if isinstance(value, list):
        return any(same(_as_text(item)) in parts for item in value)
    text = same(_as_text(value))
    return any(part in text for part in parts)


def _time_or_reference(text: str, refer: Refer) -> Getter:
    if _is_reference(text):
        return refer(text)
    moment = parse_time(text)
    return lambda _row: moment


def parse_time(text: str) -> date | time | datetime:
    """Read an ISO date (2026-07-01), time (18:00) or date and time, as a condition writes them.

    Raises:
        ValueError: it is none of them.
    """
    if "T" in text or " " in text.strip():
        return datetime.fromisoformat(text)
    return time.fromisoformat(text) if ":" in text else date.fromisoformat(text)


def untimely(condition: Condition, loc: Loc) -> Iterator[MappingProblem]:
    """Yield what stands `before` or `after` something in a condition at a place in the file, and is no time."""
    match condition:
        case All():
            for position, part in enumerate(condition.all):
                yield from untimely(part, (*loc, "all", position))
        case AnyOf():
            for position, part in enumerate(condition.any):
                yield from untimely(part, (*loc, "any", position))
        case Not():
            yield from untimely(condition.negated, (*loc, "not"))
        case Test():
            yield from _untimely_test(condition, loc)


def _untimely_test(test: Test, loc: Loc) -> Iterator[MappingProblem]:
    for key, text in (("before", test.before), ("after", test.after)):
        if text is None:
            continue
        if test.column is not None:
            hint = "name the column's date under let, and look at that value"
            yield MappingProblem((*loc, key), "a column is text, and has no earlier or later", hint)
        elif not _is_reference(text) and not _is_time(text):
            yield MappingProblem((*loc, key), f'"{text}" is not a date or time', 'write it like "2026-07-01"')


def _is_time(text: str) -> bool:
    try:
        parse_time(text)
    except ValueError:
        return False
    return True


def is_earlier(one: Any, other: Any) -> bool:
    """True if one date, time or moment comes before another; nothing comes before nothing."""
    if is_empty(one) or is_empty(other):
        return False
    if isinstance(one, datetime) != isinstance(other, datetime):
        one, other = (value.date() if isinstance(value, datetime) else value for value in (one, other))
    elif isinstance(one, datetime) and (one.tzinfo is None) != (other.tzinfo is None):
        one, other = one.replace(tzinfo=None), other.replace(tzinfo=None)
    try:
        return bool(one < other)
    except TypeError:
        raise Refusal(ReasonCode.NOT_A_DATE, "two dates or two times can be compared", found=str(one)) from None


def as_number(value: Any) -> Decimal:
    """Return a plain number.

    Raises:
        Refusal: the text is none.
    """
    try:
        number = Decimal(value if isinstance(value, int | Decimal) else str(value).strip())
    except InvalidOperation:
        number = Decimal("nan")
    if number.is_finite():
        return number
    raise Refusal(ReasonCode.NOT_A_NUMBER, "a plain number such as 12.50 is needed to compare", found=str(value))


def _as_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case date() | time() | EndOfDay():
            return value.isoformat()
        case _:
            return str(value)
