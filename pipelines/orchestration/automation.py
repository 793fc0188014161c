"""Schedules and sensors of the feeds, from their mapping files; the sensor that notifies owners; the job that deletes old runs.

A tick is skipped, not queued, while a run of the feed is at work; a scheduled run starts between two slices of a backfill. No
`from __future__ import annotations` here: Dagster reads the annotations of a step's function at run time.
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
from pipelines.orchestration.dagster_private import (
    RETRY_ON_ASSET_OR_OP_FAILURE_TAG,
    RUN_FAILURE_REASON_TAG,
    WILL_RETRY_TAG,
    RunFailureReason,
    origin_tags,
)
from pipelines.orchestration.run_tags import at_work, feeds_of, records_of
from pipelines.run.context import BACKFILL, SCHEDULE, OpenContext
from pipelines.settings import Settings
from state.queries import LedgerQueries

Tick = Callable[[dg.ScheduleEvaluationContext], dg.RunRequest | dg.SkipReason]
ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
NOTICES_SENSOR = "tell_owners"
EVERY_S = 60
CONTINUED_AFTER_S = 300.0
"""Seconds after which a sensor continues a run that failed: a source may be probed every few seconds, an outage lasts longer."""
LOST_AFTER = 3
"""Ticks in a row without the state DB after which its loss is reported; a busy one answers the next tick."""
PAUSED_S, STEADY_S = 300.0, 900.0
"""A daemon without a tick for `PAUSED_S` was away; it then gets `STEADY_S` to start the runs that were due, before a feed counts
as overdue.
"""
_BATCH = 500
JOB = "forget_old_runs"
CRON = "20 3 * * *"
_AT_ONCE = 200
_LOOK_BACK = timedelta(days=1)


def feed_schedules(mapping: FeedMapping, open_run_context: OpenContext) -> list[dg.ScheduleDefinition]:
    """Build a feed's schedule, if it has one: on from the start, in its own time zone, never two runs at once."""

    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        return at_work(context.instance, mapping.feed, open_run_context) or dg.RunRequest(tags={names.LAUNCHED_BY_TAG: SCHEDULE})

    return schedules_of_job(names.job_of(mapping.feed), mapping.schedule, tick)


def schedules_of_job(job_name: str, schedule: Schedule | None, tick: Tick) -> list[dg.ScheduleDefinition]:
    """Build the schedule of a job with the mapping file's cron line, if there is one; `tick` is called at each tick."""
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
            description="Runs the feed, unless a run of it is at work.",
        )
    ]


def parse_sensor_cursor(text: str | None) -> tuple[int, frozenset[str]] | None:
    """Parse a sensor's cursor: the number of runs requested, which makes run keys unique, and the source's marks at the last
    tick.

    None for any other text: a person may write one to make the feed run.
    """
    try:
        document = orjson.loads(text or "null")
        return int(document["turn"]), frozenset(map(str, document["marks"]))
    except (ValueError, TypeError, KeyError):
        return None


def feed_sensors(mapping: FeedMapping, access: Access, open_run_context: OpenContext) -> list[dg.SensorDefinition]:
    """Build the sensor that probes a feed's source at the interval of its schedule, if it has one; on from the start."""
    schedule = mapping.schedule
    if schedule is None or schedule.look_every_s is None:
        return []

    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        busy = at_work(context.instance, mapping.feed, open_run_context)
        if busy is not None:  # The cursor stays, so that a file that comes while a run is at work is seen by a later tick.
            return busy
        try:
            probe = probe_source(mapping.source, mapping.path.parent, access=access, folders=mapping.folders)
        except TransientError as error:
            return dg.SkipReason(f"{error}; the next tick tries again")
        except SyncError as error:
            raise dg.Failure(f"{error}\n{error.hint}") from error
        return _run_if_changed(mapping, context.cursor, probe, is_left=_is_left(context.instance, mapping.feed))

    return [
        dg.SensorDefinition(
            name=f"{names.job_of(mapping.feed)}_when_changed",
            job_name=names.job_of(mapping.feed),
            evaluation_fn=tick,
            minimum_interval_seconds=round(schedule.look_every_s),
            default_status=dg.DefaultSensorStatus.RUNNING,
            description=f"Runs {mapping.feed} when {mapping.source.place} is new or has changed.",
        )
    ]


