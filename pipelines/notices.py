"""Notify the owners of feeds: each cause once, then that it is over, in few messages for each recipient.

A message says for each feed what is new, what is over and what still waits; plain text, bounded. Texts of partners and of the
service in it can neither mention a whole chat nor break out of their line.
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
    """Causes of runs first; those of rows are the words of `rows --state`. Each has a heading for titles of messages."""

    heading: str

    def __new__(cls, word: str, heading: str = "") -> Self:
        """Return the member; its value is the word alone."""
        cause = str.__new__(cls, word)
        cause._value_, cause.heading = word, heading
        return cause

    FILE = "file", "its mapping file is broken"
    BRAKE = "brake", "stopped by a brake"
    KEY = "key", "the service refuses us"
    SET_UP = "set-up", "cannot run as it is set up"
    AWAY = "away", "paused"
    FAILED = "failed", "the run failed"
    LOST = "lost", "a run was lost"
    OVERDUE = "overdue", "no run has come"
    CONFLICT = "conflict", "rows in conflict"
    REFUSED = "refused", "rows refused"
    BLOCKED = "blocked", "rows blocked"
    UNCERTAIN = "uncertain", "rows uncertain"
    REJECTED = "rejected", "rows rejected"
    HELD = "held", "rows held back"
    DRIFT = "drift", "rows changed"
    VANISHED = "vanished", "rows gone"
    EARLIER = "earlier", "earlier events to remove"


MOST_AN_HOUR = 6
AN_HOUR = timedelta(hours=1)
FIRST_PAUSE = timedelta(minutes=5)
"""Exponential backoff for a recipient that cannot be reached, up to an hour."""
LONGEST = timedelta(seconds=30)
"""After so long, no further message is begun: it is due the next time."""
MOST_FEEDS = 15
"""Feeds shown at length; of more only the names are listed."""
MOST_NAMED = 50
MOST_CHARS = 600
"""Characters of one sentence of a message."""
_RUNS_READ = (3, 100)
"""So many runs are read for the last one with an end of its own, and so many where none of those has one."""
_MENTIONS = re.compile(r"(?<!\w)@(?=\w)|<(?=[!@#])")
_UNSEEN = "\N{ZERO WIDTH SPACE}"
_TIME = "%Y-%m-%d %H:%M UTC"
_GRACE = timedelta(minutes=5)
"""A lease counts for so much longer: clocks of machines differ, and a machine that slept goes on with its own."""
_CAUSES = {ExitCode.CONFIG: Cause.SET_UP, ExitCode.REFUSED: Cause.KEY, ExitCode.BRAKE: Cause.BRAKE, ExitCode.LATER: Cause.AWAY}
SILENT = frozenset({ExitCode.HELD, ExitCode.INTERRUPTED})
"""Exit codes that say nothing about the feed: it was held, or the run was interrupted."""


@dataclass(frozen=True, slots=True)
class Concern:
    """One cause of one feed: its text and what would help. `rows`: how many rows it is about, 0 for a cause of runs."""

    cause: Cause
    text: str
    hint: str
    rows: int = 0


def concerns_of(status: FeedStatus, runs: Sequence[RunRecord], now: datetime) -> Iterator[Concern]:
    """Yield the concerns of a feed, the gravest first. `runs`: its latest, the youngest first."""
    feed = status.book.feed
    if was_lost(status, now) and status.last_run is not None:
        text = f"run {status.last_run.run_id} ended without a word: its process was killed, or the machine went down"
        yield Concern(Cause.LOST, text, f"the state is intact: the next run goes on; `eventsync run {feed}` does at once")
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
    """Whether the feed's last run has no end, and no process works on it any more."""
    run, lease = status.last_run, status.lease
    is_at_work = lease is not None and not lease.is_gone and lease.expires_at + _GRACE > now
    return run is not None and run.finished_at is None and not is_at_work


def is_conclusive(run: RunRecord) -> bool:
    """Whether a run's end says something about the feed."""
    return run.exit_code is not None and run.exit_code not in SILENT


