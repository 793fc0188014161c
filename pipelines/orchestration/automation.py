"""Each feed's schedule and sensor, as its mapping file says them; the sensor that notifies owners; the job that forgets old runs.

A tick that finds the feed still at work is skipped, not queued; one that finds a backfill at work gets in between two slices.
Annotations are not postponed here, because Dagster reads those of a step's function.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta

import dagster as dg
import orjson
from pydantic import Field

from connectors.sources.catalogue import SourceProbe, probe_source
from connectors.sources.contract import Access
from mappings.errors import ConfigError, SyncError, TransientError
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping, Schedule
from mappings.yaml.loader import FeedFolder
from pipelines.clock import now
from pipelines.notices import Cause, Concern, Notifier, notifier_of, notify_of_lost_state_db
from pipelines.orchestration import names
from pipelines.orchestration.dagster_private import WILL_RETRY_TAG
from pipelines.run.context import BACKFILL, SCHEDULE, OpenContext
from pipelines.settings import Settings
from state.queries import LedgerQueries

Tick = Callable[[dg.ScheduleEvaluationContext], dg.RunRequest | dg.SkipReason]
ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
AT_WORK = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
"""Not `NOT_STARTED`: a process that died before its run began would leave it so for ever."""
NOTICES_SENSOR = "tell_owners"
EVERY_S = 60
LOST_AFTER = 3
"""So many ticks in a row without the state DB are reported; a busy one is back with the next tick."""
PAUSED_S, STEADY_S = 300.0, 900.0
"""A daemon that did not tick for the first was away. Once back it gets the second to begin the runs that were due meanwhile,
before a feed counts as overdue.
"""
_BATCH = 500
JOB = "forget_old_runs"
CRON = "20 3 * * *"
_AT_ONCE = 200
_LOOK_BACK = timedelta(days=1)


def feed_schedules(mapping: FeedMapping) -> list[dg.ScheduleDefinition]:
    """Return a feed's schedule, if it has one: running from the start, in its own time zone, never two runs at once."""

    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        return at_work(context.instance, mapping.feed) or dg.RunRequest(tags={names.LAUNCHED_BY_TAG: SCHEDULE})

    return schedules_of_job(names.job_of(mapping.feed), mapping.schedule, tick)


