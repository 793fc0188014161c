"""When each feed last came to the end of a run as it should, or ran at all: what freshness is measured from.

Runs one by one are `books`'.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Engine, func, or_, select

from mappings.row_key import FeedName
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


def last_came(engine: Engine, destination: str, silent: Collection[int], beside: str) -> Mapping[FeedName, datetime]:
    """Return when each feed last ran: the end of its latest run, or its begin while it has none; feeds without one are left out.

    Runs that left with a `silent` exit code did not come to run the feed; those launched `beside` its schedule do not count.
    """
    says = or_(RUN.c.exit_code.is_(None), RUN.c.exit_code.not_in(sorted(silent)))
    latest = select(func.coalesce(RUN.c.finished_at, RUN.c.started_at)).where(RUN.c.scope_id == SCOPE.c.id)
    latest = latest.where(RUN.c.launched_by != beside, says).order_by(RUN.c.started_at.desc()).limit(1)
    came = latest.scalar_subquery().label("came")
    with reading(engine) as connection:
        rows = connection.execute(select(SCOPE.c.feed, came).where(SCOPE.c.destination == destination)).all()
    return {FeedName(feed): at for feed, at in rows if at is not None}
