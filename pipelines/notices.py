"""Notify the owners of feeds when what a person must know of them has changed, in one message per recipient.

A message lists per feed what is new, what is over and what is still open; plain text of bounded length. Texts of partners and
of the service cannot mention a whole chat or break out of their line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Self

import structlog

from connectors.notify import Deliver, Message, Tone, deliver_over
from mappings.errors import MappingFileError, SyncError
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping, Schedule
from mappings.yaml.loader import readable_document
from pipelines.clock import now
from pipelines.run.context import BACKFILL
from pipelines.run.outcome import STANDING_TEXTS, ExitCode, help_on, message_and_hint
from pipelines.run.signals import is_stop_asked, signals_raised
from pipelines.safe_output import replaced
from pipelines.settings import Channels, Recipient, Settings
from pipelines.ticks import HOUR, gaps_of_day, last_tick, ticks_of_day
from state.database import StateDb
from state.notes import NoticesSent
from state.queries import FeedStatus, LedgerQueries, RunRecord, last_came


class Cause(StrEnum):
    """What an owner is notified of: causes of runs first, then kinds of waiting rows by the values of `rows --state`. Each has a
    heading for the title of a message.
    """

    heading: str

    def __new__(cls, word: str, heading: str = "") -> Self:
        """Create the member; its value is the word, without the heading."""
        cause = str.__new__(cls, word)
        cause._value_, cause.heading = word, heading
        return cause

    FILE = "file", "its mapping file is broken"
    BRAKE = "brake", "stopped by a brake"
    KEY = "key", "the service refuses the API key"
    SET_UP = "set-up", "its configuration has a mistake"
    AWAY = "away", "paused"
    FAILED = "failed", "the run failed"
    LOST = "lost", "a run was lost"
    OVERDUE = "overdue", "no run has started"
    CONFLICT = "conflict", "rows in conflict"
    REFUSED = "refused", "rows refused"
    BLOCKED = "blocked", "rows blocked"
    UNCERTAIN = "uncertain", "rows uncertain"
    REJECTED = "rejected", "rows rejected"
    HELD = "held", "rows held"
    DRIFT = "drift", "rows changed"
    VANISHED = "vanished", "rows gone"


LONGEST = timedelta(seconds=30)
"""After this time no further message is started in the same call: it is sent after the next run."""
MOST_FEEDS = 15
"""Feeds shown in full; further ones are only named."""
MOST_NAMED = 50
MOST_CHARS = 600
"""Characters of one sentence in a message."""
_RUNS_READ = (3, 100)
"""How many runs are searched for the last conclusive one: first few, then more."""
_MENTIONS = re.compile(r"(?<!\w)@(?=\w)|<(?=[!@#])")
_UNSEEN = "\N{ZERO WIDTH SPACE}"
_TIME = "%Y-%m-%d %H:%M UTC"
_GRACE = timedelta(minutes=5)
"""Tolerance for expired leases: clocks of machines differ, and a machine that slept continues."""
_CAUSES = {ExitCode.CONFIG: Cause.SET_UP, ExitCode.REFUSED: Cause.KEY, ExitCode.BRAKE: Cause.BRAKE, ExitCode.LATER: Cause.AWAY}
SILENT = frozenset({ExitCode.HELD, ExitCode.INTERRUPTED})
"""Exit codes that are not about the feed: another run held it, or the run was interrupted."""


@dataclass(frozen=True, slots=True)
class Concern:
    """One cause of one feed, with its text and what to do. `rows`: the number of rows, 0 for a cause of runs."""

    cause: Cause
    text: str
    hint: str
    rows: int = 0


def concerns_of(status: FeedStatus, runs: Sequence[RunRecord], now: datetime) -> Iterator[Concern]:
    """Yield the concerns of a feed, the gravest first. `runs`: its latest runs, newest first."""
    feed = status.book.feed
    if was_lost(status, now) and status.last_run is not None:
        text = f"run {status.last_run.run_id} ended without a report: its process was killed, or the machine went down"
        yield Concern(Cause.LOST, text, f"the state is intact: the next run continues; `eventsync run {feed}` starts one now")
    run = next(filter(is_conclusive, runs), None)
    if run is not None:
        cause = Cause.FAILED if run.outcome == "failed" else _CAUSES.get(ExitCode(run.exit_code or 0))
        if cause is not None:
            yield Concern(cause, *message_and_hint(run.message))
    for cause in Cause:
        if count := status.waiting.get(cause.value, 0):
            rows = "1 row" if count == 1 else f"{count:,} rows"
            yield Concern(cause, f"{rows} {STANDING_TEXTS[cause.value]}", help_on(cause.value, feed), count)


def was_lost(status: FeedStatus, now: datetime) -> bool:
    """Return whether the feed's last run was killed: it has no end, and no process works on it."""
    run = status.last_run
    if run is None or run.finished_at is not None:
        return False
    return status.lease is None or status.lease.is_gone or status.lease.expires_at + _GRACE <= now


