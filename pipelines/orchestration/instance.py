"""Conveniences for a whole Dagster instance that is ours: notices to owners, and a job that deletes old runs of our location.

No `from __future__ import annotations` here: Dagster reads the annotations of a step's function at run time.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta

import dagster as dg
from pydantic import Field

from mappings.errors import ConfigError, SyncError
from mappings.row_key import FeedName
from mappings.yaml.loader import FeedFolder
from pipelines.clock import now
from pipelines.notices import Cause, Concern, Notifier, notifier_of, notify_of_lost_state_db
from pipelines.orchestration import names
from pipelines.orchestration.dagster_private import origin_tags
from pipelines.orchestration.layout import Layout
from pipelines.orchestration.run_tags import feeds_of, last_failure
from pipelines.orchestration.workers import INTERRUPTIONS
from pipelines.run.context import OpenContext
from pipelines.settings import Settings
from state.queries import LedgerQueries

ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
NOTICES_SENSOR = "tell_owners"
EVERY_S = 60
LOST_AFTER = 3
"""Ticks in a row without the state DB after which its loss is reported; a busy one answers the next tick."""
PAUSED_S, STEADY_S = 300.0, 900.0
"""A daemon without a tick for `PAUSED_S` was away; it then gets `STEADY_S` to start the runs that were due, before a feed counts
as overdue.
"""
_BATCH = 500
JOB = "trim_run_history"
"""After `sync` in the lists of jobs, which are in alphabetical order."""
CRON = "20 3 * * *"
_AT_ONCE = 200
_LOOK_BACK = timedelta(days=1)


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


def notices_sensors(
    folder: FeedFolder, settings: Settings, open_run_context: OpenContext, layout: Layout | None = None
) -> Sequence[dg.SensorDefinition]:
    """Build the sensor that notifies owners, on from the start; none if the environment defines no channel."""
    if not settings.channels.addresses:
        return ()
    feeds, layout = list(folder.feeds), layout or Layout()

    def tick(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        cursor = notices_cursor_at(context.cursor, now().timestamp())
        since = dg.RunsFilter(statuses=ENDED, updated_after=datetime.fromtimestamp(cursor.since, UTC))
        ended = context.instance.get_run_records(since, limit=_BATCH, order_by="update_timestamp", ascending=True)
        is_steady = cursor.last_tick - cursor.steady_since >= STEADY_S  # for long enough that due runs would have begun
        try:
            with open_run_context() as run_context:
                notifier = notifier_of(settings, run_context.engine, run_context.now)
                overdue = notifier.newly_overdue(feeds) if is_steady else frozenset[FeedName]()
                notified = _notify(notifier, context.instance, layout, folder, ended, overdue)
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

    notifies = "Notifies the owners of feeds that need attention, through EVENTSYNC_NOTIFY, once per change."
    return (layout.sensor(NOTICES_SENSOR, EVERY_S, tick, notifies),)


def _notify(
    notifier: Notifier,
    instance: dg.DagsterInstance,
    layout: Layout,
    folder: FeedFolder,
    ended: Sequence[dg.RunRecord],
    overdue: Collection[FeedName],
) -> tuple[FeedName, ...]:
    """Notify of broken files, and of feeds whose runs ended or are overdue; return these feeds."""
    feeds = list(folder.feeds)
    wanted = {feed for one in ended for feed in feeds_of(one.dagster_run)} | set(overdue)
    files, concerns = notifier.files(folder.broken, feeds)
    about = {one.feed: one for one in (*files, *(mapping for mapping in feeds if mapping.feed in wanted))}
    crashes = {feed: _crash(notifier, instance, layout, feed) for feed in about if feed not in concerns}
    notifier.notify(about.values(), {**concerns, **{feed: crash for feed, crash in crashes.items() if crash}}, overdue)
    return tuple(about)


def _crash(notifier: Notifier, instance: dg.DagsterInstance, layout: Layout, feed: FeedName) -> Concern | None:
    """Return the concern that the feed's last run failed in Dagster.

    None if the state DB has its outcome, if a retry follows, or if the run was interrupted, as by a restart.
    """
    record = last_failure(instance, feed)
    if record is None:
        return None
    run, queries = record.dagster_run, LedgerQueries(notifier.engine)
    recorded = queries.run(notifier.destination, feed, run.run_id)
    if run.is_complete_and_waiting_to_retry or (recorded is not None and recorded.exit_code != 0):
        return None
    youngest = next(iter(queries.runs(destination=notifier.destination, feed=feed, limit=1)), None)
    has_run_since = youngest is not None and youngest.run_id != run.run_id and youngest.started_at > record.create_timestamp
    if has_run_since:  # elsewhere, by cron for example
        return None
    message = _failure_message(instance, run, [layout.named(names.step_of(feed, phase)) for phase in names.PHASES])
    if message is None:
        return None
    text = f"run {run.run_id} failed in Dagster: {message}"
    return Concern(Cause.FAILED, text, "see the run in the Dagster UI; the state is intact: the next run continues")


def _failure_message(instance: dg.DagsterInstance, run: dg.DagsterRun, steps: Sequence[str]) -> str | None:
    """Return the first line of the error of a feed's first failed step in Dagster, or else of the run's own.

    None if the run was interrupted, or if the feed's `steps` succeeded, in this run or in the one that this repeats.
    """
    if run.parent_run_id and run.step_keys_to_execute and not {*steps} & {*run.step_keys_to_execute}:
        return None
    ends = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.STEP_SUCCESS, dg.DagsterEventType.RUN_FAILURE}
    for record in instance.get_records_for_run(run.run_id, of_type=ends).records:
        entry, event = record.event_log_entry, record.event_log_entry.dagster_event
        if entry.step_key not in {None, *steps}:
            continue
        if event is not None and event.is_step_success:
            if entry.step_key == steps[-1]:
                return None
            continue
        failure = event and (event.step_failure_data if event.is_step_failure else event.job_failure_data)
        if failure and failure.error:
            is_interrupted = failure.error.cls_name in INTERRUPTIONS
            return None if is_interrupted else failure.error.message.strip().partition("\n")[0]
        return entry.user_message or (event.message if event and event.message else "")
    return "no reason is recorded"


class KeepFor(dg.Config):
    """How long runs are kept."""

    days: int = Field(default=90, ge=7, description="Delete runs that began more days ago than this; the ledger is not touched.")


def instance_definitions(folder: FeedFolder, settings: Settings, open_run_context: OpenContext) -> dg.Definitions:
    """Build the sensor that notifies owners, and the job that deletes old runs, whose daily schedule is off by default."""

    @dg.op(description="Deletes old runs with their events and output; the newest event of each asset stays.")
    def forget(context: dg.OpExecutionContext, config: KeepFor) -> None:
        count = sum(1 for _ in forget_runs(context.instance, now() - timedelta(days=config.days)))
        context.log.info("deleted %s runs that began more than %s days ago", count, config.days)

    @dg.job(name=JOB, description="Deletes old runs in Dagster; `eventsync prune` does so in the state DB.")
    def trim_run_history() -> None:
        forget()

    schedule = dg.ScheduleDefinition(
        name=f"{JOB}_schedule", job=trim_run_history, cron_schedule=CRON, description="Deletes old runs each night. Off at first."
    )
    sensors = notices_sensors(folder, settings, open_run_context)
    return dg.Definitions(jobs=[trim_run_history], schedules=[schedule], sensors=sensors)


def forget_runs(instance: dg.DagsterInstance, before: datetime) -> Iterator[str]:
    """Delete the ended runs of our code location that began before a moment; yield their ids."""
    old = dg.RunsFilter(statuses=ENDED, created_before=before, tags=origin_tags())
    while runs := instance.get_run_records(old, limit=_AT_ONCE, ascending=True):
        for record in runs:
            run_id = record.dagster_run.run_id
            instance.compute_log_manager.delete_logs(prefix=[run_id])
            instance.delete_run(run_id)
            yield run_id
