"""The rules about which rows are wanted, compiled: each says the label under which a row is left out, or nothing.

How rules are spelt is `schema`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, assert_never

from mappings.compiling import Compiler
from mappings.deciding import Holds
from mappings.evaluation import RowState
from mappings.schema import Keep, Rule, Skip, Window, WindowSpan

LeaveOut = Callable[[RowState], str]
"""Returns the label under which the row is left out, "" if it is wanted; raises Refusal."""
OutsideWindow = Callable[[Mapping[str, Any]], str]
"""The same for a payload's times."""

OVER = "already over"
TOO_FAR = "beyond the horizon"


def compile_rules(compiler: Compiler, rules: tuple[Rule, ...]) -> tuple[LeaveOut, ...]:
    """Compile the rules that look at a row's cells and values."""
    compiled: list[LeaveOut] = []
    for position, rule in enumerate(rules):
        match rule:
            case Skip():
                compiled.append(_leave_out(compiler.condition(rule.skip, ("rows", position, "skip")), rule.because, when=True))
            case Keep():
                compiled.append(_leave_out(compiler.condition(rule.keep, ("rows", position, "keep")), rule.because, when=False))
            case Window():
                continue
            case _:
                assert_never(rule)
    return tuple(compiled)


def window_of(rules: tuple[Rule, ...]) -> WindowSpan | None:
    """Return the window among the rules, if there is one."""
    return next((rule.window for rule in rules if isinstance(rule, Window)), None)


def compile_window(span: WindowSpan, as_of: datetime) -> OutsideWindow:
    """Compile the window as seen from the aware moment `as_of`."""
    skips_past = span.past == "skip"
    latest = None if span.horizon is None else as_of + span.horizon

    def outside(payload: Mapping[str, Any]) -> str:
        start = _moment(payload.get("startAt"))
        if start is None:
            return ""
        if skips_past and (_moment(payload.get("endAt")) or start) < as_of:
            return OVER
        return TOO_FAR if latest is not None and start > latest else ""

    return outside


def _leave_out(holds: Holds, because: str, *, when: bool) -> LeaveOut:
    return lambda row: because if holds(row) is when else ""


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