def is_conclusive(run: RunRecord) -> bool:
    """Return whether a run has ended with an outcome about the feed."""
    return run.exit_code is not None and run.exit_code not in SILENT


def overdue(feed: FeedName, schedule: Schedule | None, came: datetime | None, now: datetime) -> Concern | None:
    """Return the concern that a feed's scheduled run did not start; None if it did, or if there is no schedule.

    A tick counts as missed after an hour, or at the next tick if that is earlier. A feed that never ran may be new, and is not
    overdue.
    """
    if schedule is None or schedule.cron is None or came is None:
        return None
    grace_min = min(HOUR, *gaps_of_day(ticks_of_day(schedule.cron)))
    due = last_tick(schedule, now - timedelta(minutes=grace_min))
    if due is None or came >= due:
        return None
    text = f"the last run started at {came:{_TIME}}, and the run due at {due:{_TIME}} has not started (schedule: {schedule})"
    hint = f"check that Dagster's daemon runs and the schedule is on; `eventsync status {feed}` shows a run that is still at work"
    return Concern(Cause.OVERDUE, text, f"{hint}; `eventsync run {feed}` starts one now")


@dataclass(frozen=True, slots=True)
class FileOfFeed:
    """The part of a broken mapping file that can be read."""

    feed: FeedName
    owner: str = ""
    notify: tuple[str, ...] = ()
    schedule: Schedule | None = None


Owned = FeedMapping | FileOfFeed


def broken_files(errors: Collection[MappingFileError], taken: Collection[str]) -> Iterator[tuple[FileOfFeed, Concern]]:
    """Yield each broken file with its concern. `taken`: names of valid feeds, which a broken file may repeat by mistake."""
    for error in errors:
        document = readable_document(error.path)
        name, owner, notify = (document.get(word) for word in ("feed", "owner", "notify"))
        is_named = isinstance(name, str) and bool(name.strip()) and name not in taken
        channels = tuple(one for one in (notify if isinstance(notify, list) else [notify]) if isinstance(one, str))
        first, more = error.problems[0] if error.problems else error, len(error.problems) - 1
        text = f"its mapping file cannot be used: {first}{f' (and {more} more)' if more > 0 else ''}"
        feed = FeedName(str(name) if is_named else error.path.name)
        yield FileOfFeed(feed, owner if isinstance(owner, str) else "", channels), Concern(Cause.FILE, text, error.hint)


class FeedNews(NamedTuple):
    """News of one feed for one recipient: causes that are `new`, and of those reported before what is `over` and what still
    holds (`standing`).
    """

    feed: FeedName
    owner: str
    new: Sequence[Concern]
    over: Sequence[Cause] = ()
    standing: Sequence[Concern] = ()

    @property
    def text(self) -> str:
        """The paragraph of the message about the feed."""
        lines = [f"{self.feed} (owner: {self.owner})" if self.owner else str(self.feed)]
        for concern in self.new:
            lines.append(f"- {harmless(concern.text)}")
            lines += [f"  What to do: {harmless(concern.hint)}"] if concern.hint else []
        if self.over:
            lines.append(f"Over: {'; '.join(cause.heading for cause in self.over)}")
        if self.standing:
            open_ones = (f"{one.cause.heading}{f' ({one.rows:,})' if one.rows else ''}" for one in self.standing)
            lines.append(f"Still open, reported before: {'; '.join(open_ones)}")
        return "\n".join(lines)


