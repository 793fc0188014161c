"""Notify the owners of feeds: each cause once, then that it is over, in few messages for each recipient."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from connectors.notify import Deliver, Message, Tone, deliver_over
from mappings.errors import MappingFileError, SyncError
from mappings.row_key import FeedName
from pipelines.clock import now
from pipelines.control_characters import replaced
from pipelines.notifications.causes import (
    Cause,
    Concern,
    FileOfFeed,
    Owned,
    broken_files,
    concerns_of,
    is_telling,
    overdue,
    runs_came,
    was_lost,
)
from pipelines.run.signals import is_stop_asked, signals_raised
from pipelines.settings import Channels, Recipient, Settings
from state.database import StateDb
from state.notes import Notice, NoticesSent, ServiceNotes
from state.queries import FeedStatus, LedgerQueries, RunRecord

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


MOST_AN_HOUR = 6
HOUR = timedelta(hours=1)
FIRST_PAUSE = timedelta(minutes=5)
"""Exponential backoff for a recipient that cannot be reached, up to an hour."""


@dataclass(frozen=True, slots=True)
class Post:
    """The messages to one recipient: those of the last hour that were accepted, and the failures since, with the last."""

    accepted: tuple[datetime, ...] = ()
    failures: int = 0
    failed_at: datetime | None = None

    def may_go(self, now: datetime) -> bool:
        """Whether another message may go now; a failure in the future is of a clock that was set back since."""
        if self.failed_at is not None and self.failed_at <= now < self.failed_at + min(
            FIRST_PAUSE * 2 ** (self.failures - 1), HOUR
        ):
            return False
        return len(self._of_the_hour(now)) < MOST_AN_HOUR

    def went(self, now: datetime) -> Post:
        """Return the same after a message that was accepted."""
        return Post((*self._of_the_hour(now), now))

    def failed(self, now: datetime) -> Post:
        """Return the same after a message that was not."""
        return replace(self, failures=min(self.failures + 1, 10), failed_at=now)

    def __str__(self) -> str:
        accepted = [at.isoformat() for at in self.accepted]
        failed_at = self.failed_at.isoformat() if self.failed_at else ""
        return json.dumps({"accepted": accepted, "failures": self.failures, "failed_at": failed_at})

    def _of_the_hour(self, now: datetime) -> tuple[datetime, ...]:
        """Return the messages that still count; one of a clock that was wrong does not."""
        return tuple(at for at in self.accepted if now - HOUR < at <= now)


def post_of(text: str | None) -> Post:
    """Return what `str` wrote; nothing where it was not written, or cannot be read."""
    try:
        kept: Mapping[str, Any] = json.loads(text or "{}")
        failed_at = datetime.fromisoformat(kept["failed_at"]) if kept.get("failed_at") else None
        return Post(tuple(map(datetime.fromisoformat, kept.get("accepted", ()))), int(kept.get("failures", 0)), failed_at)
    except (ValueError, TypeError, AttributeError):
        return Post()


_RUNS_READ = (3, 100)
"""So many runs are read for the last one with an end of its own, and so many where none of those has one."""
LONGEST = timedelta(seconds=30)
"""After so long, no further message is begun: it is due the next time."""


@dataclass(frozen=True, slots=True)
class Notifier:
    """Notifies the owners of feeds at one destination: each cause once, then that it is over; one message for all that is due.

    What is due is remembered in the state DB, so that runs and the sensor can both notify. A message that does not get through
    fails nothing: it stays due. `page`: the address at which a person looks at runs, "" if there is none.
    """

    engine: StateDb
    destination: str
    channels: Channels
    deliver: Deliver
    now: Callable[[], datetime] = now
    page: str = ""

    def tell(
        self, feeds: Iterable[Owned], crashes: Mapping[FeedName, Concern] | None = None, late: Collection[FeedName] = ()
    ) -> None:
        """Notify the recipients of these feeds of what is new and what is over.

        `crashes`: concerns that the state DB does not know of. `late`: feeds that may be reported overdue; of others only the
        end of that is reported. A recipient that cannot be reached, or got enough messages for now, gets the rest later.

        Raises:
            SyncError: the state DB cannot be read or written.
        """
        began, noted, came = self.now(), _by_feed(self._sent.all()), runs_came(self.engine, self.destination)
        owners: dict[FeedName, str] = {}
        concerns: dict[FeedName, tuple[Concern, ...]] = {}
        audience: dict[Recipient, list[FeedName]] = {}
        for one in feeds:
            recipients = self.channels.recipients(one.owner, one.notify)
            self._warn_of_unknown_channels(one)
            known = noted.get(one.feed, ())
            may_be_late = one.feed in late or any(notice.cause == Cause.OVERDUE.value for notice in known)
            missed = overdue(one.feed, one.schedule, came.get(one.feed), self.now()) if may_be_late else None
            owners[one.feed] = one.owner
            concerns[one.feed] = self._concerns(one.feed, filter(None, ((crashes or {}).get(one.feed), missed)))
            self._note(one.feed, recipients, concerns[one.feed], known)
            for recipient in recipients:
                audience.setdefault(recipient, []).append(one.feed)
        for recipient, about in audience.items():
            if self.now() - began < LONGEST and not is_stop_asked():
                self._notify(recipient, about, lambda claimed: _news(claimed, owners, concerns))

    def tell_of_lost_runs(self, feeds: Iterable[Owned]) -> None:
        """Notify of feeds whose last run was lost, before the next run begins.

        Raises:
            SyncError: as `tell`.
        """
        books = LedgerQueries(self.engine)
        last = {one.feed: books.runs(destination=self.destination, feed=one.feed, limit=1) for one in feeds}
        unfinished = [one for one in feeds if last[one.feed] and last[one.feed][0].finished_at is None]
        self.tell(one for one in unfinished if any(was_lost(status, self.now()) for status in self._status(one.feed)))

    def files(
        self, broken: Collection[MappingFileError], sound: Iterable[Owned]
    ) -> tuple[Sequence[Owned], Mapping[FeedName, Concern]]:
        """Return, as `tell` takes them, the mapping files that cannot be used and those that were reported and are mended.

        Raises:
            SyncError: as `tell`.
        """
        feeds = {one.feed: one for one in sound}
        found = list(broken_files(broken, feeds))
        names = {file.feed for file, _ in found}
        former = {one.feed for one in self._sent.all() if one.cause == Cause.FILE.value} - names
        mended = [feeds.get(feed, FileOfFeed(feed)) for feed in sorted(former)]
        return [*(file for file, _ in found), *mended], {file.feed: concern for file, concern in found}

    def newly_overdue(self, feeds: Iterable[Owned]) -> frozenset[FeedName]:
        """Return the feeds with recipients whose runs no longer come, and that were not reported yet.

        Raises:
            SyncError: as `tell`.
        """
        came = runs_came(self.engine, self.destination)
        noted = {one.feed for one in self._sent.all() if one.cause == Cause.OVERDUE.value}
        maybe = (one for one in feeds if one.feed not in noted and self.channels.recipients(one.owner, one.notify))
        return frozenset(one.feed for one in maybe if overdue(one.feed, one.schedule, came.get(one.feed), self.now()))

    def unfinished(self) -> frozenset[FeedName]:
        """Return the feeds of which a notification is due."""
        return self._sent.unfinished()

    def _concerns(self, feed: FeedName, more: Iterable[Concern]) -> tuple[Concern, ...]:
        """Return the concerns of the feed's latest runs and of its rows, after `more` that they do not have."""
        runs: tuple[RunRecord, ...] = ()
        for limit in _RUNS_READ:
            runs = LedgerQueries(self.engine).runs(destination=self.destination, feed=feed, limit=limit)
            if len(runs) < limit or any(map(is_telling, runs)):
                break
        found = [concern for status in self._status(feed) for concern in concerns_of(status, runs, self.now())]
        known = {concern.cause for concern in found}
        return (*(concern for concern in more if concern.cause not in known), *found)

    def _note(
        self, feed: FeedName, recipients: Sequence[Recipient], concerns: Sequence[Concern], known: Sequence[Notice]
    ) -> None:
        """Write down what each recipient should know, where that differs from what is written."""
        wanted = {concern.cause.value: concern.told for concern in concerns}
        names = {recipient.name for recipient in recipients}
        for name in sorted(names):
            ours = [one for one in known if one.recipient == name]
            if {one.cause for one in ours} != set(wanted) or any(one.is_due for one in ours):
                self._sent.note(feed, name, wanted)
        if any(one.recipient not in names for one in known):
            self._sent.forget_others(feed, names)

    def _notify(
        self, recipient: Recipient, about: Collection[FeedName], news_of: Callable[[Sequence[Notice]], Sequence[FeedNews]]
    ) -> None:
        """Send one recipient all that is due, in one message."""
        due = {one.feed for one in self._sent.all() if one.recipient == recipient.name and one.is_due}.intersection(about)
        post = post_of(self._notes.read(_post_name(recipient)))
        log = structlog.get_logger().bind(recipient=recipient.name)
        if not due:
            return
        if not post.may_go(self.now()):
            log.info("a notice is held back: its recipient is told with the next one")
            return
        claimed = tuple(notice for feed in sorted(due) for notice in self._sent.claim(feed, recipient.name))
        if not claimed:
            return
        problem = "interrupted"
        try:
            message = message_of(news_of(claimed), self.destination.rpartition("#")[0], self.page)
            with signals_raised():
                problem = self.deliver(recipient.address, message)
        finally:
            if problem:
                self._sent.release(claimed)
        post = post_of(self._notes.read(_post_name(recipient)))
        if problem:
            log.warning("a notice could not be sent; it is tried again after a later run", problem=problem)
        else:
            self._sent.settle(claimed)
            log.info("a notice was sent", title=message.title)
        self._notes.write(_post_name(recipient), str(post.failed(self.now()) if problem else post.went(self.now())))

    def _warn_of_unknown_channels(self, one: Owned) -> None:
        for name in self.channels.unknown(one.notify):
            log = structlog.get_logger()
            log.warning("a feed names a channel that EVENTSYNC_NOTIFY does not", feed=one.feed, channel=name)

    def _status(self, feed: FeedName) -> tuple[FeedStatus, ...]:
        return LedgerQueries(self.engine, self.now).status(destination=self.destination, feed=feed)

    @property
    def _sent(self) -> NoticesSent:
        return NoticesSent(self.engine, self.destination, self.now)

    @property
    def _notes(self) -> ServiceNotes:
        return ServiceNotes(self.engine, self.destination, self.now)


