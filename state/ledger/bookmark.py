"""Where a feed's next read may go on: the bookmark that the last read left which was let out by itself.

What it is good for is the caller's to say; when it moves, `gate` tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select, update

from state.tables import SCOPE


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A place in a source, as the source itself writes it down. `cursor`: "" where there is none.

    `fit`: evidence of all that the rows before it were mapped by; with other evidence the place means nothing.
    `full_read_at`: when the last full read began, on which this place builds.
    """

    cursor: str = ""
    fit: str = ""
    full_read_at: datetime | None = None


NO_BOOKMARK = Bookmark()


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """How the source says that a read ended. `bookmark`: where the next may go on, None if the read is none to go on from;
    `is_short`: rows are missing behind those that were given, so that absence means nothing.
    """

    bookmark: Bookmark | None = None
    is_short: bool = False


AT_THE_END = ReadEnd()


def read_bookmark(connection: Connection, scope_id: int) -> Bookmark:
    """Return the feed's bookmark."""
    columns = select(SCOPE.c.cursor, SCOPE.c.cursor_fit, SCOPE.c.full_read_at)
    return Bookmark(*connection.execute(columns.where(SCOPE.c.id == scope_id)).one())


def keep_bookmark(connection: Connection, scope_id: int, bookmark: Bookmark) -> None:
    """Put the bookmark where the rows that it covers have just been let out, in their transaction."""
    columns = {"cursor": bookmark.cursor, "cursor_fit": bookmark.fit, "full_read_at": bookmark.full_read_at}
    connection.execute(update(SCOPE).where(SCOPE.c.id == scope_id).values(**columns))


def drop_bookmark(connection: Connection, scope_id: int) -> None:
    """Take the bookmark out: the next read is a full one. When the last of them was is still known."""
    connection.execute(update(SCOPE).where(SCOPE.c.id == scope_id).values(cursor="", cursor_fit=""))
