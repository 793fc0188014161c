"""One row on its way to becoming an event: its cells, its named values, and the policies for what is empty or refused.

Which values are worked out, and in what order, is `compiling`'s.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, assert_never

from mappings.refusals import Refusal
from mappings.strict import Policy, Use
from mappings.vocabulary import Origin, Reason, ReasonCode

UNSET: Any = object()
"""Not worked out yet."""
NOWHERE = Origin("")


class RowState:
    """A row being mapped, or one of the events that it stands for. `named` holds the values of `let` as they are first needed.

    `item` and `day` are what tells the event apart, None where nothing does. `cancelled`: the label under which the event
    is called off. `is_doubtful`: its payload may not be an event, as a part of it does not look like one's. `rejected_by`: the
    place under `rows:` of the first rule that rejects the row, 0 if none does.
    """

    __slots__ = (
        "cancelled",
        "cells",
        "day",
        "is_doubtful",
        "is_draft",
        "item",
        "named",
        "origin",
        "reasons",
        "rejected_by",
        "warnings",
    )

    def __init__(self, cells: Mapping[str, str], named: int) -> None:
        self.cells = cells
        self.named: list[Any] = [UNSET] * named
        self.reasons: list[Reason] = []
        self.warnings: list[Reason] = []
        self.is_draft = False
        self.is_doubtful = False
        self.cancelled = ""
        self.origin = NOWHERE
        self.item: Any = None
        self.day: Any = None
        self.rejected_by = 0

    def branch(self, cells: Mapping[str, str]) -> RowState:
        """Return the state of one of the row's events: what is known of the row so far holds for it, too."""
        event = RowState(cells, len(self.named))
        event.reasons, event.warnings = self.reasons.copy(), self.warnings.copy()
        event.is_draft, event.cancelled = self.is_draft, self.cancelled
        event.origin = self.origin
        event.item, event.day = self.item, self.day
        event.rejected_by = self.rejected_by
        return event


Getter = Callable[[RowState], Any]
"""A compiled value: None where it was left out, Refusal raised where it cannot be had."""
Mend = Callable[[RowState, Refusal], Any]
"""What becomes of a refusal: a value to use, None to leave it out, or the refusal again."""


def is_empty(value: object) -> bool:
    """True for what is never sent: nothing, blank text, an empty list or object."""
    if type(value) is str:
        return not value or value.isspace()
    return value is None or value in ([], {})


def nfc(text: str) -> str:
    """Return the text in Unicode's composed form."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def read_cell(cells: Mapping[str, str], column: str) -> str:
    """Return a cell's text in NFC, "" where the row has no such cell."""
    text = cells.get(column, "")
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def cells_reader(columns: Sequence[str]) -> Callable[[Mapping[str, str]], Iterable[str]]:
    """Return what gives the raw texts of some columns, one at least, "" for those that the row does not have."""
    pick = itemgetter(*columns)
    if len(columns) == 1:
        return lambda cells: (cells.get(columns[0], ""),)

    def read(cells: Mapping[str, str]) -> Iterable[str]:
        try:
            found: tuple[str, ...] = pick(cells)
        except KeyError:
            return map(cells.get, columns, repeat(""))
        return found

    return read


def column_reader(column: str) -> Getter:
    """Return the getter of a column's raw text, in NFC, "" where the row has no such cell."""

    def read(row: RowState) -> str:
        text = row.cells.get(column, "")
        return text if text.isascii() else nfc(text)

    return read


def mending(policy: Policy | None, path: str) -> Mend:
    """Compile an author's choice for the value of the event's field `path`."""
    match policy:
        case None:
            return _reject
        case "reject":
            return _reject_finally
        case "omit":
            return _omit
        case "warn":
            return _warning(path)
        case "draft":
            return _drafting(path)
        case Use():
            return _using(policy, path)
        case _:
            assert_never(policy)


def _reject(_row: RowState, refusal: Refusal) -> Any:
    raise refusal


def _reject_finally(_row: RowState, refusal: Refusal) -> Any:
    refusal = refusal.about("", "", "")
    refusal.is_final = True
    raise refusal


def _omit(_row: RowState, _refusal: Refusal) -> Any:
    return None


def _warning(path: str) -> Mend:
    def warn(row: RowState, refusal: Refusal) -> Any:
        row.warnings.append(refusal.reason(path))

    return warn


def _drafting(path: str) -> Mend:
    def draft(row: RowState, refusal: Refusal) -> Any:
        row.warnings.append(refusal.reason(path))
        row.is_draft = True

    return draft


def _using(policy: Use, path: str) -> Mend:
    value = policy.use if isinstance(policy.use, str) else list(policy.use)
    is_shown = policy.warn or policy.draft

    def use(row: RowState, refusal: Refusal) -> Any:
        if is_shown:
            row.warnings.append(refusal.reason(path))
        row.is_draft = row.is_draft or policy.draft
        return value

    return use


def required(column: str, hint: str = "") -> Refusal:
    """Return the refusal of an empty value."""
    wanted = hint or (f'fill in the column "{column}"' if column else "a value is needed here")
    return Refusal(ReasonCode.REQUIRED, wanted, column=column)


def nothing_left(column: str, found: object) -> Refusal:
    """Return the refusal of a value of which its steps left nothing; one that was empty before is `required`."""
    if is_empty(found):
        return required(column)
    wanted = (
        f'nothing usable was left of this cell; write another value in the column "{column}"'
        if column
        else "nothing usable was left of this value"
    )
    return Refusal(ReasonCode.REQUIRED, wanted, column=column, found=str(found))
