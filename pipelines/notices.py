"""Notify the owners of feeds: once of each cause and once when it has ended, in few messages per recipient.

A message lists per feed what is new, what has ended and what is still open; plain text of bounded length. Texts of partners and
of the service cannot mention a whole chat or break out of their line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Self

import structlog
from pydantic import TypeAdapter

from connectors.notify import Deliver, Message, Tone, deliver_over
from mappings.errors import MappingFileError, SyncError
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping, Schedule
from mappings.yaml.loader import readable_document
from pipelines.clock import now
from pipelines.control_characters import replaced
from pipelines.run.context import BACKFILL
from pipelines.run.outcome import STANDING_HELP, STANDING_TEXTS, ExitCode, message_and_hint
from pipelines.run.service import read_note, write_note
from pipelines.run.signals import is_stop_asked, signals_raised
from pipelines.settings import Channels, Recipient, Settings
from pipelines.ticks import HOUR, gaps_of_day, last_tick, ticks_of_day
from state.database import StateDb
from state.notes import Notice, NoticesSent, ServiceNotes
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


MOST_AN_HOUR = 6
AN_HOUR = timedelta(hours=1)
FIRST_PAUSE = timedelta(minutes=5)
"""First pause of the exponential backoff for a recipient that cannot be reached; the longest is an hour."""
LONGEST = timedelta(seconds=30)
"""After this time no further message is started in the same call: it is sent the next time."""
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
            yield Concern(cause, f"{rows} {STANDING_TEXTS[cause.value]}", STANDING_HELP[cause.value].format(feed=feed), count)


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
    """News of one feed for one recipient: causes that are `new`, causes that are `over`, and causes reported before that still
    hold (`standing`).
    """

    feed: FeedName
    owner: str
    new: Sequence[Concern]
    over: Sequence[Notice] = ()
    standing: Sequence[Concern] = ()

    @property
    def text(self) -> str:
        """The paragraph of the message about the feed."""
        lines = [f"{self.feed} (owner: {self.owner})" if self.owner else str(self.feed)]
        for concern in self.new:
            lines.append(f"- {harmless(concern.text)}")
            lines += [f"  What to do: {harmless(concern.hint)}"] if concern.hint else []
        for notice in self.over:
            lines.append(f"- Ended, reported on {notice.told_at or notice.noted_at:{_TIME}}: {harmless(notice.words)}")
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
class SentMessages:
    """The messages to one recipient: times of those accepted in the last hour, number of failures since, time of the last
    failure.
    """

    accepted: tuple[datetime, ...] = ()
    failures: int = 0
    failed_at: datetime | None = None

    def may_go(self, now: datetime) -> bool:
        """Return whether another message may be sent now. Times in the future, from a clock set back since, do not count."""
        pause = min(FIRST_PAUSE * 2 ** max(self.failures - 1, 0), AN_HOUR)
        if self.failed_at is not None and self.failed_at <= now < self.failed_at + pause:
            return False
        return len(_of_last_hour(self.accepted, now)) < MOST_AN_HOUR

    def after(self, now: datetime, *, is_accepted: bool) -> SentMessages:
        """Return the record after one more message."""
        if is_accepted:
            return SentMessages((*_of_last_hour(self.accepted, now), now))
        return replace(self, failures=min(self.failures + 1, 10), failed_at=now)


def _of_last_hour(times: Sequence[datetime], now: datetime) -> list[datetime]:
    return [at for at in times if now - AN_HOUR < at <= now]


_SENT_MESSAGES = TypeAdapter(SentMessages)


@dataclass(frozen=True, slots=True)
class Notifier:
    """Notifies the owners of feeds at one destination: once of each cause and once when it has ended, in one message per
    recipient.

    What is due is recorded in the state DB, so that runs and the sensor can both notify. A message that cannot be delivered stays
    due and raises no error. `page`: the address at which runs are shown, "" if there is none. Every method raises `SyncError` if
    the state DB cannot be read or written.
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
        """Notify the recipients of these feeds of new causes and of causes that have ended.

        `crashes`: concerns that are not in the state DB. `late`: feeds that may be reported as overdue; for others only the end
        of it is reported. A recipient that cannot be reached, or got too many messages, gets the rest later.
        """
        began, noted, came = self.now(), _by_feed(self._sent.all()), self._runs_came()
        owners: dict[FeedName, str] = {}
        concerns: dict[FeedName, tuple[Concern, ...]] = {}
        audience: dict[Recipient, list[FeedName]] = defaultdict(list)
        for one in feeds:
            for name in self.channels.unknown(one.notify):
                log = structlog.get_logger()
                log.warning("the feed's channel is missing in EVENTSYNC_NOTIFY", feed=one.feed, channel=name)
            known = noted.get(one.feed, [])
            may_be_late = one.feed in late or any(notice.cause == Cause.OVERDUE.value for notice in known)
            missed = overdue(one.feed, one.schedule, came.get(one.feed), self.now()) if may_be_late else None
            found = self._concerns(one.feed)
            more = [concern for concern in ((crashes or {}).get(one.feed), missed) if concern is not None]
            concerns[one.feed] = (*(each for each in more if each.cause not in {other.cause for other in found}), *found)
            owners[one.feed] = one.owner
            recipients = self.channels.recipients(one.owner, one.notify)
            self._note(one.feed, {recipient.name for recipient in recipients}, concerns[one.feed], known)
            for recipient in recipients:
                audience[recipient].append(one.feed)
        for recipient, about in audience.items():
            if self.now() - began < LONGEST and not is_stop_asked():
                self._send(recipient, about, owners, concerns)

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
        former = {one.feed for one in self._sent.all() if one.cause == Cause.FILE.value}
        mended = [feeds.get(feed, FileOfFeed(feed)) for feed in sorted(former - found.keys())]
        return [*(file for file, _ in found.values()), *mended], {feed: concern for feed, (_, concern) in found.items()}

    def newly_overdue(self, feeds: Iterable[Owned]) -> frozenset[FeedName]:
        """Return the feeds with recipients that are overdue and were not reported yet."""
        came = self._runs_came()
        noted = {one.feed for one in self._sent.all() if one.cause == Cause.OVERDUE.value}
        maybe = (one for one in feeds if one.feed not in noted and self.channels.recipients(one.owner, one.notify))
        return frozenset(one.feed for one in maybe if overdue(one.feed, one.schedule, came.get(one.feed), self.now()))

    def unfinished(self) -> frozenset[FeedName]:
        """Return the feeds with a notification due."""
        return self._sent.unfinished()

    def _concerns(self, feed: FeedName) -> list[Concern]:
        """Return what people are notified of about the feed, from its latest runs and waiting rows."""
        runs: tuple[RunRecord, ...] = ()
        for limit in _RUNS_READ:
            runs = LedgerQueries(self.engine).runs(destination=self.destination, feed=feed, limit=limit)
            if len(runs) < limit or any(map(is_conclusive, runs)):
                break
        return [concern for status in self._status(feed) for concern in concerns_of(status, runs, self.now())]

    def _note(self, feed: FeedName, recipients: Collection[str], concerns: Sequence[Concern], known: Sequence[Notice]) -> None:
        """Record the current concerns for each recipient, if they differ from those recorded."""
        wanted = {concern.cause.value: concern.text for concern in concerns}
        for name in sorted(recipients):
            noted = [one for one in known if one.recipient == name]
            if {one.cause for one in noted} != set(wanted) or any(one.is_due for one in noted):
                self._sent.note(feed, name, wanted)
        if any(one.recipient not in recipients for one in known):
            self._sent.forget_others(feed, recipients)

    def _send(
        self,
        recipient: Recipient,
        about: Collection[FeedName],
        owners: Mapping[FeedName, str],
        concerns: Mapping[FeedName, Sequence[Concern]],
    ) -> None:
        """Send one recipient all that is due, in one message."""
        due = {one.feed for one in self._sent.all() if one.recipient == recipient.name and one.is_due}.intersection(about)
        name, notes = f"notices to {recipient.name}", ServiceNotes(self.engine, self.destination, self.now)
        log = structlog.get_logger().bind(recipient=recipient.name)
        if not due:
            return
        if not (read_note(notes, name, _SENT_MESSAGES) or SentMessages()).may_go(self.now()):
            log.info("a notification is postponed: the recipient got too many messages, or cannot be reached")
            return
        claimed = [notice for feed in sorted(due) for notice in self._sent.claim(feed, recipient.name)]
        if not claimed:
            return
        problem = "interrupted"
        try:
            news = [_news(feed, owners[feed], notices, concerns[feed]) for feed, notices in _by_feed(claimed).items()]
            message = message_of(news, self.destination.rpartition("#")[0], self.page)
            with signals_raised():
                problem = self.deliver(recipient.address, message)
        finally:
            if problem:
                self._sent.release(claimed)
        if problem:
            log.warning("a notification could not be sent; a later run tries again", problem=problem)
        else:
            self._sent.settle(claimed)
            log.info("a notification was sent", title=message.title)
        sent = read_note(notes, name, _SENT_MESSAGES) or SentMessages()
        write_note(notes, name, _SENT_MESSAGES, sent.after(self.now(), is_accepted=not problem))

    def _runs_came(self) -> Mapping[FeedName, datetime]:
        """Return when each feed last ran, not counting backfills."""
        return last_came(self.engine, self.destination, SILENT, BACKFILL)

    def _status(self, feed: FeedName) -> tuple[FeedStatus, ...]:
        return LedgerQueries(self.engine, self.now).status(destination=self.destination, feed=feed)

    @property
    def _sent(self) -> NoticesSent:
        return NoticesSent(self.engine, self.destination, self.now)


def _news(feed: FeedName, owner: str, notices: Sequence[Notice], concerns: Sequence[Concern]) -> FeedNews:
    """Build the news of a feed from the notices due and its current concerns."""
    by_cause = {concern.cause: concern for concern in concerns}
    words = {one.cause: one.words for one in notices}
    unsent = {one.cause for one in notices if one.told_at is None}
    return FeedNews(
        feed,
        owner,
        new=[by_cause.get(cause) or Concern(cause, words[cause], "") for cause in Cause if cause in unsent],
        over=[one for one in notices if one.told_at is not None],
        standing=[concern for cause, concern in by_cause.items() if cause not in words],
    )


def _by_feed(notices: Iterable[Notice]) -> Mapping[FeedName, list[Notice]]:
    found: dict[FeedName, list[Notice]] = defaultdict(list)
    for one in notices:
        found[one.feed].append(one)
    return found


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
