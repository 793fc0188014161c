"""Feeds that run when their source has changed: a file that has come, a sheet that somebody has edited.

What is looked at is `connectors.sources.glances`'; feeds that run by the clock are `schedules`'.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta

import orjson
from dagster import (
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    Failure,
    RunRecord,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
)

from connectors.sources.environment import Access
from connectors.sources.probe import SourceProbe, probe_source
from mappings.errors import ConfigError, SyncError, TransientError
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import FeedFolder
from pipelines.clock import now
from pipelines.notifications.causes import Cause, Concern
from pipelines.notifications.notices import Notifier, notifier_of, tell_of_lost_books
from pipelines.orchestration import names
from pipelines.orchestration.history import ENDED
from pipelines.orchestration.schedules import at_work
from pipelines.run.backfill import SCHEDULE
from pipelines.run.context import OpenContext
from pipelines.settings import Settings
from state.views.books import Books


@dataclass(frozen=True, slots=True)
class Seen:
    """What a sensor has seen last: its cursor. `turn` counts the runs that it has asked for: each has a key of its own."""

    turn: int
    marks: frozenset[str]

    def __str__(self) -> str:
        """The text that Dagster keeps."""
        return orjson.dumps({"turn": self.turn, "marks": sorted(self.marks)}).decode()


def parse_seen(cursor: str | None) -> Seen | None:
    """Return what a cursor says, None for one that is not ours: a person may write anything there, to have the feed run."""
    try:
        kept = orjson.loads(cursor or "null")
        return Seen(int(kept["turn"]), frozenset(map(str, kept["marks"])))
    except (ValueError, TypeError, KeyError):
        return None


def feed_sensors(mapping: FeedMapping, access: Access) -> list[SensorDefinition]:
    """Return what looks at a feed's source as often as its schedule says, if it does: running from the start."""
    schedule = mapping.schedule
    if schedule is None or schedule.look_every_s is None:
        return []

    def look(context: SensorEvaluationContext) -> SensorResult | SkipReason:
        busy = at_work(context.instance, mapping.feed)
        if busy is not None:  # and looked at again later, with what it knows now: a file may come while a run is at work
            return busy
        try:
            glance = probe_source(mapping.source, mapping.path.parent, access=access)
        except TransientError as error:
            return SkipReason(f"{error}; looked at again later")
        except SyncError as error:
            raise Failure(f"{error}\n{error.hint}") from error
        return _judged(mapping, parse_seen(context.cursor), glance)

    return [
        SensorDefinition(
            name=names.sensor_of_job(names.job_of(mapping.feed)),
            job_name=names.job_of(mapping.feed),
            evaluation_fn=look,
            minimum_interval_seconds=round(schedule.look_every_s),
            default_status=DefaultSensorStatus.RUNNING,
            description=f"Runs {mapping.feed} when {mapping.source.place} has come or changed.",
        )
    ]


def _judged(mapping: FeedMapping, seen: Seen | None, glance: SourceProbe) -> SensorResult | SkipReason:
    """Ask for a run where there is news; the first look is always some, as nobody knows what earlier runs have read."""
    if glance.blind:
        return SkipReason(glance.blind)
    if seen is not None and not glance.is_news_to(seen.marks):
        return SensorResult(skip_reason=f"as it was: {mapping.source.place}", cursor=str(Seen(seen.turn, glance.marks)))
    now = Seen(seen.turn + 1 if seen else 1, glance.marks)
    digest = hashlib.blake2b(str(now).encode(), digest_size=9).hexdigest()
    # Looked at from its start again, the cursor having been taken away by a person, it runs whatever ran before.
    run_key = f"{mapping.feed} {digest}" if seen else None
    request = RunRequest(run_key=run_key, tags={names.LAUNCHED_BY_TAG: SCHEDULE})  # it comes between a backfill's slices, too
    return SensorResult(run_requests=[request], cursor=str(now))


NAME = "tell_owners"
EVERY_S = 60
LOST_AFTER = 3
"""So many ticks in a row without the state DB are told: a busy one is back with the next."""
_AT_ONCE = 500
_FIRST_LOOK = timedelta(days=1)
PAUSED_S, STEADY_S = 300.0, 900.0
"""A daemon that did not look for so long was away, and is given so long to begin what was due meanwhile before a feed whose run
has not come is told of.
"""
_WILL_RETRY_TAG = "dagster/will_retry"


@dataclass(frozen=True, slots=True)
class Place:
    """How far the sensor has looked: runs that ended until `since`, and how many ticks have found no state DB.

    `looked`: when it did last; `steady`: since when it has without a pause. All in seconds since the epoch.
    """

    since: float
    lost: int = 0
    is_loss_told: bool = False
    looked: float = 0.0
    steady: float = 0.0

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    def at(self, moment: float) -> Place:
        """Return the same for a look at this moment."""
        return replace(self, looked=moment, steady=self.steady if moment - self.looked < PAUSED_S else moment)

    @property
    def is_steady(self) -> bool:
        """Whether the daemon has been at work for long enough that runs would have come."""
        return self.looked - self.steady >= STEADY_S