def overdue(feed: FeedName, schedule: Schedule | None, came: datetime | None, now: datetime) -> Concern | None:
    """Return the concern that a feed's run did not come; None where it did, or without a schedule.

    A tick counts once it is an hour old; where ticks come more often, once the next one has come. A feed that never ran
    may be new.
    """
    if schedule is None or schedule.cron is None or came is None:
        return None
    grace_min = min(HOUR, *gaps_of_day(ticks_of_day(schedule.cron)))
    due = last_tick(schedule, now - timedelta(minutes=grace_min))
    if due is None or came >= due:
        return None
    text = f"no run has come since {came:{_TIME}}: one was due at {due:{_TIME}} by its schedule, {schedule}"
    hint = f"is the daemon running, and its schedule on? `eventsync status {feed}` tells whether a run is still at work"
    return Concern(Cause.OVERDUE, text, f"{hint}; `eventsync run {feed}` runs it now")


@dataclass(frozen=True, slots=True)
class FileOfFeed:
    """What can still be read of a broken mapping file."""

    feed: FeedName
    owner: str = ""
    notify: tuple[str, ...] = ()
    schedule: Schedule | None = None


Owned = FeedMapping | FileOfFeed


def broken_files(errors: Collection[MappingFileError], taken: Collection[str]) -> Iterator[tuple[FileOfFeed, Concern]]:
    """Yield each broken file with its concern. `taken`: sound feeds, whose names a broken file may claim by mistake."""
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
    """News of one feed for one recipient: what is `new`, what is `over`, and what was reported before and still stands."""

    feed: FeedName
    owner: str
    new: Sequence[Concern]
    over: Sequence[Notice] = ()
    standing: Sequence[Concern] = ()

    @property
    def text(self) -> str:
        """The paragraph about the feed."""
        lines = [f"{self.feed} (owner: {self.owner})" if self.owner else str(self.feed)]
        for concern in self.new:
            lines.append(f"- {harmless(concern.text)}")
            lines += [f"  What would help: {harmless(concern.hint)}"] if concern.hint else []
        for notice in self.over:
            lines.append(f"- Over, told on {notice.told_at or notice.noted_at:{_TIME}}: {harmless(notice.words)}")
        if self.standing:
            open_ones = (f"{one.cause.heading}{f' ({one.rows:,})' if one.rows else ''}" for one in self.standing)
            lines.append(f"Still open, told before: {'; '.join(open_ones)}")
        return "\n".join(lines)


def message_of(news: Sequence[FeedNews], service: str, page: str = "") -> Message:
    """Return the message about all these feeds. `service`: where events are sent; `page`: where runs are shown."""
    order = [*Cause]

    def gravity(one: FeedNews) -> tuple[int, str]:
        return min((order.index(concern.cause) for concern in one.new), default=len(order)), one.feed

    gravest_first = sorted(news, key=gravity)
    shown, others = gravest_first[:MOST_FEEDS], gravest_first[MOST_FEEDS:]
    named = ", ".join(one.feed for one in others[:MOST_NAMED]) + (", …" if len(others) > MOST_NAMED else "")
    foot = [
        f"And {len(others)} more feeds: {named}: `eventsync status` tells of each" if others else "",
        f"Service: {service}" if service else "",
        f"Runs: {page}" if page else "",
    ]
    concerned = [one for one in gravest_first if one.new]
    if not concerned:
        title, tone = f"{news[0].feed}: over" if len(news) == 1 else f"over at {len(news)} feeds", Tone.RELIEF
    else:
        gravest = concerned[0].new
        title = f"{concerned[0].feed}: {gravest[0].cause.heading}{f', and {len(gravest) - 1} more' if len(gravest) > 1 else ''}"
        title = f"{len(concerned)} feeds need somebody" if len(concerned) > 1 else title
        tone = Tone.WARNING if gravity(concerned[0])[0] >= order.index(Cause.CONFLICT) else Tone.ALARM
    body = [*(one.text for one in shown), "\n".join(filter(None, foot))]
    return Message(f"eventsync: {title}", "\n\n".join(filter(None, body)), tone)


