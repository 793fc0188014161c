"""The text of a notification: for each feed what is new, what is over and what still waits; plain text, bounded.

Texts of partners and of the service in it can neither mention a whole chat nor break out of their line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connectors.notify import Message, Tone
from mappings.row_key import FeedName
from pipelines.control_characters import replaced
from pipelines.notifications.causes import Cause, Concern
from state.notes import Notice

MOST_FEEDS = 15
"""Feeds shown at length; of more only the names are listed."""
MOST_NAMED = 50
MOST_CHARS = 600
"""Characters of one sentence of a message."""
_CALLS = re.compile(r"(?<!\w)@(?=\w)|<(?=[!@#])")
_UNSEEN = "\N{ZERO WIDTH SPACE}"


@dataclass(frozen=True, slots=True)
class FeedNews:
    """News of one feed for one recipient: what is `new`, what is `over`, and what was reported before and still stands."""

    feed: FeedName
    owner: str
    new: tuple[Concern, ...]
    over: tuple[Notice, ...] = ()
    standing: tuple[Concern, ...] = ()


def message_of(news: Sequence[FeedNews], service: str, page: str = "") -> Message:
    """Return the message about all these feeds. `service`: where events are sent; `page`: where runs are shown."""
    gravest_first = sorted(news, key=_gravity)
    where = f"Service: {service}" if service else ""
    blocks = ["\n".join(_block(one)) for one in gravest_first[:MOST_FEEDS]]
    foot = "\n".join(filter(None, (_others(gravest_first[MOST_FEEDS:]), where, f"Runs: {page}" if page else "")))
    return Message(_title(news), "\n\n".join(filter(None, (*blocks, foot))), _tone(news))


def lost_books_message(told: str, hint: str) -> Message:
    """Return the message that no feed can run without the state DB."""
    body = f"{harmless(told)}\nWhat would help: {harmless(hint)}" if hint else harmless(told)
    return Message("eventsync: the state DB cannot be used", f"No feed can run.\n{body}", Tone.ALARM)


def _title(news: Sequence[FeedNews]) -> str:
    waiting, well = ([one.feed for one in news if bool(one.new) is is_new] for is_new in (True, False))
    if len(waiting) == 1:
        feed = next(one for one in news if one.new)
        return f"eventsync: {feed.feed}: {_TITLES[feed.new[0].cause]}{_and_more(len(feed.new) - 1)}"
    if waiting:
        return f"eventsync: {len(waiting)} feeds need somebody"
    return f"eventsync: {well[0]}: over" if len(well) == 1 else f"eventsync: over at {len(well)} feeds"


def _and_more(count: int) -> str:
    return f", and {count} more" if count else ""


_TITLES = {
    Cause.FILE: "its mapping file is broken",
    Cause.BRAKE: "stopped by a brake",
    Cause.KEY: "the service refuses us",
    Cause.SET_UP: "cannot run as it is set up",
    Cause.AWAY: "paused",
    Cause.FAILED: "the run failed",
    Cause.LOST: "a run was lost",
    Cause.OVERDUE: "no run has come",
    Cause.CONFLICT: "rows in conflict",
    Cause.REFUSED: "rows refused",
    Cause.BLOCKED: "rows blocked",
    Cause.UNCERTAIN: "rows uncertain",
    Cause.REJECTED: "rows rejected",
    Cause.HELD: "rows held back",
    Cause.DRIFT: "rows changed",
    Cause.VANISHED: "rows gone",
    Cause.EARLIER: "earlier events to remove",
}


def _block(one: FeedNews) -> Iterator[str]:
    yield f"{one.feed} (owner: {one.owner})" if one.owner else str(one.feed)
    for concern in one.new:
        yield f"- {harmless(concern.told)}"
        if concern.hint:
            yield f"  What would help: {harmless(concern.hint)}"
    for notice in one.over:
        since = f"{notice.told_at or notice.noted_at:%Y-%m-%d %H:%M} UTC"
        yield f"- Over, told on {since}: {harmless(notice.words)}"
    if one.standing:
        yield "Still open, told before: " + "; ".join(f"{_TITLES[each.cause]}{_counted(each)}" for each in one.standing)


def _counted(concern: Concern) -> str:
    return f" ({concern.rows:,})" if concern.rows else ""


def _others(news: Sequence[FeedNews]) -> str:
    if not news:
        return ""
    named = ", ".join(one.feed for one in news[:MOST_NAMED])
    return f"And {len(news)} more feeds: {named}{', …' if len(news) > MOST_NAMED else ''}: `eventsync status` tells of each"


def _gravity(one: FeedNews) -> tuple[int, FeedName]:
    order = [*Cause]
    return min((order.index(concern.cause) for concern in one.new), default=len(order)), one.feed


def _tone(news: Sequence[FeedNews]) -> Tone:
    causes = {concern.cause for one in news for concern in one.new}
    if any(cause.is_of_runs for cause in causes):
        return Tone.ALARM
    return Tone.WARNING if causes else Tone.RELIEF


def harmless(text: str) -> str:
    """Return a sentence on one line, bounded, without mentions that a chat would obey."""
    line = " ".join(replaced(text).split())
    short = line if len(line) <= MOST_CHARS else f"{line[: MOST_CHARS - 1].rstrip()}…"
    return _CALLS.sub(lambda call: f"{call[0]}{_UNSEEN}", short)