def notices_sensors(folder: FeedFolder, settings: Settings, open_workshop: OpenContext) -> Sequence[SensorDefinition]:
    """Return the sensor, running from the start; none where the environment names nobody to be told."""
    feeds = [feed.mapping for feed in folder.feeds]
    if not settings.channels.addresses:
        return ()

    def tick(context: SensorEvaluationContext) -> SkipReason:
        place = _place(context.cursor).at(now().timestamp())
        ended = context.instance.get_run_records(_ended_since(place), limit=_AT_ONCE, order_by="update_timestamp", ascending=True)
        try:
            with open_workshop() as workshop:
                teller = notifier_of(settings, workshop.engine, workshop.now)
                late = teller.newly_overdue(feeds) if place.is_steady else frozenset[FeedName]()
                told = _tell(teller, context.instance, folder, ended, late)
        except ConfigError as trouble:
            return SkipReason(f"nobody can be told: {settings.mask.hide(str(trouble))}; {trouble.hint}")
        except SyncError as trouble:
            context.update_cursor(str(_without_books(place, feeds, settings, trouble)))
            return SkipReason(f"the state DB cannot be used: {settings.mask.hide(str(trouble))}")
        since = max((one.update_timestamp.timestamp() for one in ended), default=place.since)
        context.update_cursor(str(replace(place, since=since, lost=0, is_loss_told=False)))
        return SkipReason(f"looked at {', '.join(told)}" if told else "no run has ended, and nothing is due")

    return (
        SensorDefinition(
            name=NAME,
            evaluation_fn=tick,
            minimum_interval_seconds=EVERY_S,
            default_status=DefaultSensorStatus.RUNNING,
            description="Tells the owners of feeds what needs them, over the channels of EVENTSYNC_NOTIFY: each cause once.",
        ),
    )


def _place(cursor: str | None) -> Place:
    """Return how far the sensor has looked; a new one looks back for a day, as owners were told of what is older by hand."""
    try:
        return Place(**json.loads(cursor or ""))
    except (ValueError, TypeError):
        return Place((now() - _FIRST_LOOK).timestamp())


def _ended_since(place: Place) -> RunsFilter:
    return RunsFilter(statuses=ENDED, updated_after=datetime.fromtimestamp(place.since, UTC))


def _tell(
    teller: Notifier, instance: DagsterInstance, folder: FeedFolder, ended: Sequence[RunRecord], late: Collection[FeedName]
) -> tuple[FeedName, ...]:
    """Tell of files that cannot be used, of feeds whose runs have ended or do not come, and of what is due; return of which."""
    feeds = [feed.mapping for feed in folder.feeds]
    asked = {one.dagster_run.tags.get(names.FEED_TAG, "") for one in ended} | teller.unfinished() | set(late)
    files, broken = teller.files(folder.broken, feeds)
    about = {one.feed: one for one in (*files, *(mapping for mapping in feeds if mapping.feed in asked))}
    crashes = {feed: _crash(teller, instance, feed) for feed in about if feed not in broken}
    teller.tell(about.values(), {**broken, **{feed: crash for feed, crash in crashes.items() if crash is not None}}, late)
    return tuple(about)


def _crash(teller: Notifier, instance: DagsterInstance, feed: FeedName) -> Concern | None:
    """Return that the feed's last run failed, where its books do not say so: what they say is better, as is a retry."""
    last = next(iter(instance.get_run_records(RunsFilter(tags={names.FEED_TAG: feed}), limit=1)), None)
    if last is None or last.dagster_run.status is not DagsterRunStatus.FAILURE:
        return None
    run = last.dagster_run
    page = Books(teller.engine).run(teller.destination, feed, run.run_id)
    if run.tags.get(_WILL_RETRY_TAG) == "true" or (page is not None and page.exit_code != 0):
        return None
    if _has_run_since(teller, feed, last):
        return None
    told = f"run {run.run_id} failed in Dagster: {_why(instance, run.run_id)}"
    return Concern(Cause.FAILED, told, "look at the run in the Dagster UI; the state is intact: the next run goes on")


def _has_run_since(teller: Notifier, feed: FeedName, run: RunRecord) -> bool:
    """Whether the feed was run elsewhere after this run of Dagster, by cron for example."""
    youngest = next(iter(Books(teller.engine).runs(destination=teller.destination, feed=feed, limit=1)), None)
    return youngest is not None and youngest.run_id != run.dagster_run.run_id and youngest.started_at > run.create_timestamp


def _why(instance: DagsterInstance, run_id: str) -> str:
    """Return what Dagster says of a failed run: the first step's own words, or the run's."""
    failures = {DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE}
    for record in instance.get_records_for_run(run_id, of_type=failures, limit=1).records:
        event = record.event_log_entry.dagster_event
        if event is not None and event.is_step_failure and event.step_failure_data.error is not None:
            return event.step_failure_data.error.message.strip().partition("\n")[0]
        return record.event_log_entry.user_message or (event.message if event and event.message else "")
    return "it does not say why"


def _without_books(place: Place, feeds: Iterable[FeedMapping], settings: Settings, trouble: SyncError) -> Place:
    """Return the place after a tick without the state DB; everybody is told once it has been away for some ticks."""
    lost = place.lost + 1
    is_told = place.is_loss_told or (lost >= LOST_AFTER and tell_of_lost_books(feeds, settings, trouble))
    return replace(place, lost=lost, is_loss_told=is_told)
