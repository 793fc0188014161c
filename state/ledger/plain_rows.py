"""Rows whose names no database takes as they are, under names that it takes. What cannot be kept is told in `columns`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mappings.outcome import RowOutcome
from mappings.row_key import RowKey
from state.tables import storable


def storable_rows(outcomes: Sequence[RowOutcome]) -> Sequence[RowOutcome]:
    """Return the same rows under keys that can be kept: from here on the ledger knows each by that one, its key included."""
    if all(outcome.row_key.isprintable() for outcome in outcomes):
        return outcomes
    return [replace(outcome, row_key=RowKey(storable(outcome.row_key))) for outcome in outcomes]