def schedules_of_job(job_name: str, schedule: Schedule | None, tick: Tick) -> list[dg.ScheduleDefinition]:
    """Return the schedule of a job by the cron line of a mapping file, if there is one; `tick` is called at each tick."""
    if schedule is None or schedule.cron is None:
        return []
    return [
        dg.ScheduleDefinition(
            name=names.schedule_of_job(job_name),
            job_name=job_name,
            cron_schedule=schedule.cron,
            execution_timezone=schedule.timezone,
            execution_fn=tick,
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
    ]


def at_work(instance: dg.DagsterInstance, feed: FeedName) -> dg.SkipReason | None:
    """Return which run of a feed has not ended yet; None if all have, or if only a backfill has not."""
    found = instance.get_run_records(dg.RunsFilter(tags={names.FEED_TAG: feed}, statuses=AT_WORK))
    runs = [record.dagster_run for record in found if record.dagster_run.tags.get(names.LAUNCHED_BY_TAG) != BACKFILL]
    return dg.SkipReason(f"run {runs[0].run_id} of {feed} has not ended yet") if runs else None


def parse_sensor_cursor(text: str | None) -> tuple[int, frozenset[str]] | None:
    """Return how many runs were requested, so that each has a key of its own, and the marks of the source at the last tick.

    None for any other text: a person may write one to have the feed run.
    """
    try:
        document = orjson.loads(text or "null")
        return int(document["turn"]), frozenset(map(str, document["marks"]))
    except (ValueError, TypeError, KeyError):
        return None


def feed_sensors(mapping: FeedMapping, access: Access) -> list[dg.SensorDefinition]:
    """Return the sensor that probes a feed's source as often as its schedule says, if it does: on from the start."""
    schedule = mapping.schedule
    if schedule is None or schedule.look_every_s is None:
        return []

    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        busy = at_work(context.instance, mapping.feed)
        if busy is not None:  # The cursor stays, so that a file that comes while a run is at work is seen by a later tick.
            return busy
        try:
            probe = probe_source(mapping.source, mapping.path.parent, access=access)
        except TransientError as error:
            return dg.SkipReason(f"{error}; looked at again later")
        except SyncError as error:
            raise dg.Failure(f"{error}\n{error.hint}") from error
        return _run_if_changed(mapping, context.cursor, probe)

    return [
        dg.SensorDefinition(
            name=f"{names.job_of(mapping.feed)}_when_changed",
            job_name=names.job_of(mapping.feed),
            evaluation_fn=tick,
            minimum_interval_seconds=round(schedule.look_every_s),
            default_status=dg.DefaultSensorStatus.RUNNING,
            description=f"Runs {mapping.feed} when {mapping.source.place} has come or changed.",
        )
    ]


def _run_if_changed(mapping: FeedMapping, cursor: str | None, probe: SourceProbe) -> dg.SensorResult | dg.SkipReason:
    """Request a run if the source has changed, or if there is no cursor: what earlier runs have read is then unknown."""
    if probe.blind:
        return dg.SkipReason(probe.blind)
    last = parse_sensor_cursor(cursor)
    is_same = last is not None and not probe.is_news_to(last[1])
    turn = (last[0] if last else 0) + (not is_same)
    after = orjson.dumps({"turn": turn, "marks": sorted(probe.marks)}).decode()
    if is_same:
        return dg.SensorResult(skip_reason=f"as it was: {mapping.source.place}", cursor=after)
    # Without a cursor, which a person may have removed, there is no run key: the feed runs even if it ran so before.
    run_key = f"{mapping.feed} {hashlib.blake2b(after.encode(), digest_size=9).hexdigest()}" if last else None
    request = dg.RunRequest(run_key=run_key, tags={names.LAUNCHED_BY_TAG: SCHEDULE})  # it gets in between slices of a backfill
    return dg.SensorResult(run_requests=[request], cursor=after)


@dataclass(frozen=True, slots=True)
class NoticesCursor:
    """The progress of the notices sensor. All times in seconds since the epoch.

    `since`: runs that ended until then are done with. `lost`: ticks in a row without the state DB. `last_tick`: the last one.
    `steady_since`: when the daemon began to tick without a pause.
    """

    since: float
    lost: int = 0
    is_loss_reported: bool = False
    last_tick: float = 0.0
    steady_since: float = 0.0

    def __str__(self) -> str:
        """Return the text that Dagster keeps."""
        return json.dumps(asdict(self))


def notices_cursor_at(text: str | None, moment: float) -> NoticesCursor:
    """Return the cursor of a tick after the one that `text` is of; a new one looks back for a day, as what is older is known."""
    try:
        last = NoticesCursor(**json.loads(text or ""))
    except (ValueError, TypeError):
        last = NoticesCursor(moment - _LOOK_BACK.total_seconds())
    is_paused = moment - last.last_tick >= PAUSED_S
    return replace(last, last_tick=moment, steady_since=moment if is_paused else last.steady_since)


def notices_sensors(folder: FeedFolder, settings: Settings, open_run_context: OpenContext) -> Sequence[dg.SensorDefinition]:
    """Return the sensor that notifies owners, on from the start; none where the environment names no channel."""
    if not settings.channels.addresses:
        return ()
    feeds = list(folder.feeds)

    def tick(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        cursor = notices_cursor_at(context.cursor, now().timestamp())
        since = dg.RunsFilter(statuses=ENDED, updated_after=datetime.fromtimestamp(cursor.since, UTC))
        ended = context.instance.get_run_records(since, limit=_BATCH, order_by="update_timestamp", ascending=True)
        is_steady = cursor.last_tick - cursor.steady_since >= STEADY_S  # for long enough that due runs would have begun
        try:
            with open_run_context() as run_context:
                notifier = notifier_of(settings, run_context.engine, run_context.now)
                overdue = notifier.newly_overdue(feeds) if is_steady else frozenset[FeedName]()
                notified = _notify(notifier, context.instance, folder, ended, overdue)
        except ConfigError as error:
            return dg.SkipReason(f"no notification can be sent: {settings.mask.hide(str(error))}; {error.hint}")
        except SyncError as error:
            lost, is_reported = cursor.lost + 1, cursor.is_loss_reported
            is_reported = is_reported or (lost >= LOST_AFTER and notify_of_lost_state_db(feeds, settings, error))
            context.update_cursor(str(replace(cursor, lost=lost, is_loss_reported=is_reported)))
            return dg.SkipReason(f"the state DB cannot be used: {settings.mask.hide(str(error))}")
        latest = max((one.update_timestamp.timestamp() for one in ended), default=cursor.since)
        context.update_cursor(str(replace(cursor, since=latest, lost=0, is_loss_reported=False)))
        return dg.SkipReason(f"looked at {', '.join(notified)}" if notified else "no run has ended, and nothing is due")

    return (
        dg.SensorDefinition(
            name=NOTICES_SENSOR,
            evaluation_fn=tick,
            minimum_interval_seconds=EVERY_S,
            default_status=dg.DefaultSensorStatus.RUNNING,
            description="Notifies the owners of feeds of what needs them, over the channels of EVENTSYNC_NOTIFY: once per cause.",
        ),
    )


def _notify(
    notifier: Notifier,
    instance: dg.DagsterInstance,
    folder: FeedFolder,
    ended: Sequence[dg.RunRecord],
    overdue: Collection[FeedName],
) -> tuple[FeedName, ...]:
    """Notify of broken files, of feeds whose runs have ended or are overdue, and of what is due; return the feeds concerned."""
    feeds = list(folder.feeds)
    wanted = {one.dagster_run.tags.get(names.FEED_TAG, "") for one in ended} | notifier.unfinished() | set(overdue)
    files, concerns = notifier.files(folder.broken, feeds)
    about = {one.feed: one for one in (*files, *(mapping for mapping in feeds if mapping.feed in wanted))}
    crashes = {feed: _crash(notifier, instance, feed) for feed in about if feed not in concerns}
    notifier.notify(about.values(), {**concerns, **{feed: crash for feed, crash in crashes.items() if crash}}, overdue)
    return tuple(about)


def _crash(notifier: Notifier, instance: dg.DagsterInstance, feed: FeedName) -> Concern | None:
    """Return the concern that the feed's last run failed in Dagster, unless the state DB knows better or a retry follows."""
    record = next(iter(instance.get_run_records(dg.RunsFilter(tags={names.FEED_TAG: feed}), limit=1)), None)
    if record is None or record.dagster_run.status is not dg.DagsterRunStatus.FAILURE:
        return None
    run, queries = record.dagster_run, LedgerQueries(notifier.engine)
    recorded = queries.run(notifier.destination, feed, run.run_id)
    if run.tags.get(WILL_RETRY_TAG) == "true" or (recorded is not None and recorded.exit_code != 0):
        return None
    youngest = next(iter(queries.runs(destination=notifier.destination, feed=feed, limit=1)), None)
    if youngest is not None and youngest.run_id != run.run_id and youngest.started_at > record.create_timestamp:
        return None  # it has run elsewhere since, by cron for example
    text = f"run {run.run_id} failed in Dagster: {_failure_message(instance, run.run_id)}"
    return Concern(Cause.FAILED, text, "look at the run in the Dagster UI; the state is intact: the next run goes on")


def _failure_message(instance: dg.DagsterInstance, run_id: str) -> str:
    """Return what Dagster says of a failed run: the first line of the first failed step's error, or the run's message."""
    failures = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
    for record in instance.get_records_for_run(run_id, of_type=failures, limit=1).records:
        event = record.event_log_entry.dagster_event
        if event is not None and event.is_step_failure and event.step_failure_data.error is not None:
            return event.step_failure_data.error.message.strip().partition("\n")[0]
        return record.event_log_entry.user_message or (event.message if event and event.message else "")
    return "it does not say why"


class KeepFor(dg.Config):
    """Which part of the history stays."""

    days: int = Field(default=90, ge=7, description="Runs that began more days ago are forgotten; what feeds have sent is not.")


def history_definitions() -> dg.Definitions:
    """Return the job that deletes old runs with their logs, and its daily schedule, which is off until it is switched on."""

    @dg.op(description="Deletes old runs, their events and what they printed; the newest event of each asset stays.")
    def forget(context: dg.OpExecutionContext, config: KeepFor) -> None:
        count = sum(1 for _ in forget_runs(context.instance, now() - timedelta(days=config.days)))
        context.log.info("%s runs that began more than %s days ago are forgotten", count, config.days)

    @dg.job(name=JOB, description="Forgets old runs in Dagster; the state DB is `eventsync prune`'s.")
    def forget_old_runs() -> None:
        forget()

    schedule = dg.ScheduleDefinition(name=names.schedule_of_job(JOB), job=forget_old_runs, cron_schedule=CRON)
    return dg.Definitions(jobs=[forget_old_runs], schedules=[schedule])


def forget_runs(instance: dg.DagsterInstance, before: datetime) -> Iterator[str]:
    """Delete the runs that began before a moment and have ended, and yield their ids."""
    old = dg.RunsFilter(statuses=ENDED, created_before=before)
    while runs := instance.get_run_records(old, limit=_AT_ONCE, ascending=True):
        for record in runs:
            run_id = record.dagster_run.run_id
            instance.compute_log_manager.delete_logs(prefix=[run_id])
            instance.delete_run(run_id)
            yield run_id