def message_of(news: Sequence[FeedNews], service: str, page: str = "") -> Message:
    """Build the message about several feeds. `service`: the address of the service; `page`: the address of the runs, "" if
    unknown.
    """
    order = [*Cause]

    def gravity(one: FeedNews) -> tuple[int, str]:
        return min((order.index(concern.cause) for concern in one.new), default=len(order)), one.feed

    gravest_first = sorted(news, key=gravity)
    shown, others = gravest_first[:MOST_FEEDS], gravest_first[MOST_FEEDS:]
    named = ", ".join(one.feed for one in others[:MOST_NAMED]) + (", …" if len(others) > MOST_NAMED else "")
    foot = [
        f"And {len(others)} more feeds: {named}: `eventsync status` shows them" if others else "",
        f"Service: {service}" if service else "",
        f"Runs: {page}" if page else "",
    ]
    concerned = [one for one in gravest_first if one.new]
    if not concerned:
        title, tone = f"{news[0].feed}: resolved" if len(news) == 1 else f"resolved for {len(news)} feeds", Tone.RELIEF
    else:
        gravest = concerned[0].new
        title = f"{concerned[0].feed}: {gravest[0].cause.heading}{f', and {len(gravest) - 1} more' if len(gravest) > 1 else ''}"
        title = f"{len(concerned)} feeds need attention" if len(concerned) > 1 else title
        tone = Tone.WARNING if gravity(concerned[0])[0] >= order.index(Cause.CONFLICT) else Tone.ALARM
    body = [*(one.text for one in shown), "\n".join(filter(None, foot))]
    return Message(f"eventsync: {title}", "\n\n".join(filter(None, body)), tone)


def harmless(text: str) -> str:
    """Return a sentence on one line, cut to 600 characters, with mentions disabled that a chat would follow."""
    line = " ".join(replaced(text).split())
    short = line if len(line) <= MOST_CHARS else f"{line[: MOST_CHARS - 1].rstrip()}…"
    return _MENTIONS.sub(lambda mention: f"{mention[0]}{_UNSEEN}", short)


