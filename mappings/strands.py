"""The events that one row stands for, on their way. What makes several of one is `exploding`'s and `recurring`'s."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from mappings.compiling import Compiled
from mappings.evaluation import RowState
from mappings.refusals import Refusal
from mappings.stepping import Flow
from mappings.transforms.step import Kind
from mappings.vocabulary import RowKey, Silence


@dataclass(slots=True)
class Strand:
    """One event that a row may become: its key, what is known of it, and why and by which rule it is left out, if it is.

    `silence`: what the row says nothing of besides. `is_refused`: its events cannot be told; it goes on only so that all
    problems of the row are told at once, but for those of the columns that are `muted`, which are told already.
    """

    key: RowKey
    state: RowState
    label: str = ""
    silence: Silence | None = None
    is_refused: bool = False
    muted: tuple[str, ...] = ()
    rule: int = 0


Unfold = Callable[[Strand], list[Strand]]
"""Returns the events that one stands for, itself if it is one only or if it is refused."""


def given_item(column: str) -> Compiled:
    """Return the value `$item` of each event of a row: the item of a column."""
    return Compiled(lambda row: row.item, Flow(Kind.TEXT), column)


def given_day(own: Callable[[RowState], date]) -> Compiled:
    """Return the value `$day`: that of each event after the recurrence, the row's own before it."""
    return Compiled(lambda row: own(row) if row.day is None else row.day, Flow(Kind.DATE))


def refused(strand: Strand, refusal: Refusal, muted: tuple[str, ...] = ()) -> list[Strand]:
    """Return an event whose own events cannot be told."""
    strand.state.reasons.append(refusal.reason(""))
    strand.is_refused, strand.muted = True, muted
    return [strand]
