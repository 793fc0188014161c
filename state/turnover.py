"""How a feed has replaced its rows before: whether a read that loses and gains many is nothing new.

What a brake makes of it is the caller's; how one read is counted is `closing`'s.
"""

from __future__ import annotations

import json

from sqlalchemy import Connection, select

from state.accounts import READS_THAT_TELL, StageReport
from state.tables import RUN
from state.turn import Turn


def count_replacements(connection: Connection, turn: Turn, report: StageReport) -> int:
    """Count the earlier whole reads that went out, and lost and gained at least half as many rows as this one.

    A read that gains many and loses few is not asked about: it replaces nothing.
    """
    new = report.account.new - report.restaged + report.waiting
    if not new or report.vanished * 2 <= new:
        return 0
    latest = (
        select(RUN.c.stage_report)
        .where(RUN.c.scope_id == turn.scope_id, RUN.c.id != turn.run_id, RUN.c.is_whole, RUN.c.brakes == "[]")
        .where(RUN.c.stage_report.is_not(None))
        .order_by(RUN.c.started_at.desc())
        .limit(READS_THAT_TELL)
    )
    return sum(_is_like(stored, new, report.vanished) for stored in connection.execute(latest).scalars())


def _is_like(stored: str, new: int, vanished: int) -> bool:
    told = json.loads(stored)
    gained = told["account"]["new"] - told["restaged"] + told.get("waiting", 0)
    return bool(gained * 2 >= new and told["vanished"] * 2 >= vanished)