def _news(
    claimed: Sequence[Notice], owners: Mapping[FeedName, str], concerns: Mapping[FeedName, tuple[Concern, ...]]
) -> list[FeedNews]:
    """Return what these notices say of each feed."""
    news = []
    for feed, notices in _by_feed(claimed).items():
        by_cause = {concern.cause: concern for concern in concerns[feed]}
        words = {Cause(one.cause): one.words for one in notices}
        new = sorted((Cause(one.cause) for one in notices if one.told_at is None), key=[*Cause].index)
        over = tuple(one for one in notices if one.told_at is not None)
        standing = tuple(concern for cause, concern in by_cause.items() if cause not in words)
        first_told = tuple(by_cause.get(cause) or Concern(cause, words[cause], "") for cause in new)
        news.append(FeedNews(feed, owners[feed], first_told, over, standing))
    return news


def notifier_of(settings: Settings, engine: StateDb, now: Callable[[], datetime] = now) -> Notifier:
    """Return the notifier of the configured destination. `now` is the time of day."""
    page = f"{settings.dagster_url.rstrip('/')}/runs" if settings.dagster_url else ""
    return Notifier(engine, settings.destination, settings.channels, deliver_over(settings.mask), now, page)


def tell_of_lost_books(feeds: Iterable[Owned], settings: Settings, trouble: SyncError) -> bool:
    """Notify everybody that the state DB cannot be used; return whether any message got through."""
    audience = {one for mapping in feeds for one in settings.channels.recipients(mapping.owner, mapping.notify)}
    deliver, message = deliver_over(settings.mask), lost_books_message(str(trouble), trouble.hint)
    problems = [deliver(recipient.address, message) for recipient in sorted(audience, key=lambda one: one.name)]
    return "" in problems


@contextmanager
def nothing_fails() -> Iterator[None]:
    """Log what keeps notices from being sent, instead of failing the run."""
    try:
        yield
    except SyncError as problem:
        structlog.get_logger().warning("notices could not be sent", problem=str(problem), hint=problem.hint)


def _by_feed(notices: Iterable[Notice]) -> dict[FeedName, list[Notice]]:
    found: dict[FeedName, list[Notice]] = {}
    for one in notices:
        found.setdefault(one.feed, []).append(one)
    return found


def _post_name(recipient: Recipient) -> str:
    return f"notices to {recipient.name}"