def harmless(text: str) -> str:
    """Return a sentence on one line, bounded, without mentions that a chat would obey."""
    line = " ".join(replaced(text).split())
    short = line if len(line) <= MOST_CHARS else f"{line[: MOST_CHARS - 1].rstrip()}…"
    return _MENTIONS.sub(lambda mention: f"{mention[0]}{_UNSEEN}", short)


@dataclass(frozen=True, slots=True)
class SentMessages:
    """The messages to one recipient: those of the last hour that were accepted, and the failures since, with the last."""

    accepted: tuple[datetime, ...] = ()
    failures: int = 0
    failed_at: datetime | None = None

    def may_go(self, now: datetime) -> bool:
        """Whether another message may go now. A time in the future is of a clock that was set back since, and does not count."""
        pause = min(FIRST_PAUSE * 2 ** max(self.failures - 1, 0), AN_HOUR)
        if self.failed_at is not None and self.failed_at <= now < self.failed_at + pause:
            return False
        return len(_of_last_hour(self.accepted, now)) < MOST_AN_HOUR

    def after(self, now: datetime, *, is_accepted: bool) -> SentMessages:
        """Return the same after one more message."""
        if is_accepted:
            return SentMessages((*_of_last_hour(self.accepted, now), now))
        return replace(self, failures=min(self.failures + 1, 10), failed_at=now)


def _of_last_hour(times: Sequence[datetime], now: datetime) -> list[datetime]:
    return [at for at in times if now - AN_HOUR < at <= now]


_SENT_MESSAGES = TypeAdapter(SentMessages)


