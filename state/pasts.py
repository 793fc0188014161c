"""What must be known of changed rows beside their entries, before it is decided whether a change is drafted as a new event.

The decision is `plan`'s. Where nothing changed, or no feed asks for drafts, nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import Connection

from mappings.outcome import MappedRow, RowOutcome
from state.drafts import content_of, drafted, is_of_change, status_of
from state.earlier import said_before, shown_bodies
from state.plan import Known, Past
from state.terms import Terms
from state.words import EntryState


def find_pasts(
    connection: Connection, known: Mapping[str, Known], outcomes: Sequence[RowOutcome], terms: Terms
) -> dict[int, Past]:
    """Return the pasts of those rows whose change could be drafted, or was, by entry."""
    if terms.on_change != "create_draft_again" and not any(entry.revision for entry in known.values()):
        return {}
    rows = [row for row in outcomes if isinstance(row, MappedRow)]
    changed = {entry.entry_id: (entry, row) for entry, row in _changed(known, rows, terms)}
    if not changed:
        return {}
    said, shown = said_before(connection, changed), shown_bodies(connection, changed)
    return {
        entry_id: Past(
            is_said=bool({row.fingerprint, drafted(row).fingerprint} & said.get(entry_id, frozenset())),
            is_status_only=_is_status_only(shown[entry_id], drafted(row) if is_of_change(entry.revision) else row),
        )
        for entry_id, (entry, row) in changed.items()
    }


def _changed(known: Mapping[str, Known], rows: Sequence[MappedRow], terms: Terms) -> Iterator[tuple[Known, MappedRow]]:
    asks_for_drafts = terms.on_change == "create_draft_again"
    for row in rows:
        entry = known.get(row.row_key)
        if entry is None or entry.shown == row.fingerprint:
            continue
        if is_of_change(entry.revision) or (asks_for_drafts and entry.state == EntryState.DELIVERED):
            yield entry, row


def _is_status_only(shown: bytes, asked: MappedRow) -> bool:
    return status_of(shown) != status_of(asked.body) and content_of(shown) == content_of(asked.body)
