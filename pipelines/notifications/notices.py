"""How often one recipient may be told: a few messages an hour, and none for a while after one that was not accepted.

What is held back is told with the next message. Where the times are kept is the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from connectors.notify import Deliver, deliver_over
from mappings.errors import MappingFileError, SyncError
from mappings.row_key import FeedName
from pipelines.clock import now
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
from pipelines.notifications.messages import FeedNews, lost_books_message, message_of
from pipelines.run.signals import is_stop_asked, signals_raised
from pipelines.settings import Channels, Recipient, Settings
from state.database import StateDb
from state.notes import Notice, NoticesSent, ServiceNotes
from state.views.books import Books
from state.views.views import FeedStatus, RunRecord

MOST_AN_HOUR = 6
HOUR = timedelta(hours=1)
FIRST_PAUSE = timedelta(minutes=5)
"""How long a recipient that cannot be reached is left alone; twice as long after each further failure, up to an hour."""


@dataclass(frozen=True, slots=True)
class Post:
    """What went to one recipient: when messages of the last hour were accepted, how many were not since, and when last."""

    accepted: tuple[datetime, ...] = ()
    failures: int = 0
    failed_at: datetime | None = None

    def may_go(self, now: datetime) -> bool:
        """Whether another message may go now; a failure in the future is that of a clock that was set back since."""
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


_LOOKED_BACK = (3, 100)
"""So many runs are looked at for the last one that says how the feed is, and so many where none of those does."""
LONGEST = timedelta(seconds=30)
"""After so long, no further message is begun: it is due the next time."""


@dataclass(frozen=True, slots=True)
class Notifier:
    """Who tells, and of what: the books of one destination, the channels, what delivers a message, the clock.

    `page`: the address at which a person looks at runs, "" if there is none.
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
        """Tell whoever is to hear of these feeds what is new and what is over. `crashes`: what the books do not know of.

        `late`: of which feeds it may be told that no run has come; of others only that one has. A recipient that cannot be
        reached, or has heard enough for now, is told by a later call.

        Raises:
            SyncError: the state DB cannot be read or written.
        """
        bulletin, began = self._bulletin(feeds, crashes or {}, late), self.now()
        for recipient, about in bulletin.audience.items():
            if self.now() - began < LONGEST and not is_stop_asked():
                self._tell_one(bulletin, recipient, about)

    def tell_of_lost_runs(self, feeds: Iterable[Owned]) -> None:
        """Tell of those among the feeds whose last run was lost: for the moment before the next run tries.

        Raises:
            SyncError: as `tell`.
        """
        books = Books(self.engine)
        last = {one.feed: books.runs(destination=self.destination, feed=one.feed, limit=1) for one in feeds}
        maybe = [one for one in feeds if last[one.feed] and last[one.feed][0].finished_at is None]
        self.tell(one for one in maybe if any(was_lost(status, self.now()) for status in self._status(one.feed)))

    def files(
        self, broken: Collection[MappingFileError], sound: Iterable[Owned]
    ) -> tuple[Sequence[Owned], Mapping[FeedName, Concern]]:
        """Return, as `tell` takes them: the files that cannot be used, and those that somebody was told of and that can again.

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
        """Return those of the feeds whose runs have stopped to come, and of which somebody is to hear that and has not.

        Raises:
            SyncError: as `tell`.
        """
        came = runs_came(self.engine, self.destination)
        noted = {one.feed for one in self._sent.all() if one.cause == Cause.OVERDUE.value}
        heard = (one for one in feeds if one.feed not in noted and self.channels.recipients(one.owner, one.notify))
        return frozenset(one.feed for one in heard if overdue(one.feed, one.schedule, came.get(one.feed), self.now()))

    def unfinished(self) -> frozenset[FeedName]:
        """Return the feeds of which somebody has yet to hear something."""
        return self._sent.unfinished()

    def _bulletin(self, feeds: Iterable[Owned], crashes: Mapping[FeedName, Concern], late: Collection[FeedName]) -> _Bulletin:
        """Note what there is to tell of each feed, and who is to hear it."""
        bulletin, known = _Bulletin(), _by_feed(self._sent.all())
        came = runs_came(self.engine, self.destination)
        for mapping in feeds:
            recipients = self.channels.recipients(mapping.owner, mapping.notify)
            _complain_of_unknown(self.channels, mapping)
            noted = known.get(mapping.feed, ())
            may_be_late = mapping.feed in late or any(one.cause == Cause.OVERDUE.value for one in noted)
            missed = overdue(mapping.feed, mapping.schedule, came.get(mapping.feed), self.now()) if may_be_late else None
            concerns = self._concerns(mapping.feed, filter(None, (crashes.get(mapping.feed), missed)))
            self._note(mapping.feed, recipients, concerns, noted)
            bulletin.add(mapping, recipients, concerns)
        return bulletin

    def _concerns(self, feed: FeedName, more: Iterable[Concern]) -> tuple[Concern, ...]:
        """Return what the feed's latest runs and its rows tell, and before it whatever `more` there is."""
        runs = self._latest(feed)
        found = [concern for status in self._status(feed) for concern in concerns_of(status, runs, self.now())]
        known = {concern.cause for concern in found}
        return (*(concern for concern in more if concern.cause not in known), *found)

    def _latest(self, feed: FeedName) -> tuple[RunRecord, ...]:
        runs: tuple[RunRecord, ...] = ()
        for limit in _LOOKED_BACK:
            runs = Books(self.engine).runs(destination=self.destination, feed=feed, limit=limit)
            if len(runs) < limit or any(map(is_telling, runs)):
                break
        return runs

    def _note(
        self, feed: FeedName, recipients: Sequence[Recipient], concerns: Sequence[Concern], known: Sequence[Notice]
    ) -> None:
        """Note for each recipient what it should know, where that differs from what is noted."""
        wanted = {concern.cause.value: concern.told for concern in concerns}
        names = {recipient.name for recipient in recipients}
        for name in sorted(names):
            ours = [one for one in known if one.recipient == name]
            if {one.cause for one in ours} != set(wanted) or any(one.is_due for one in ours):
                self._sent.note(feed, name, wanted)
        if any(one.recipient not in names for one in known):
            self._sent.forget_others(feed, names)

    def _tell_one(self, bulletin: _Bulletin, recipient: Recipient, about: Collection[FeedName]) -> None:
        """Tell one recipient all that it has yet to hear, in one message."""
        due = {one.feed for one in self._sent.all() if one.recipient == recipient.name and one.is_due}
        post = post_of(self._notes.read(_post_name(recipient)))
        log = structlog.get_logger().bind(recipient=recipient.name)
        if not due.intersection(about):
            return
        if not post.may_go(self.now()):
            log.info("a notice is held back: its recipient is told with the next one")
            return
        claimed = tuple(notice for feed in sorted(due.intersection(about)) for notice in self._sent.claim(feed, recipient.name))
        if claimed:
            self._deliver(bulletin, recipient, claimed, log)

    def _deliver(
        self, bulletin: _Bulletin, recipient: Recipient, claimed: Sequence[Notice], log: structlog.typing.FilteringBoundLogger
    ) -> None:
        problem = "interrupted"
        try:
            news = tuple(bulletin.news(claimed))
            message = message_of(news, self.destination.rpartition("#")[0], self.page)
            with signals_raised():
                problem = self.deliver(recipient.address, message)
        finally:
            if problem:
                self._sent.release(claimed)
        post = post_of(self._notes.read(_post_name(recipient)))
        if problem:
            self._notes.write(_post_name(recipient), str(post.failed(self.now())))
            log.warning("a notice could not be sent; it is tried again after a later run", problem=problem)
            return
        self._sent.settle(claimed)
        self._notes.write(_post_name(recipient), str(post.went(self.now())))
        log.info("a notice was sent", title=message.title)

    def _status(self, feed: FeedName) -> tuple[FeedStatus, ...]:
        return Books(self.engine, self.now).status(destination=self.destination, feed=feed)

    @property
    def _sent(self) -> NoticesSent:
        return NoticesSent(self.engine, self.destination, self.now)

    @property
    def _notes(self) -> ServiceNotes:
        return ServiceNotes(self.engine, self.destination, self.now)


