"""Which of several pictures an event asks for: the first whose address can be used. Fetching it is `connectors`' business."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mappings.compiling import Compiled
from mappings.evaluation import RowState, is_empty
from mappings.refusals import Refusal
from mappings.transforms.urls import clean_url


def first_usable(parts: Sequence[Compiled]) -> Compiled:
    """Return the value of the first address that is one; where none is, the first refusal, or nothing."""
    column = next((part.column for part in parts if part.column), "")

    def first(row: RowState) -> Any:
        refused: Refusal | None = None
        for found in (one for part in parts for one in _addresses(part, row)):
            if not isinstance(found, Refusal):
                return found
            refused = refused or found
        if refused is not None:
            raise refused
        return None

    return Compiled(first, column=column)


def _addresses(part: Compiled, row: RowState) -> Iterator[str | Refusal]:
    try:
        found = part.get(row)
    except Refusal as refusal:
        if not refusal.is_empty:
            yield refusal.about(part.column, "", "image")
        return
    for one in found if type(found) is list else [found]:
        if not is_empty(one):
            yield _address(str(one), part.column)


def _address(text: str, column: str) -> str | Refusal:
    try:
        return clean_url(text)
    except Refusal as refusal:
        return refusal.about(column, text, "image")
