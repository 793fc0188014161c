"""Conditions compiled to functions of one row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, assert_never

from mappings.compiler.evaluation import Getter, RowState, is_empty
from mappings.lookup_table import normaliser
from mappings.patterns import compile_pattern
from mappings.positions import Loc, Problem
from mappings.refusals import ReasonCode, Refusal
from mappings.spec.conditions import All, Condition, Not, Test
from mappings.spec.conditions import Any as AnyOf
from mappings.steps.patterns import short_enough
from mappings.zones import EndOfDay

Holds = Callable[[RowState], bool]
"""A compiled condition. Raises Refusal where the value it looks at is unusable."""
Check = Callable[[Any], bool]
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
    checks = tuple(_value_checks(test))
    comparisons = tuple(_comparisons(test, refer))

    if len(checks) == 1 and not comparisons:
        only = checks[0]
        return lambda row: only(subject(row))

    def holds(row: RowState) -> bool:
        value = subject(row)
        return all(check(value) for check in checks) and all(compare(value, other(row)) for compare, other in comparisons)

    return holds


def _value_checks(test: Test) -> list[Check]:
    checks: list[Check] = []
    same = normaliser(test.ignore)
    if test.equals is not None and not _is_reference(test.equals):
        checks.append(_is_among({same(test.equals)}, same))
    if test.among is not None:
        checks.append(_is_among({same(text) for text in test.among}, same))
    if test.matches is not None:
        checks.append(_matches(test.matches, ignores_case="case" in test.ignore))
    if test.contains is not None:
        checks.append(_contains(tuple(same(text) for text in test.contains), same))
    if test.state is not None:
        checks.append(is_empty if test.state == "missing" else lambda value: not is_empty(value))
    checks.extend(_number_checks(test))
    return checks


def _is_reference(text: str) -> bool:
    return text.startswith("$") and not text.startswith("$$")


def _is_among(known: set[str], same: Callable[[str], str]) -> Check:
    return lambda value: same(_as_text(value)) in known


def _matches(pattern: str, *, ignores_case: bool) -> Check:
    finds = compile_pattern(pattern, ignore_case=ignores_case).finds
    return lambda value: finds(short_enough(_as_text(value)))


def _contains(parts: tuple[str, ...], same: Callable[[str], str]) -> Check:
    def contains(value: Any) -> bool:
        if isinstance(value, list):
            return any(same(_as_text(item)) in parts for item in value)
        text = same(_as_text(value))
        return any(part in text for part in parts)

    return contains


def _number_checks(test: Test) -> list[Check]:
    checks: list[Check] = []
    if test.less is not None:
        most = as_number(test.less)
        checks.append(lambda value: not is_empty(value) and as_number(value) < most)
    if test.greater is not None:
        least = as_number(test.greater)
        checks.append(lambda value: not is_empty(value) and as_number(value) > least)
    return checks


def _comparisons(test: Test, refer: Refer) -> list[tuple[Callable[[Any, Any], bool], Getter]]:
    found: list[tuple[Callable[[Any, Any], bool], Getter]] = []
    if test.equals is not None and _is_reference(test.equals):
        found.append((_equals(test), refer(test.equals)))
    if test.before is not None:
        found.append((is_earlier, _time_or_reference(test.before, refer)))
    if test.after is not None:
        found.append((lambda value, other: is_earlier(other, value), _time_or_reference(test.after, refer)))
    return found


def _equals(test: Test) -> Callable[[Any, Any], bool]:
    if not test.ignore:
        return lambda value, other: bool(value == other)
    same = normaliser(test.ignore)
    return lambda value, other: same(_as_text(value)) == same(_as_text(other))


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


def untimely(condition: Condition, loc: Loc) -> Iterator[Problem]:
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


def _untimely_test(test: Test, loc: Loc) -> Iterator[Problem]:
    for key, text in (("before", test.before), ("after", test.after)):
        if text is None:
            continue
        if test.column is not None:
            hint = "name the column's date under let, and look at that value"
            yield Problem((*loc, key), "a column is text, and has no earlier or later", hint)
        elif not _is_reference(text) and not _is_time(text):
            yield Problem((*loc, key), f'"{text}" is not a date or time', 'write it like "2026-07-01"')


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