@dataclass(frozen=True, slots=True)
class _Bulletin:
    """What there is to tell of each feed now, and who hears of which feeds."""

    mappings: dict[FeedName, Owned] = field(default_factory=dict)
    concerns: dict[FeedName, tuple[Concern, ...]] = field(default_factory=dict)
    audience: dict[Recipient, list[FeedName]] = field(default_factory=dict)

    def add(self, mapping: Owned, recipients: Sequence[Recipient], concerns: tuple[Concern, ...]) -> None:
        """Take in one feed."""
        self.mappings[mapping.feed], self.concerns[mapping.feed] = mapping, concerns
        for recipient in recipients:
            self.audience.setdefault(recipient, []).append(mapping.feed)

    def news(self, claimed: Sequence[Notice]) -> Iterator[FeedNews]:
        """Yield what these notices say of each feed."""
        for feed, notices in _by_feed(claimed).items():
            by_cause = {concern.cause: concern for concern in self.concerns[feed]}
            new = [Cause(one.cause) for one in notices if one.told_at is None]
            words = {Cause(one.cause): one.words for one in notices}
            told = tuple(by_cause.get(cause) or Concern(cause, words[cause], "") for cause in sorted(new, key=[*Cause].index))
            over = tuple(one for one in notices if one.told_at is not None)
            standing = tuple(concern for cause, concern in by_cause.items() if cause not in words)
            yield FeedNews(feed, self.mappings[feed].owner, told, over, standing)


