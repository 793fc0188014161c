"""Values worked out once for all rows whose cells say the same: days, times and places come again from row to row.

Which cells decide a value is noted while it is compiled, by `compiling`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from mappings.evaluation import UNSET, Getter, RowState

_MOST = 4096


@dataclass(slots=True)
class Reads:
    """What a value looks at: `columns` of the row, and whether anything besides (the row's place, its day, an item of a list)."""

    columns: set[str] = field(default_factory=set)
    is_more: bool = False

    def add(self, other: Reads) -> None:
        """Take in what a part of the value looks at."""
        self.columns |= other.columns
        self.is_more = self.is_more or other.is_more


def remembered(get: Getter, settle: Callable[[Any], Any], columns: frozenset[str], is_plain: Callable[[Any], bool]) -> Getter:
    """Return the same settled value, remembered for some thousand different contents of the columns that decide it.

    Only values that are plain, in rows of which there is nothing to tell, are remembered: every other row has its warnings
    and refusals noted anew, and is doubtful where its value is not plain.
    """
    pick: Callable[[Mapping[str, str]], Any] = itemgetter(*sorted(columns)) if columns else _no_cells
    known: dict[Any, Any] = {}

    def value(row: RowState) -> Any:
        try:
            key = pick(row.cells)
        except KeyError:
            key = UNSET
        found = known.get(key, UNSET)
        if found is not UNSET:
            return found
        found = get(row)
        found = None if found is None else settle(found)
        if found is not None and not is_plain(found):
            row.is_doubtful = True
        elif key is not UNSET and not row.warnings and not row.reasons:
            if len(known) >= _MOST:
                known.clear()
            known[key] = found
        return found

    return value


def _no_cells(_cells: Mapping[str, str]) -> tuple[()]:
    return ()
