"""What people decided about rows that were held as likely copies, as staging reads it. Writing it down is `decisions`'."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, select

from state.tables import RELEASE

RESEND = "resend"
"""The row is staged although it looks like a copy."""
IGNORE = "ignore"
"""The row stays held, but is neither listed nor counted for the brake of copies."""


def decided_copies(connection: Connection, scope_id: int) -> Mapping[str, str]:
    """Return all decisions about held rows of one feed, by row key; there are as many as people made by hand."""
    decided = select(RELEASE.c.row_key, RELEASE.c.decision).where(RELEASE.c.scope_id == scope_id)
    return dict(connection.execute(decided).all())
