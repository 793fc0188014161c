"""One row step by step, for the command explain: what each step was given and what it made of it.

The mapper itself is `engine`'s; nothing here is used while a feed runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

from mappings.engine import Directory, attempt
from mappings.refusals import Refusal
from mappings.schema import FeedMapping
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
    """What became of a row, and every step on the way, in the order in which they were taken."""

    steps: tuple[TracedStep, ...]
    outcome: RowOutcome


def explain_row(mapping: FeedMapping, directory: Directory, row: SourceRow, as_of: datetime | None = None) -> Explanation:
    """Map one row and keep what every step did."""
    steps: list[TracedStep] = []

    def watch(field: str, step: str, goes_in: Any, comes_out: Any) -> None:
        if isinstance(comes_out, Refusal):
            why = f"{REASON_TEXTS[comes_out.code]} {comes_out.hint}".strip()
            steps.append(TracedStep(field, step, _shown(goes_in), "", why))
        else:
            steps.append(TracedStep(field, step, _shown(goes_in), _shown(comes_out)))

    mapper, _ = attempt(mapping, directory, as_of, watch)
    return Explanation(outcome=mapper(row), steps=tuple(steps))


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
