"""When each feed last came to the end of a run as it should: what freshness is measured from. Runs one by one are `books`'."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Engine, func, select

from mappings.vocabulary import FeedName
from state.database import reading
from state.tables import RUN, SCOPE
from state.views import Book


def last_done(engine: Engine, destination: str | None = None) -> Mapping[Book, datetime]:
    """Return when the last run of each feed ended that published and left with exit code 0; feeds without one are left out."""
    latest = select(SCOPE.c.destination, SCOPE.c.feed, func.max(RUN.c.finished_at)).join(SCOPE, SCOPE.c.id == RUN.c.scope_id)
    ended = latest.where(RUN.c.exit_code == 0, RUN.c.publish_account.is_not(None)).group_by(SCOPE.c.destination, SCOPE.c.feed)
    with reading(engine) as connection:
        rows = connection.execute(ended if destination is None else ended.where(SCOPE.c.destination == destination)).all()
    return {Book(row[0], FeedName(row[1])): row[2] for row in rows}
