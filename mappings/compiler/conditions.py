"""Conditions compiled to functions of one row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, assert_never

from mappings.compiler.base import Compiler, Getter, RowState, is_empty, is_reference, lenient, nothing
from mappings.lookup_table import normaliser
from mappings.patterns import compile_pattern
from mappings.positions import Loc, ValuePosition
from mappings.refusals import ReasonCode, Refusal
from mappings.spec.values import All, Condition, Not, Test, TestName
from mappings.spec.values import Any as AnyOf
from mappings.steps.lists import short_enough
from mappings.zones import EndOfDay

Holds = Callable[[RowState], bool]
"""A compiled condition. Raises Refusal where the value it looks at is unusable."""
Check = Callable[[Any, RowState], bool]
"""Decides whether a value of a row passes one test."""


def compile_condition(compiler: Compiler, condition: Condition, loc: Loc) -> Holds:
    """Return the function that decides a condition for a row."""
    match condition:
        case All():
            parts = [compile_condition(compiler, part, (*loc, "all", place)) for place, part in enumerate(condition.all)]
            return lambda row: all(part(row) for part in parts)
        case AnyOf():
            parts = [compile_condition(compiler, part, (*loc, "any", place)) for place, part in enumerate(condition.any)]
            return lambda row: any(part(row) for part in parts)
        case Not():
            negated = compile_condition(compiler, condition.negated, (*loc, "not"))
            return lambda row: not negated(row)
        case Test():
            return _compile_test(compiler, condition, loc)
        case _:
            assert_never(condition)


def _compile_test(compiler: Compiler, test: Test, loc: Loc) -> Holds:
    if test.column is not None:
        subject = compiler.column(test.column).get
    else:
        subject = lenient(compiler.operand(test.value or "", ValuePosition(loc)).get)
    checks = [_compile_check(compiler, name, test, loc) for name in test.tests]
    first, *others = checks
    if not others:
        return lambda row: first(subject(row), row)

    def holds(row: RowState) -> bool:
        value = subject(row)
        return all(check(value, row) for check in checks)

    return holds


def _compile_check(compiler: Compiler, name: TestName, test: Test, loc: Loc) -> Check:  # noqa: C901, PLR0911 - one arm per test
    wanted: Any = getattr(test, name)
    same = normaliser(test.ignore)
    match name:
        case "equals" if is_reference(wanted):
            other = lenient(compiler.operand(wanted, ValuePosition(loc)).get)
            if not test.ignore:
                return lambda value, row: bool(value == other(row))
            return lambda value, row: same(_as_text(value)) == same(_as_text(other(row)))
        case "equals" | "among":
            known = frozenset(map(same, [wanted] if name == "equals" else wanted))
            return lambda value, _row: same(_as_text(value)) in known
        case "matches":
            finds = compile_pattern(wanted, ignore_case="case" in test.ignore).finds
            return lambda value, _row: finds(short_enough(_as_text(value)))
        case "contains":
            parts = tuple(map(same, wanted))

            def contains(value: Any, _row: RowState) -> bool:
                if isinstance(value, list):
                    return any(same(_as_text(item)) in parts for item in value)
                text = same(_as_text(value))
                return any(part in text for part in parts)

            return contains
        case "state":
            is_missing = wanted == "missing"
            return lambda value, _row: is_empty(value) is is_missing
        case "before" | "after":
            read = _compile_time(compiler, wanted, (*loc, name), is_text=test.column is not None)
            if name == "before":
                return lambda value, row: _is_earlier(value, read(row))
            return lambda value, row: _is_earlier(read(row), value)
        case "less":
            most = _as_number(wanted)
            return lambda value, _row: not is_empty(value) and _as_number(value) < most
        case "greater":
            least = _as_number(wanted)
            return lambda value, _row: not is_empty(value) and _as_number(value) > least
        case _:
            assert_never(name)


def _compile_time(compiler: Compiler, text: str, loc: Loc, *, is_text: bool) -> Getter:
    """Compile what stands `before` or `after`: a named value, or an ISO date (2026-07-01), time (18:00) or date and time."""
    spot = ValuePosition(loc)
    if is_text:
        hint = "name the column's date under let, and look at that value"
        return compiler.misfit(spot, "a column is text, and has no earlier or later", hint).get
    if is_reference(text):
        return lenient(compiler.operand(text, ValuePosition(loc[:-1])).get)
    moment: date | time
    try:
        if "T" in text or " " in text.strip():
            moment = datetime.fromisoformat(text)
        else:
            moment = time.fromisoformat(text) if ":" in text else date.fromisoformat(text)
    except ValueError:
        compiler.misfit(spot, f'"{text}" is not a date or time', 'write it like "2026-07-01"')
        return nothing
    return lambda _row: moment


def _is_earlier(one: Any, other: Any) -> bool:
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


def _as_number(value: Any) -> Decimal:
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
