"""Maps one row and records each step, for `explain`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

from mappings.compiler.mapper import compile_with_problems
from mappings.event import Directory
from mappings.outcome import RowOutcome, SourceRow
from mappings.reasons import REASON_TEXTS, Refusal
from mappings.spec.feed import FeedMapping
from mappings.steps.step import text_of
from mappings.zones import EndOfDay


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One step of a value, or one condition, as `explain` shows it. `field`: the payload's path, `$name` for a named value,
    `rule N`, or `event` where the steps of the event with the key `step` begin; `refused`: the reason of a refusal.
    """

    field: str
    step: str
    goes_in: str
    comes_out: str
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The outcomes of a row, and every step in the order in which it ran.

    A row that is split into events has several outcomes, with the steps of each.
    """

    steps: tuple[TracedStep, ...]
    outcomes: tuple[RowOutcome, ...]


def explain_row(mapping: FeedMapping, directory: Directory, row: SourceRow, as_of: datetime | None = None) -> Explanation:
    """Map one row and record each step."""
    steps: list[TracedStep] = []

    def watch(field: str, step: str, goes_in: Any, comes_out: Any) -> None:
        refused = ""
        if isinstance(comes_out, Refusal):
            text = REASON_TEXTS[comes_out.code]
            refused = f"{text.removesuffix('.')}: {comes_out.hint}" if comes_out.hint else text
        steps.append(TracedStep(field, step, _shown(goes_in), "" if refused else _shown(comes_out), refused))

    mapper, _ = compile_with_problems(mapping, directory, as_of, watch)
    return Explanation(outcomes=mapper.outcomes(row), steps=tuple(steps))


def _shown(value: Any) -> str:
    match value:
        case None:
            return ""
        case list():
            return " | ".join(map(_shown, value))
        case date() | time() | timedelta() | EndOfDay():
            return text_of(value)
        case dict():
            return ", ".join(f"{name}: {_shown(part)}" for name, part in value.items())
        case _:
            return str(value)
