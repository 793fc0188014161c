"""What a measurement gives: lines of the budgets' table, tables with the details, plots.

How they are shown is `page.py`'s and `plots.py`'s.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


class Standing(StrEnum):
    MET = "met"
    MISSED = "**missed**"
    SHOWN = "not measured"
    UNJUDGED = "too few rows to say"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: what we take, what stands beside it, and the budget."""

    number: str
    what: str
    beside: str
    ours: str
    ratio: str
    budget: str
    standing: Standing


@dataclass(frozen=True, slots=True)
class Details:
    """A table beside the budgets' one: its caption, headings and cells; `note` is on the page, below the table.

    A table without a note is shown in the terminal only.
    """

    caption: str
    headings: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """Bars beside one another; `budget` is drawn as a line, and a logarithmic scale says so."""

    name: str
    title: str
    unit: str
    bars: tuple[Bar, ...]
    budget: float | None = None
    is_logarithmic: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    lines: tuple[Line, ...]
    details: tuple[Details, ...] = ()
    plots: tuple[Plot, ...] = ()


@dataclass(frozen=True, slots=True)
class Spread:
    """Rounds of one figure: its median, the least and the most."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    def says(self, pattern: str = "{:,.0f}") -> str:
        """Return the median, and from where to where the rounds went; what a start-up taken off has left nothing of, says so."""
        if self.median < 0:
            return "within the noise"
        middle, least, most = (pattern.format(one) for one in (self.median, min(self.rounds), max(self.rounds)))
        return middle if len(self.rounds) == 1 else f"{middle} ({least} to {most})"


def spread(rounds: Sequence[float]) -> Spread:
    return Spread(tuple(rounds))


def at_most(value: float, budget: float) -> Standing:
    """Return how a figure stands of which less is better."""
    return Standing.MET if value <= budget else Standing.MISSED


def at_least(value: float, budget: float) -> Standing:
    """Return how a figure stands of which more is better."""
    return at_most(-value, -budget)


def unjudged(result: Result) -> Result:
    """Return the same without a word about whether budgets are met: what few rows show says nothing of them."""
    lines = tuple(line if line.standing is Standing.SHOWN else replace(line, standing=Standing.UNJUDGED) for line in result.lines)
    return replace(result, lines=lines)


def worst(standings: Sequence[Standing]) -> Standing:
    order = (Standing.MISSED, Standing.SHOWN, Standing.UNJUDGED, Standing.MET)
    return min(standings, key=order.index)
