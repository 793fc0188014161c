"""Bars as SVG, written by hand: one file a plot, readable on a light and on a dark page.

What is plotted is the measurements' to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from html import escape

from outcome import Bar, Plot

WIDTH, LABEL, RIGHT = 760, 280, 96
TOP, BAR, GAP, BOTTOM = 62, 20, 8, 32
OURS, THEIRS, LINE = "#1f6feb", "#9aa4b2", "#d1242f"
FONT = 'font-family="system-ui, sans-serif"'


def svg(plot: Plot) -> str:
    """Return the plot as a document."""
    height = TOP + len(plot.bars) * (BAR + GAP) + BOTTOM
    scale = _scale(plot)
    places = [(bar, TOP + place * (BAR + GAP)) for place, bar in enumerate(plot.bars)]
    pieces = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(plot.title)}">',
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
        f'<text x="16" y="26" {FONT} font-size="15" font-weight="600" fill="#1f2328">{escape(_title(plot))}</text>',
        *_legend(plot),
        *(_bar(bar, y, scale) for bar, y in places),
        *_budget(plot, height, scale),
        *(piece for bar, y in places for piece in _words(plot, bar, y, scale)),
        "</svg>",
    ]
    return "\n".join(pieces) + "\n"


def _legend(plot: Plot) -> Iterator[str]:
    """Say what the colours mean, of those that occur."""
    x = 16
    for colour, words in ((OURS, "eventsync"), (THEIRS, "floors and peers")):
        if any(bar.is_ours == (colour == OURS) for bar in plot.bars):
            yield f'<rect x="{x}" y="36" width="10" height="10" rx="2" fill="{colour}"/>'
            yield f'<text x="{x + 16}" y="45" {FONT} font-size="11" fill="#57606a">{words}</text>'
            x += 96


def _title(plot: Plot) -> str:
    return f"{plot.title} ({plot.unit}{', logarithmic' if plot.is_logarithmic else ''})"


def _scale(plot: Plot) -> Callable[[float], float]:
    """Return what makes a value a length: the longest bar, or the budget, takes the whole width."""
    values = [bar.value for bar in plot.bars] + ([plot.budget] if plot.budget else [])
    room, most = WIDTH - LABEL - RIGHT, max([*values, 1e-9])
    if not plot.is_logarithmic:
        return lambda value: max(0.0, value) / most * room
    least = 10 ** math.floor(math.log10(min([value for value in values if value > 0], default=1.0)))
    whole = math.log10(max(most / least, 10))
    return lambda value: max(0.0, math.log10(max(value, least) / least)) / whole * room


def _bar(bar: Bar, y: float, scale: Callable[[float], float]) -> str:
    colour, length = OURS if bar.is_ours else THEIRS, _length(bar, scale)
    return f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" fill="{colour}"/>'


def _words(plot: Plot, bar: Bar, y: float, scale: Callable[[float], float]) -> Iterator[str]:
    middle, weight = y + BAR * 0.72, "600" if bar.is_ours else "400"
    yield (
        f'<text x="{LABEL - 10}" y="{middle:.0f}" text-anchor="end" {FONT} font-size="12" font-weight="{weight}"'
        f' fill="#1f2328">{escape(bar.label)}</text>'
    )
    yield (
        f'<text x="{LABEL + _length(bar, scale) + 6:.1f}" y="{middle:.0f}" {FONT} font-size="12" fill="#1f2328"'
        f' stroke="#ffffff" stroke-width="3" paint-order="stroke">{_figure(bar.value)} {escape(plot.unit)}</text>'
    )


def _length(bar: Bar, scale: Callable[[float], float]) -> float:
    return max(1.0, scale(bar.value))


def _budget(plot: Plot, height: float, scale: Callable[[float], float]) -> Iterator[str]:
    if plot.budget is None:
        return
    x = LABEL + scale(plot.budget)
    yield f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{height - BOTTOM}" stroke="{LINE}" stroke-dasharray="4 3"/>'
    yield (
        f'<text x="{x:.1f}" y="{height - BOTTOM + 16}" text-anchor="middle" {FONT} font-size="11"'
        f' fill="{LINE}">budget {plot.budget:g} {escape(plot.unit)}</text>'
    )


def _figure(value: float) -> str:
    """Return three digits that matter."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
