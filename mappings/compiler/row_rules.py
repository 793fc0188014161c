"""The rules that leave rows out, compiled: each returns the label under which a row is left out, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar, assert_never

from mappings.compiler.base import Compiler
from mappings.compiler.conditions import Holds
from mappings.compiler.evaluation import RowState, read_cell
from mappings.positions import Loc
from mappings.refusals import Reason, ReasonCode, Refusal
from mappings.spec.rules import Assert, Cancelled, Duplicates, Explode, Group, Keep, Recur, Rule, Skip, WindowRule, WindowSpan
from mappings.spec.values import All, Condition, Not, Test
from mappings.spec.values import Any as AnyOf

LeaveOut = Callable[[RowState], str]
"""Returns the label under which the row is left out, "" if it is wanted; raises Refusal."""
OVER = "already over"
TOO_FAR = "beyond the horizon"
TOO_LONG = "longer than wanted"
AnyRule = TypeVar("AnyRule", bound=Rule)


def compile_rule(compiler: Compiler, rule: Rule, loc: Loc) -> LeaveOut | None:
    """Compile a rule that looks at the cells and values of a row or of one of its events; None for any other kind."""
    match rule:
        case Skip():
            return _leave_out(compiler.condition(rule.skip, (*loc, "skip")), rule.because, when=True)
        case Keep():
            return _leave_out(compiler.condition(rule.keep, (*loc, "keep")), rule.because, when=False)
        case Cancelled():
            return _cancel(compiler.condition(rule.cancelled, (*loc, "cancelled")), rule.because)
        case Assert():
            return _demand(compiler.condition(rule.asserted, (*loc, "assert")), rule)
        case Explode() | Recur() | Group() | Duplicates() | WindowRule():
            return None
        case _:
            assert_never(rule)


def only(rules: tuple[Rule, ...], kind: type[AnyRule]) -> AnyRule | None:
    """Return the rule of a kind of which a file has one at most."""
    return next((rule for rule in rules if isinstance(rule, kind)), None)


def window_of(rules: tuple[Rule, ...]) -> WindowSpan | None:
    """Return the window among the rules, if there is one."""
    rule = only(rules, WindowRule)
    return None if rule is None else rule.window


def compile_window(rules: tuple[Rule, ...], as_of: datetime | None) -> CompiledWindow | None:
    """Compile the window among the rules, as seen from the aware moment `as_of`; None where there is none, or no moment."""
    placed = (
        CompiledWindow(rule.window, place, as_of) for place, rule in enumerate(rules, 1) if as_of and isinstance(rule, WindowRule)
    )
    return next(placed, None)


@dataclass(frozen=True, slots=True)
class CompiledWindow:
    """A window as seen from the aware moment `as_of`; `place` is the rule's under `rows:`, from 1."""

    span: WindowSpan
    place: int
    as_of: datetime

    @property
    def reads(self) -> frozenset[str]:
        """The fields of the payload that it looks at."""
        is_end_read = self.span.past == "skip" or self.span.longest is not None
        return frozenset({"startAt", "endAt"} if is_end_read else {"startAt"})

    def outside(self, payload: Mapping[str, Any]) -> str:
        """Return the label under which an event is outside, "" if it is inside or its times cannot be read.

        Raises:
            Refusal: the event is longer than wanted.
        """
        start = _moment(payload.get("startAt"))
        end = _moment(payload["endAt"]) if "endAt" in payload and "endAt" in self.reads else start
        if start is None or end is None:
            return ""
        if self.span.past == "skip" and end < self.as_of:
            return OVER
        if self.span.horizon is not None and start > self.as_of + self.span.horizon:
            return TOO_FAR
        return "" if self.span.longest is None else _too_long(self.span, end - start, self.span.longest)


def _too_long(span: WindowSpan, length: timedelta, longest: timedelta) -> str:
    if length <= longest:
        return ""
    if span.on_longer == "skip":
        return TOO_LONG
    found = f"{length.days} days" if length.days else f"{length.total_seconds() / 3600:.1f} hours"
    raise Refusal(ReasonCode.ASSERTION, f"at most {_days(longest)} from start to end would be accepted", found=found)


def _days(length: timedelta) -> str:
    return f"{length.days} days" if not length.seconds else f"{length.total_seconds() / 3600:.1f} hours"


def _leave_out(holds: Holds, because: str, *, when: bool) -> LeaveOut:
    return lambda row: because if holds(row) is when else ""


def _cancel(holds: Holds, because: str) -> LeaveOut:
    """A cancelled row goes on: its window and the keys of its events decide what there is to call off."""

    def cancel(row: RowState) -> str:
        if not row.cancelled and not row.rejected_by and holds(row):
            row.cancelled = because
        return ""

    return cancel


def _demand(holds: Holds, rule: Assert) -> LeaveOut:
    column = _column_of(rule.asserted)

    def demand(row: RowState) -> str:
        if not holds(row):
            found = read_cell(row.cells, column) if column else ""
            reason = Reason(ReasonCode.ASSERTION, "", column, found, rule.message, "assert")
            (row.reasons if rule.severity == "reject" else row.warnings).append(reason)
            row.is_draft = row.is_draft or rule.severity == "draft"
        return ""

    return demand


def _column_of(condition: Condition) -> str:
    """Return the first column that a condition looks at, "" if it looks at values only."""
    match condition:
        case Test():
            return condition.column or ""
        case Not():
            return _column_of(condition.negated)
        case All():
            parts = condition.all
        case AnyOf():
            parts = condition.any
        case _:
            assert_never(condition)
    return next((column for column in map(_column_of, parts) if column), "")


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None