def notifier_of(settings: Settings, engine: StateDb, now: Callable[[], datetime] = now) -> Notifier:
    """Return who tells the owners of feeds at the configured destination. `now` is the time of day."""
    return Notifier(engine, settings.destination, settings.channels, deliver_over(settings.mask), now, _page_of(settings))


def tell_of_lost_books(feeds: Iterable[Owned], settings: Settings, trouble: SyncError) -> bool:
    """Tell everybody that the state DB cannot be used, in which nothing can be remembered; return whether anybody heard it."""
    audience = {one for mapping in feeds for one in settings.channels.recipients(mapping.owner, mapping.notify)}
    deliver, message = deliver_over(settings.mask), lost_books_message(str(trouble), trouble.hint)
    problems = [deliver(recipient.address, message) for recipient in sorted(audience, key=lambda one: one.name)]
    return "" in problems


@contextmanager
def nothing_fails() -> Iterator[None]:
    """Log what keeps notices from being sent, in place of failing what the block stands in."""
    try:
        yield
    except SyncError as problem:
        structlog.get_logger().warning("notices could not be sent", problem=str(problem), hint=problem.hint)


def _page_of(settings: Settings) -> str:
    return f"{settings.dagster_url.rstrip('/')}/runs" if settings.dagster_url else ""


def _by_feed(notices: Iterable[Notice]) -> dict[FeedName, list[Notice]]:
    found: dict[FeedName, list[Notice]] = {}
    for one in notices:
        found.setdefault(one.feed, []).append(one)
    return found


def _post_name(recipient: Recipient) -> str:
    return f"notices to {recipient.name}"


def _complain_of_unknown(channels: Channels, mapping: Owned) -> None:
    for name in channels.unknown(mapping.notify):
        structlog.get_logger().warning("a feed names a channel that EVENTSYNC_NOTIFY does not", feed=mapping.feed, channel=name)