@dataclass(frozen=True, slots=True)
class Notifier:
    """Notifies the owners of feeds at one destination when the causes of a feed have changed since their last message.

    A message that cannot be delivered is not recorded, and so sent after the next run; it raises no error. `page`: the address
    at which runs are shown, "" if there is none. Every method raises `SyncError` if the state DB cannot be read or written.
    """

    engine: StateDb
    destination: str
    channels: Channels
    deliver: Deliver
    now: Callable[[], datetime] = now
    page: str = ""

    def notify(
        self, feeds: Iterable[Owned], crashes: Mapping[FeedName, Concern] | None = None, late: Collection[FeedName] = ()
    ) -> None:
        """Send each recipient one message about those of these feeds whose causes have changed.

        `crashes`: concerns that are not in the state DB. `late`: feeds that may be reported as overdue; for others only the end
        of it is reported.
        """
        began, sent, came = self.now(), self._sent.causes(), self._runs_came()
        late = {*late, *(feed for (feed, _), causes in sent.items() if Cause.OVERDUE in causes)}
        news = defaultdict[Recipient, list[tuple[FeedNews, frozenset[Cause]]]](list)
        for one in feeds:
            for name in self.channels.unknown(one.notify):
                log = structlog.get_logger()
                log.warning("the feed's channel is missing in EVENTSYNC_NOTIFY", feed=one.feed, channel=name)
            missed = overdue(one.feed, one.schedule, came.get(one.feed), self.now()) if one.feed in late else None
            found = self._concerns(one.feed)
            more = [concern for concern in ((crashes or {}).get(one.feed), missed) if concern is not None]
            concerns = (*(each for each in more if each.cause not in {other.cause for other in found}), *found)
            causes = frozenset(concern.cause for concern in concerns)
            recipients = self.channels.recipients(one.owner, one.notify)
            if {name for feed, name in sent if feed == one.feed} - {recipient.name for recipient in recipients}:
                self._sent.forget_others(one.feed, [recipient.name for recipient in recipients])
            for recipient in recipients:
                before = sent.get((one.feed, recipient.name), frozenset())
                if before != causes:
                    new, standing = (
                        [each for each in concerns if (each.cause in before) is is_known] for is_known in (False, True)
                    )
                    over = [cause for cause in Cause if cause in before - causes]
                    news[recipient].append((FeedNews(one.feed, one.owner, new, over, standing), causes))
        for recipient, about in news.items():
            if self.now() - began < LONGEST and not is_stop_asked():
                self._send(recipient, about)

    def notify_of_lost_runs(self, feeds: Iterable[Owned]) -> None:
        """Notify of the feeds whose last run was killed; called before the next run begins."""
        runs = LedgerQueries(self.engine).runs
        last = [(one, runs(destination=self.destination, feed=one.feed, limit=1)) for one in feeds]
        open_ones = [one for one, found in last if found and found[0].finished_at is None]
        self.notify([one for one in open_ones if any(was_lost(status, self.now()) for status in self._status(one.feed))])

    def files(
        self, broken: Collection[MappingFileError], sound: Iterable[Owned]
    ) -> tuple[Sequence[Owned], Mapping[FeedName, Concern]]:
        """Return the broken mapping files and those corrected since they were reported, as arguments for `notify`."""
        feeds = {one.feed: one for one in sound}
        found = {file.feed: (file, concern) for file, concern in broken_files(broken, feeds)}
        former = {feed for (feed, _), causes in self._sent.causes().items() if Cause.FILE in causes}
        mended = [feeds.get(feed, FileOfFeed(feed)) for feed in sorted(former - found.keys())]
        return [*(file for file, _ in found.values()), *mended], {feed: concern for feed, (_, concern) in found.items()}

    def newly_overdue(self, feeds: Iterable[Owned]) -> frozenset[FeedName]:
        """Return the feeds with recipients that are overdue and were not reported yet."""
        came = self._runs_came()
        noted = {feed for (feed, _), causes in self._sent.causes().items() if Cause.OVERDUE in causes}
        maybe = (one for one in feeds if one.feed not in noted and self.channels.recipients(one.owner, one.notify))
        return frozenset(one.feed for one in maybe if overdue(one.feed, one.schedule, came.get(one.feed), self.now()))

    def _concerns(self, feed: FeedName) -> list[Concern]:
        """Return what people are notified of about the feed, from its latest runs and waiting rows."""
        runs: tuple[RunRecord, ...] = ()
        for limit in _RUNS_READ:
            runs = LedgerQueries(self.engine).runs(destination=self.destination, feed=feed, limit=limit)
            if len(runs) < limit or any(map(is_conclusive, runs)):
                break
        return [concern for status in self._status(feed) for concern in concerns_of(status, runs, self.now())]

    def _send(self, recipient: Recipient, about: Sequence[tuple[FeedNews, frozenset[Cause]]]) -> None:
        """Send one recipient the news of several feeds in one message; record the causes of each if it was accepted."""
        log = structlog.get_logger().bind(recipient=recipient.name)
        message = message_of([news for news, _ in about], self.destination.rpartition("#")[0], self.page)
        with signals_raised():
            problem = self.deliver(recipient.address, message)
        if problem:
            log.warning("a notification could not be sent; the next run tries again", problem=problem)
            return
        for news, causes in about:
            self._sent.replace(news.feed, recipient.name, causes)
        log.info("a notification was sent", title=message.title)

    def _runs_came(self) -> Mapping[FeedName, datetime]:
        """Return when each feed last ran, not counting backfills."""
        return last_came(self.engine, self.destination, SILENT, BACKFILL)

    def _status(self, feed: FeedName) -> tuple[FeedStatus, ...]:
        return LedgerQueries(self.engine, self.now).status(destination=self.destination, feed=feed)

    @property
    def _sent(self) -> NoticesSent:
        return NoticesSent(self.engine, self.destination, self.now)


def notifier_of(settings: Settings, engine: StateDb, now: Callable[[], datetime] = now) -> Notifier:
    """Build the notifier of the configured destination; `now` returns the current time."""
    page = f"{settings.dagster_url.rstrip('/')}/runs" if settings.dagster_url else ""
    return Notifier(engine, settings.destination, settings.channels, deliver_over(settings.mask), now, page)


def notify_of_lost_state_db(feeds: Iterable[Owned], settings: Settings, trouble: SyncError) -> bool:
    """Notify every recipient that the state DB cannot be used; return whether a message was delivered."""
    audience = {one for mapping in feeds for one in settings.channels.recipients(mapping.owner, mapping.notify)}
    help_ = f"\nWhat to do: {harmless(trouble.hint)}" if trouble.hint else ""
    body = f"No feed can run.\n{harmless(str(trouble))}{help_}"
    deliver, message = deliver_over(settings.mask), Message("eventsync: the state DB cannot be used", body, Tone.ALARM)
    problems = [deliver(recipient.address, message) for recipient in sorted(audience, key=lambda one: one.name)]
    return "" in problems


@contextmanager
def nothing_fails() -> Iterator[None]:
    """Log an error that prevents notifications, instead of failing the run."""
    try:
        yield
    except SyncError as problem:
        structlog.get_logger().warning("notifications could not be sent", problem=str(problem), hint=problem.hint)