def _last_failure(instance: dg.DagsterInstance, feed: FeedName) -> dg.RunRecord | None:
    """Return the feed's last run if it failed, else None."""
    record = next(iter(records_of(instance, feed, limit=1)), None)
    return record if record and record.dagster_run.status is dg.DagsterRunStatus.FAILURE else None


def _is_left(instance: dg.DagsterInstance, feed: FeedName) -> bool:
    """Return whether the feed's last run, not a backfill, was killed or failed after a transient error some minutes ago."""
    record = _last_failure(instance, feed)
    if record is None:
        return False
    tags, ended_s = record.dagster_run.tags, record.end_time or 0.0
    is_final = tags.get(RETRY_ON_ASSET_OR_OP_FAILURE_TAG) == "false" or tags.get(names.LAUNCHED_BY_TAG) == BACKFILL
    return not is_final and now().timestamp() - ended_s >= CONTINUED_AFTER_S


def _run_if_changed(
    mapping: FeedMapping, cursor: str | None, probe: SourceProbe, *, is_left: bool
) -> dg.SensorResult | dg.SkipReason:
    """Request a run if the source has changed since the cursor, if there is no cursor, or if the last run left work."""
    if probe.blind:
        return dg.SkipReason(probe.blind)
    last = parse_sensor_cursor(cursor)
    is_same = last is not None and not probe.is_news_to(last[1]) and not is_left
    turn = (last[0] if last else 0) + (not is_same)
    after = orjson.dumps({"turn": turn, "marks": sorted(probe.marks)}).decode()
    if is_same:
        return dg.SensorResult(skip_reason=f"unchanged: {mapping.source.place}", cursor=after)
    # Without a cursor, which a person may delete, there is no run key: the feed runs even if the source is unchanged.
    run_key = f"{mapping.feed} {hashlib.blake2b(after.encode(), digest_size=9).hexdigest()}" if last else None
    request = dg.RunRequest(run_key=run_key, tags={names.LAUNCHED_BY_TAG: SCHEDULE})  # may run between two slices of a backfill
    return dg.SensorResult(run_requests=[request], cursor=after)


@dataclass(frozen=True, slots=True)
class NoticesCursor:
    """The progress of the notices sensor; all times in seconds since the epoch.

    `since`: runs that ended before are done. `lost`: ticks in a row without the state DB. `last_tick`: the time of the last tick.
    `steady_since`: when the daemon began to tick without a pause.
    """

    since: float
    lost: int = 0
    is_loss_reported: bool = False
    last_tick: float = 0.0
    steady_since: float = 0.0

    def __str__(self) -> str:
        """Return the JSON text that Dagster stores."""
        return json.dumps(asdict(self))


def notices_cursor_at(text: str | None, moment: float) -> NoticesCursor:
    """Return the cursor for a tick at `moment` after the stored one; a new cursor starts a day earlier."""
    try:
        last = NoticesCursor(**json.loads(text or ""))
    except (ValueError, TypeError):
        last = NoticesCursor(moment - _LOOK_BACK.total_seconds())
    is_paused = moment - last.last_tick >= PAUSED_S
    return replace(last, last_tick=moment, steady_since=moment if is_paused else last.steady_since)


def notices_sensors(folder: FeedFolder, settings: Settings, open_run_context: OpenContext) -> Sequence[dg.SensorDefinition]:
    """Build the sensor that notifies owners, on from the start; none if the environment defines no channel."""
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
        return dg.SkipReason(f"checked {', '.join(notified)}" if notified else "no run has ended, and nothing is due")

    return (
        dg.SensorDefinition(
            name=NOTICES_SENSOR,
            evaluation_fn=tick,
            minimum_interval_seconds=EVERY_S,
            default_status=dg.DefaultSensorStatus.RUNNING,
            description="Notifies the owners of feeds that need attention, through EVENTSYNC_NOTIFY, once per change.",
        ),
    )


def _notify(
    notifier: Notifier,
    instance: dg.DagsterInstance,
    folder: FeedFolder,
    ended: Sequence[dg.RunRecord],
    overdue: Collection[FeedName],
) -> tuple[FeedName, ...]:
    """Notify of broken files, and of feeds whose runs ended or are overdue; return these feeds."""
    feeds = list(folder.feeds)
    wanted = {feed for one in ended for feed in feeds_of(one.dagster_run)} | set(overdue)
    files, concerns = notifier.files(folder.broken, feeds)
    about = {one.feed: one for one in (*files, *(mapping for mapping in feeds if mapping.feed in wanted))}
    crashes = {feed: _crash(notifier, instance, feed) for feed in about if feed not in concerns}
    notifier.notify(about.values(), {**concerns, **{feed: crash for feed, crash in crashes.items() if crash}}, overdue)
    return tuple(about)


