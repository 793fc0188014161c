"""The rules about rows, in the order of the file: what leaves a row out, what it expands to, and which outcomes it then gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, tzinfo
from itertools import chain

from mappings.compiler.base import Compiler, nothing, unknown_name
from mappings.compiler.expand import Expand, ExpandedRow, compile_explosion, given_day
from mappings.compiler.group import MapGroups, compile_choice, compile_grouping
from mappings.compiler.payload import once
from mappings.compiler.recurrence import LONG_OVER, DayRange, FirstDay, RunDays, compile_first_day, compile_recurrence
from mappings.compiler.row_rules import OVER, CompiledWindow, LeaveOut, compile_rule, compile_window, only, window_of
from mappings.outcome import MappedRow, Part, Rejection, RowOutcome, Silence, Skipped
from mappings.positions import MappingProblem
from mappings.refusals import Reason
from mappings.row_key import RowKey
from mappings.spec.feed import FeedMapping
from mappings.spec.rules import Duplicates, Explode, Group, Recur, Rule, WindowRule
from mappings.zones import find_zone

_ONCE = (Explode, Recur, Group, Duplicates, WindowRule)
PlacedRule = tuple[int, LeaveOut]
"""A rule with its place under `rows:`, from 1."""


@dataclass(slots=True)
class Expansion:
    """A rule that makes several events of one, and the rules that are asked of each of them."""

    expand: Expand
    rules: list[PlacedRule]


@dataclass(frozen=True, slots=True)
class RowRules:
    """The compiled rules of a feed. `rules` are asked of a row before the first of the `expansions`; `window` of a payload.

    `days`: what a run looks at, where events recur.
    """

    rules: tuple[PlacedRule, ...]
    expansions: tuple[Expansion, ...]
    window: CompiledWindow | None
    join: MapGroups | None
    days: RunDays | None


def compile_plan(compiler: Compiler, mapping: FeedMapping, as_of: datetime | None) -> RowRules:
    """Compile the rules of a feed for a run that starts at the aware moment `as_of`."""
    compiler.problems.extend(_misplaced(mapping))
    days = _days(mapping, as_of)
    first_day = _compile_day(compiler, mapping)
    before: list[PlacedRule] = []
    expansions: list[Expansion] = []
    for position, rule in enumerate(mapping.rows):
        loc = ("rows", position)
        if isinstance(rule, Explode):
            expansions.append(Expansion(compile_explosion(compiler, rule.explode), []))
        elif isinstance(rule, Recur):
            expansions.append(Expansion(compile_recurrence(compiler, rule.recur, loc, days, first_day), []))
        elif (leave_out := compile_rule(compiler, rule, loc)) is not None:
            (expansions[-1].rules if expansions else before).append((position + 1, leave_out))
    return RowRules(
        rules=tuple(before),
        expansions=tuple(expansions),
        window=compile_window(mapping.rows, as_of),
        join=_join(compiler, mapping),
        days=days if only(mapping.rows, Recur) else None,
    )


def is_expanding(rules: tuple[Rule, ...]) -> bool:
    """Return whether a row may stand for several events."""
    return any(isinstance(rule, Explode | Recur) for rule in rules)


def needs_the_moment(rules: tuple[Rule, ...]) -> bool:
    """Whether a feed cannot be compiled for a run without the moment at which the run starts."""
    recur = only(rules, Recur)
    return window_of(rules) is not None or (recur is not None and recur.recur.horizon is not None)


def leaves_for_later(rules: tuple[Rule, ...]) -> bool:
    """Return whether rows or days are left out, for being beyond a horizon, that come within it as time goes by."""
    recur, span = only(rules, Recur), window_of(rules)
    return (span is not None and span.horizon is not None) or (recur is not None and recur.recur.horizon is not None)


def _compile_day(compiler: Compiler, mapping: FeedMapping) -> FirstDay:
    """Compile the first day of the rows that recur, before anything may look at `$day`."""
    for position, rule in enumerate(mapping.rows):
        if isinstance(rule, Recur):
            known = len(compiler.problems)
            first_day = compile_first_day(compiler, rule.recur, ("rows", position))
            compiler.problems[known:] = map(_of_first_day, compiler.problems[known:])
            compiler.given = {**compiler.given, "day": given_day(first_day)}
            return first_day
    return nothing


def _of_first_day(problem: MappingProblem) -> MappingProblem:
    if problem.message != unknown_name("day"):
        return problem
    return MappingProblem(problem.loc, "$day cannot say on which day a recurrence begins", "name the column with the first day")


def _join(compiler: Compiler, mapping: FeedMapping) -> MapGroups | None:
    for position, rule in enumerate(mapping.rows):
        match rule:
            case Group():
                return compile_grouping(compiler, rule.group, mapping.event, ("rows", position))
            case Duplicates():
                return compile_choice(compiler, rule.duplicates, ("rows", position))
            case _:
                continue
    return None


def _days(mapping: FeedMapping, as_of: datetime | None) -> RunDays:
    """Return the days that a run looks at: those long over are left to the window, if that leaves out what is over."""
    recur, span = only(mapping.rows, Recur), window_of(mapping.rows)
    if recur is None or as_of is None:
        return RunDays(None, DayRange())
    zone = _zone(mapping)
    horizon = recur.recur.horizon
    is_past_skipped = span is not None and span.past == "skip"
    first = (as_of - LONG_OVER).astimezone(zone).date() if is_past_skipped else date.min
    last = date.max if horizon is None else (as_of + horizon).astimezone(zone).date()
    return RunDays(as_of.astimezone(zone).date(), DayRange(first, last))


def _zone(mapping: FeedMapping) -> tzinfo:
    """Return the zone in which the feed's days begin, as far as the file names one for all of its events."""
    named = mapping.event.root.get("timezone")
    return (find_zone(named) if isinstance(named, str) else None) or UTC


