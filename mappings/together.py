"""The outcomes of one row as one: what is wrong with all of its events is told once, and each knows what part it is.

Which events a row stands for is `exploding`'s and `recurring`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from mappings.judging import once
from mappings.recurring import Days
from mappings.row_rules import OVER
from mappings.strands import Strand
from mappings.vocabulary import MappedRow, Part, Reason, Rejection, RowKey, RowOutcome, Silence, Skipped

_REASONS_TOLD = 20
"""A row of sixty bad dates is told enough by twenty of them."""


def as_one_row(
    outcomes: Sequence[RowOutcome], strands: Sequence[Strand], stem: RowKey, days: Days | None
) -> tuple[RowOutcome, ...]:
    """Return the outcomes of one row, whose own key is the `stem` of theirs; `strands` are what they came from.

    Where all are rejected, or all left out for one reason, that is the row's: its events are then neither wanted nor gone.
    Days that are over are dropped beside others: nobody needs to hear of them in every run.
    """
    silent = Part(silence=Silence(stem)) if stem else Part()
    rejections = [outcome for outcome in outcomes if isinstance(outcome, Rejection)]
    if len(rejections) == len(outcomes):
        told = chain.from_iterable(_unmuted(*pair) for pair in zip(rejections, strands, strict=True))
        reasons = once(told)[:_REASONS_TOLD]
        return (replace(rejections[0], row_key=stem, reasons=reasons, part=silent),)
    labels = {_label(outcome) for outcome in outcomes}
    if len(labels) == 1 and ("", 0) not in labels:
        return (replace(outcomes[0], row_key=stem, part=silent),)
    kept = [pair for pair in zip(outcomes, strands, strict=True) if not _is_of_the_past(*pair, days)]
    if not kept:
        return (Skipped(outcomes[0].origin, OVER, stem, part=silent),)
    return tuple(
        replace(outcome, part=Part(len(kept), place > 0, _silence(strand))) for place, (outcome, strand) in enumerate(kept)
    )


def _silence(strand: Strand) -> Silence | None:
    return Silence(strand.key) if strand.is_refused and strand.key else strand.silence


def _unmuted(rejection: Rejection, strand: Strand) -> Iterator[Reason]:
    """Yield the reasons, without those that come of reading a whole list where an item was meant."""
    muted = (*strand.muted, *(f"{column}." for column in strand.muted))
    for reason in rejection.reasons:
        if reason.step == "explode" or not (reason.column in muted or reason.column.startswith(muted[len(strand.muted) :])):
            yield reason


def _label(outcome: RowOutcome) -> tuple[str, int]:
    return (outcome.because, outcome.rule) if isinstance(outcome, Skipped) and not outcome.is_cancelled else ("", 0)


def _is_of_the_past(outcome: RowOutcome, strand: Strand, days: Days | None) -> bool:
    if days is None or days.today is None or strand.state.day is None:
        return False
    is_over = outcome.outside == OVER if isinstance(outcome, MappedRow) else _label(outcome) == (OVER, 0)
    return is_over and strand.state.day < days.today