def _crash(notifier: Notifier, instance: dg.DagsterInstance, feed: FeedName) -> Concern | None:
    """Return the concern that the feed's last run failed in Dagster.

    None if the state DB has its outcome, if a retry follows, or if the run was interrupted, as by a restart.
    """
    record = _last_failure(instance, feed)
    if record is None:
        return None
    run, queries = record.dagster_run, LedgerQueries(notifier.engine)
    if run.tags.get(RUN_FAILURE_REASON_TAG) == RunFailureReason.UNEXPECTED_TERMINATION.value:
        return None
    recorded = queries.run(notifier.destination, feed, run.run_id)
    if run.tags.get(WILL_RETRY_TAG) == "true" or (recorded is not None and recorded.exit_code != 0):
        return None
    youngest = next(iter(queries.runs(destination=notifier.destination, feed=feed, limit=1)), None)
    has_run_since = youngest is not None and youngest.run_id != run.run_id and youngest.started_at > record.create_timestamp
    if has_run_since:  # elsewhere, by cron for example
        return None
    message = _failure_message(instance, run, feed)
    if message is None:
        return None
    text = f"run {run.run_id} failed in Dagster: {message}"
    return Concern(Cause.FAILED, text, "see the run in the Dagster UI; the state is intact: the next run continues")


def _failure_message(instance: dg.DagsterInstance, run: dg.DagsterRun, feed: FeedName) -> str | None:
    """Return the first line of the first failed step's error in Dagster, or else of the run's own.

    In a run of several feeds only the feed's own step counts; None if it succeeded, in this run or in the one that this repeats.
    """
    ends = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
    own_step = names.step_of(feed) if run.job_name == names.DUE_FEEDS_JOB else None
    if own_step and run.parent_run_id and own_step not in (run.step_keys_to_execute or [own_step]):
        return None
    if own_step:
        ends.add(dg.DagsterEventType.STEP_SUCCESS)
    for record in instance.get_records_for_run(run.run_id, of_type=ends).records:
        entry, event = record.event_log_entry, record.event_log_entry.dagster_event
        if own_step and entry.step_key not in {None, own_step}:
            continue
        if event is not None and event.is_step_success:
            return None
        failure = event and (event.step_failure_data if event.is_step_failure else event.job_failure_data)
        if failure and failure.error:
            return failure.error.message.strip().partition("\n")[0]
        return entry.user_message or (event.message if event and event.message else "")
    return "no reason is recorded"


class KeepFor(dg.Config):
    """How long runs are kept."""

    days: int = Field(default=90, ge=7, description="Delete runs that began more days ago than this; the ledger is not touched.")


def history_definitions() -> dg.Definitions:
    """Build the job that deletes old runs with their logs, and its daily schedule, which is off by default."""

    @dg.op(description="Deletes old runs with their events and output; the newest event of each asset stays.")
    def forget(context: dg.OpExecutionContext, config: KeepFor) -> None:
        count = sum(1 for _ in forget_runs(context.instance, now() - timedelta(days=config.days)))
        context.log.info("deleted %s runs that began more than %s days ago", count, config.days)

    @dg.job(name=JOB, description="Deletes old runs in Dagster; `eventsync prune` does so in the state DB.")
    def forget_old_runs() -> None:
        forget()

    schedule = dg.ScheduleDefinition(name=names.schedule_of_job(JOB), job=forget_old_runs, cron_schedule=CRON)
    return dg.Definitions(jobs=[forget_old_runs], schedules=[schedule])


def forget_runs(instance: dg.DagsterInstance, before: datetime) -> Iterator[str]:
    """Delete the ended runs of our code location that began before a moment; yield their ids."""
    old = dg.RunsFilter(statuses=ENDED, created_before=before, tags=origin_tags())
    while runs := instance.get_run_records(old, limit=_AT_ONCE, ascending=True):
        for record in runs:
            run_id = record.dagster_run.run_id
            instance.compute_log_manager.delete_logs(prefix=[run_id])
            instance.delete_run(run_id)
            yield run_id