@dataclass(frozen=True, slots=True)
class Notifier:
    """Notifies the owners of feeds at one destination: each cause once, then that it is over; one message for all that is due.

    What is due is remembered in the state DB, so that runs and the sensor can both notify. A message that does not get through
    fails nothing: it stays due. `page`: the address at which a person looks at runs, "" if there is none.
    Every method raises `SyncError` where the state DB cannot be read or written.
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
        """Notify the recipients of these feeds of what is new and what is over.

        `crashes`: concerns that the state DB does not know of. `late`: feeds that may be reported overdue; of others only the
        end of that is reported. A recipient that cannot be reached, or got enough messages for now, gets the rest later.
        """
        began, noted, came = self.now(), _by_feed(self._sent.all()), self._runs_came()
        owners: dict[FeedName, str] = {}
        concerns: dict[FeedName, tuple[Concern, ...]] = {}
        audience: dict[Recipient, list[FeedName]] = defaultdict(list)
        for one in feeds:
            for name in self.channels.unknown(one.notify):
                log = structlog.get_logger()
                log.warning("a feed names a channel that EVENTSYNC_NOTIFY does not", feed=one.feed, channel=name)
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
        """Notify of feeds whose last run was lost, before the next run begins."""
        runs = LedgerQueries(self.engine).runs
        last = [(one, runs(destination=self.destination, feed=one.feed, limit=1)) for one in feeds]
        open_ones = [one for one, found in last if found and found[0].finished_at is None]
        self.notify([one for one in open_ones if any(was_lost(status, self.now()) for status in self._status(one.feed))])

    def files(
        self, broken: Collection[MappingFileError], sound: Iterable[Owned]
    ) -> tuple[Sequence[Owned], Mapping[FeedName, Concern]]:
        """Return, as `notify` takes them, the mapping files that cannot be used and those that were reported and are mended."""
        feeds = {one.feed: one for one in sound}
        found = {file.feed: (file, concern) for file, concern in broken_files(broken, feeds)}
        former = {one.feed for one in self._sent.all() if one.cause == Cause.FILE.value}
        mended = [feeds.get(feed, FileOfFeed(feed)) for feed in sorted(former - found.keys())]
        return [*(file for file, _ in found.values()), *mended], {feed: concern for feed, (_, concern) in found.items()}

    def newly_overdue(self, feeds: Iterable[Owned]) -> frozenset[FeedName]:
        """Return the feeds with recipients whose runs no longer come, and that were not reported yet."""
        came = self._runs_came()
        noted = {one.feed for one in self._sent.all() if one.cause == Cause.OVERDUE.value}
        maybe = (one for one in feeds if one.feed not in noted and self.channels.recipients(one.owner, one.notify))
        return frozenset(one.feed for one in maybe if overdue(one.feed, one.schedule, came.get(one.feed), self.now()))

    def unfinished(self) -> frozenset[FeedName]:
        """Return the feeds of which a notification is due."""
        return self._sent.unfinished()

    def _concerns(self, feed: FeedName) -> list[Concern]:
        """Return the concerns of the feed's latest runs and of its rows."""
        runs: tuple[RunRecord, ...] = ()
        for limit in _RUNS_READ:
            runs = LedgerQueries(self.engine).runs(destination=self.destination, feed=feed, limit=limit)
            if len(runs) < limit or any(map(is_conclusive, runs)):
                break
        return [concern for status in self._status(feed) for concern in concerns_of(status, runs, self.now())]

    def _note(self, feed: FeedName, recipients: Collection[str], concerns: Sequence[Concern], known: Sequence[Notice]) -> None:
        """Write down what each recipient should know, where that differs from what is written."""
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
            log.info("a notice is held back: its recipient is told with the next one")
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
            log.warning("a notice could not be sent; it is tried again after a later run", problem=problem)
        else:
            self._sent.settle(claimed)
            log.info("a notice was sent", title=message.title)
        sent = read_note(notes, name, _SENT_MESSAGES) or SentMessages()
        write_note(notes, name, _SENT_MESSAGES, sent.after(self.now(), is_accepted=not problem))

    def _runs_came(self) -> Mapping[FeedName, datetime]:
        """Return when each feed last ran; backfills do not count."""
        return last_came(self.engine, self.destination, SILENT, BACKFILL)

    def _status(self, feed: FeedName) -> tuple[FeedStatus, ...]:
        return LedgerQueries(self.engine, self.now).status(destination=self.destination, feed=feed)

    @property
    def _sent(self) -> NoticesSent:
        return NoticesSent(self.engine, self.destination, self.now)


def _news(feed: FeedName, owner: str, notices: Sequence[Notice], concerns: Sequence[Concern]) -> FeedNews:
    """Return what these notices say of a feed."""
    by_cause = {concern.cause: concern for concern in concerns}
    words = {Cause(one.cause): one.words for one in notices}
    unsent = {Cause(one.cause) for one in notices if one.told_at is None}
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
    """Return the notifier of the configured destination. `now` is the time of day."""
    page = f"{settings.dagster_url.rstrip('/')}/runs" if settings.dagster_url else ""
    return Notifier(engine, settings.destination, settings.channels, deliver_over(settings.mask), now, page)


def notify_of_lost_state_db(feeds: Iterable[Owned], settings: Settings, trouble: SyncError) -> bool:
    """Notify every recipient that the state DB cannot be used; return whether any message got through."""
    audience = {one for mapping in feeds for one in settings.channels.recipients(mapping.owner, mapping.notify)}
    help_ = f"\nWhat would help: {harmless(trouble.hint)}" if trouble.hint else ""
    body = f"No feed can run.\n{harmless(str(trouble))}{help_}"
    deliver, message = deliver_over(settings.mask), Message("eventsync: the state DB cannot be used", body, Tone.ALARM)
    problems = [deliver(recipient.address, message) for recipient in sorted(audience, key=lambda one: one.name)]
    return "" in problems


@contextmanager
def nothing_fails() -> Iterator[None]:
    """Log what keeps notices from being sent, instead of failing the run."""
    try:
        yield
    except SyncError as problem:
        structlog.get_logger().warning("notices could not be sent", problem=str(problem), hint=problem.hint)
