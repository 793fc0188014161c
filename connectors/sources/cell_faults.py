"""What is wrong with the text of a row's cells: a problem in a column that the mapping uses, a warning in any other.

What is wrong with a row's shape is `odd_rows`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from connectors.sources.json_values import Repeat, TooDeepError
from connectors.sources.nested import text_of
from connectors.sources.text_file import has_undecodable, replaced_bytes, shown_bytes
from mappings.outcome import RowLocation, SourceRow
from mappings.refusals import Reason, ReasonCode

_MOST_SHOWN = 200
_NUL_HINT = "a NUL byte is no text: take it out, or export the file anew"


@dataclass(frozen=True, slots=True)
class CellFaults:
    """Judges the cells of one source. `wanted` are the columns that the mapping uses, `encodings` those agreed."""

    wanted: frozenset[str]
    encodings: tuple[str, ...]

    def row(self, origin: RowLocation, cells: Mapping[str, str], problems: tuple[Reason, ...] = ()) -> SourceRow:
        """Return the row with its faults told; in its cells U+FFFD stands for each byte that is no text."""
        spoilt, told = list(problems), list[Reason]()
        for column, cell in cells.items():
            for fault in self._faults(column, cell):
                (spoilt if column in self.wanted else told).append(fault)
        clean = {column: replaced_bytes(cell).replace("\0", "\N{REPLACEMENT CHARACTER}") for column, cell in cells.items()}
        return SourceRow(origin, clean, tuple(spoilt), tuple(told))

    def _faults(self, column: str, cell: str) -> Iterator[Reason]:
        if has_undecodable(cell):
            hint = f"save the file as {' or '.join(self.encodings)}"
            yield Reason(ReasonCode.UNDECODABLE, "", column, short(cell), hint)
        if "\0" in cell:
            yield Reason(ReasonCode.BAD_TEXT, "", column, short(cell), _NUL_HINT)


def repeated(repeat: Repeat, column: str) -> Reason:
    """Return what is wrong with a column whose value stands under a name that stands twice."""
    try:
        found = f"{text_of(repeat.first)} | {text_of(repeat.last)}"
    except TooDeepError:
        found = repeat.path
    hint = f'the name "{repeat.path}" stands twice in one object and says different things: each name may stand there once'
    return Reason(ReasonCode.BAD_TEXT, "", column, short(found), hint)


def short(text: str) -> str:
    r"""Return a text as people are shown it: undecodable bytes as `\xe9`, NUL as `\x00`, no more than 200 characters."""
    shown = shown_bytes(text[: _MOST_SHOWN + 1]).replace("\0", "\\x00")
    return shown if len(shown) <= _MOST_SHOWN else shown[: _MOST_SHOWN - 1] + "…"