def _misplaced(mapping: FeedMapping) -> Iterator[MappingProblem]:
    """Yield the rules that do not go together."""
    kinds = [type(rule) for rule in mapping.rows]
    for kind in (kind for kind, count in Counter(kinds).items() if count > 1 and kind in _ONCE):
        last = len(kinds) - 1 - kinds[::-1].index(kind)
        yield MappingProblem(("rows", last), f'the rule "{next(iter(kind.model_fields))}" stands twice', "one of them is enough")
    if Group in kinds and Duplicates in kinds:
        hint = "rows with one key are made one event, or one of them is chosen"
        yield MappingProblem(("rows", kinds.index(Duplicates)), "group and duplicates do not go together", hint)
    if Explode in kinds and Recur in kinds[: kinds.index(Explode)]:
        yield MappingProblem(("rows", kinds.index(Explode)), "explode comes before recur", "each item may have days of its own")
    for name in (name for name in _given(mapping) if name in mapping.let):
        yield MappingProblem(
            ("let", name), f'"${name}" is what each event of a row is told apart by', "call this value otherwise"
        )


def _given(mapping: FeedMapping) -> Iterator[str]:
    if only(mapping.rows, Explode):
        yield "item"
    if only(mapping.rows, Recur):
        yield "day"


_MOST_REASONS = 20
"""Twenty of a row's sixty bad dates are enough to report."""


def as_one_row(
    outcomes: Sequence[RowOutcome], expanded: Sequence[ExpandedRow], stem: RowKey, days: RunDays | None
) -> tuple[RowOutcome, ...]:
    """Return the outcomes of one row, whose own key is the `stem` of theirs; `expanded` are what they came from.

    Where all are rejected, or all left out for one reason, that is the row's: its events are then neither wanted nor gone.
    Days that are over are dropped beside others: they need not be reported in every run.
    """
    silent = Part(silence=Silence(stem)) if stem else Part()
    rejections = [outcome for outcome in outcomes if isinstance(outcome, Rejection)]
    if len(rejections) == len(outcomes):
        reasons = chain.from_iterable(_unmuted(*pair) for pair in zip(rejections, expanded, strict=True))
        return (replace(rejections[0], row_key=stem, reasons=once(reasons)[:_MOST_REASONS], part=silent),)
    labels = {_label(outcome) for outcome in outcomes}
    if len(labels) == 1 and ("", 0) not in labels:
        return (replace(outcomes[0], row_key=stem, part=silent),)
    kept = [pair for pair in zip(outcomes, expanded, strict=True) if not _is_of_the_past(*pair, days)]
    if not kept:
        return (Skipped(outcomes[0].origin, OVER, stem, part=silent),)
    return tuple(
        replace(outcome, part=Part(len(kept), place > 0, _silence(event))) for place, (outcome, event) in enumerate(kept)
    )


def _silence(event: ExpandedRow) -> Silence | None:
    return Silence(event.key) if event.is_refused and event.key else event.silence


def _unmuted(rejection: Rejection, event: ExpandedRow) -> Iterator[Reason]:
    """Yield the reasons, without those that come of reading a whole list where an item was meant."""
    muted = (*event.muted, *(f"{column}." for column in event.muted))
    for reason in rejection.reasons:
        if reason.step == "explode" or not (reason.column in muted or reason.column.startswith(muted[len(event.muted) :])):
            yield reason


def _label(outcome: RowOutcome) -> tuple[str, int]:
    return (outcome.because, outcome.rule) if isinstance(outcome, Skipped) and not outcome.is_cancelled else ("", 0)


def _is_of_the_past(outcome: RowOutcome, event: ExpandedRow, days: RunDays | None) -> bool:
    if days is None or days.today is None or event.state.day is None:
        return False
    is_over = outcome.outside == OVER if isinstance(outcome, MappedRow) else _label(outcome) == (OVER, 0)
    return is_over and event.state.day < days.today
