"""What a run noticed of the service as a whole, kept on its page in the books beside its accounts.

How a run begins and ends is `ledger`'s; what is worth a notice is the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, Engine, select, update

from mappings.row_key import FeedName
from state.database import writing
from state.tables import RUN, SCOPE


def put_pace(engine: Engine, destination: str, feed: FeedName, run_id: str, pace: Mapping[str, float]) -> None:
    """Put how fast it went on the page of a run that has begun."""
    with writing(engine) as connection:
        connection.execute(update(RUN).where(*_page(destination, feed, run_id)).values(pace=json.dumps(dict(pace))))


def add_notices(engine: Engine, destination: str, feed: FeedName, run_id: str, told: Sequence[str]) -> None:
    """Add sentences to the page of a run that has begun, each once; a run that is not in the books stays out of them."""
    ours = _page(destination, feed, run_id)
    with writing(engine) as connection:
        kept = connection.execute(select(RUN.c.notices).where(*ours)).scalar()
        if kept is not None:
            known = json.loads(kept)
            notices = [*known, *(one for one in told if one not in known)]
            connection.execute(update(RUN).where(*ours).values(notices=json.dumps(notices)))


def _page(destination: str, feed: FeedName, run_id: str) -> tuple[ColumnElement[bool], ...]:
    scope = select(SCOPE.c.id).where(SCOPE.c.destination == destination, SCOPE.c.feed == feed).scalar_subquery()
    return RUN.c.scope_id == scope, RUN.c.id == run_id
