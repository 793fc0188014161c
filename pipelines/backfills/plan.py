"""What a backfill is asked for as a whole: its window, how it is cut, as what its events are sent. Kept with it as one text.

How far its slices have come is `state.backfills`' matter.
"""

from __future__ import annotations

from datetime import date
from typing import Literal, get_args

from pydantic import ValidationError

from mappings.errors import ConfigError
from mappings.refusals import did_you_mean
from mappings.spec.feed import FeedMapping
from mappings.strict import Strict
from pipelines.backfills.slicing import cut, usual_slice
from pipelines.backfills.windows import By, Window, check_way, usual_way
from state.backfills import BackfillRecord, SliceRecord


class BackfillPlan(Strict):
    """A window, the length of its slices, and whether all events go out as drafts."""

    window: Window
    slice: str
    status: Literal["draft"] | None = None

    def __str__(self) -> str:
        """The plan, for people."""
        column = f" {self.window.column}" if self.window.column else ""
        length = f"{self.slice} days" if self.slice.isdecimal() else f"a {self.slice}"
        return f"{self.window} by {self.window.by}{column}, in slices of {length}{', as drafts' if self.status else ''}"

    @property
    def slices(self) -> tuple[Window, ...]:
        """The slices, the oldest first."""
        return cut(self.window, self.slice)

    def window_of(self, one: SliceRecord) -> Window:
        """Return the window of a slice that was written down."""
        days = {"first": date.fromisoformat(one.first), "last": date.fromisoformat(one.last)}
        return self.window.model_copy(update=days)


def plan_of_record(record: BackfillRecord) -> BackfillPlan:
    """Return the plan of a backfill that was written down."""
    return BackfillPlan.model_validate_json(record.plan)


def make_plan(mapping: FeedMapping, days: tuple[date, date], by: str, column: str, slice_: str) -> BackfillPlan:
    """Return the plan for a feed's days, where "" stands for what is usual for the feed.

    Raises:
        ConfigError: the feed cannot be read so, or the words make no window.
    """
    way = by or ("cursor" if column else usual_way(mapping.source))
    if way not in get_args(By):
        hint = did_you_mean(way, get_args(By)) or f"there are {', '.join(get_args(By))}"
        raise ConfigError(f"--by {way}: there is no such way to tell a row's day", hint=hint)
    first, last = days
    try:
        window = Window.model_validate({"by": way, "first": first, "last": last, "column": column})
    except ValidationError as error:
        told = "; ".join(str(one["msg"]).removeprefix("Value error, ") for one in error.errors())
        raise ConfigError(told, hint="--from is the first day, --to the last one, and --column goes with --by cursor") from error
    check_way(mapping, window)
    plan = BackfillPlan(window=window, slice=slice_ or usual_slice(window.by))
    cut(window, plan.slice)
    return plan
