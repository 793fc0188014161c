"""The tables of backfills: windows of the past, and their slices. What they mean together is `backfills`'."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index
from sqlmodel import Field

from state.columns import PlainText, UtcTime
from state.table_base import Row


class BackfillHead(Row, table=True):
    """A window of a feed's past that a person asked for; `plan` is written and read by whoever asked."""

    __tablename__ = "backfill"
    __table_args__ = (Index(None, "destination", "feed"),)

    id: str = Field(primary_key=True, sa_type=PlainText)
    destination: str = Field(sa_type=PlainText)
    feed: str = Field(sa_type=PlainText)
    plan: str = Field(sa_type=PlainText)
    state: str = Field(sa_type=PlainText)
    created_at: datetime = Field(sa_type=UtcTime)
    updated_at: datetime = Field(sa_type=UtcTime)


class BackfillSlice(Row, table=True):
    """A part of such a window: its ISO days, how far it has come, and the run that was last at it, by its `claim`."""

    __tablename__ = "backfill_slice"

    backfill_id: str = Field(foreign_key="backfill.id", primary_key=True, sa_type=PlainText)
    number: int = Field(primary_key=True)
    first_day: str = Field(sa_type=PlainText)
    last_day: str = Field(sa_type=PlainText)
    state: str = Field(sa_type=PlainText)
    claim: str = Field(sa_type=PlainText)
    run_id: str = Field(sa_type=PlainText)
    exit_code: int | None = None
    message: str = Field(sa_type=PlainText)
    counts: str = Field(sa_type=PlainText)
    started_at: datetime | None = Field(default=None, sa_type=UtcTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcTime)
