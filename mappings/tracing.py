"""One row step by step, for the command explain: what each step was given and what it made of it.

The mapper itself is `engine`'s; nothing here is used while a feed runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

from mappings.engine import Directory, attempt
from mappings.refusals import Refusal
from mappings.spec.feed import FeedMapping
from mappings.vocabulary import REASON_TEXTS, RowOutcome, SourceRow


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One step of one value. `field` is the payload's path, or `$name` for a named value; `refused` says why, if it did."""

    field: str
    step: str
    goes_in: str
    comes_out: str
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What became of a row, and every step on the way, in the order in which they were taken.

    A row that stands for several events has several outcomes, and the steps of each.
    """

    steps: tuple[TracedStep, ...]
    outcomes: tuple[RowOutcome, ...]

    @property
    def outcome(self) -> RowOutcome:
        """What became of the row; the first of its outcomes, where there are several."""
        return self.outcomes[0]


def explain_row(mapping: FeedMapping, directory: Directory, row: SourceRow, as_of: datetime | None = None) -> Explanation:
    """Map one row and keep what every step did."""
    steps: list[TracedStep] = []
    refused: set[str] = set()

    def watch(field: str, step: str, goes_in: Any, comes_out: Any) -> None:
        told = _traced(field, step, goes_in, comes_out)
        # After a refusal the steps of a field are gone through once more, with its policies heard.
        if field not in refused or told not in steps:
            steps.append(told)
        if told.refused:
            refused.add(field)

    mapper, _ = attempt(mapping, directory, as_of, watch)
    return Explanation(outcomes=mapper.outcomes(row), steps=tuple(steps))


def _traced(field: str, step: str, goes_in: Any, comes_out: Any) -> TracedStep:
    if isinstance(comes_out, Refusal):
        text = REASON_TEXTS[comes_out.code]
        why = f"{text.removesuffix('.')}: {comes_out.hint}" if comes_out.hint else text
        return TracedStep(field, step, _shown(goes_in), "", why)
    return TracedStep(field, step, _shown(goes_in), _shown(comes_out))


def _shown(value: Any) -> str:
    match value:
        case None:
            return ""
        case list():
            return " | ".join(map(_shown, value))
        case datetime() | date() | time():
            return value.isoformat()
        case dict():
            return ", ".join(f"{name}: {_shown(part)}" for name, part in value.items())
        case _:
            return str(value)
