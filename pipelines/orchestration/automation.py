"""Schedules and sensors of the feeds, from their mapping files. All of them start runs of the job `sync`.

A tick is skipped, not queued, while a run of the feed is at work; a scheduled run starts between two slices of a backfill. Feeds
that are due at the same time share a run: the process of a run takes seconds to start, a small feed less than one. No `from
__future__ import annotations` here: Dagster reads the annotations of a step's function at run time.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

import dagster as dg
import orjson

from connectors.sources.catalogue import SourceProbe, probe_source
from connectors.sources.contract import Access
from mappings.errors import SyncError, TransientError
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping, Schedule
from pipelines.clock import now
from pipelines.orchestration import names
from pipelines.orchestration.dagster_private import DATA_VERSION_TAG
from pipelines.orchestration.layout import FeedSpecs, Layout
from pipelines.orchestration.run_tags import feed_tags, feeds_at_work, last_failure
from pipelines.run.context import BACKFILL, SCHEDULE, OpenContext
from state.queries import last_read_rows

CONTINUED_AFTER_S = 300.0
"""Seconds after which a sensor continues a run that failed: a source may be probed every few seconds, an outage lasts longer."""
FEWEST_FEEDS = 20
"""So many feeds with the same cron line and time zone share a schedule; fewer have one each."""
MOST_FEEDS = 50
"""Feeds of one run."""
UPDATES_EVERY_S = 30
"""Dagster's own interval of sensors."""
MOST_ROWS = 1_000
"""A feed whose last read had more rows gets a run alone, so that it delays no other."""


def feed_schedules(
    feeds: Sequence[FeedSpecs], broken: Iterable[Schedule | None], layout: Layout, open_run_context: OpenContext
) -> list[dg.ScheduleDefinition]:
    """Build the schedules of all feeds, on from the start: one for each feed, or for all feeds with the same cron line and zone.

    `broken`: schedules of broken mapping files, which count, so that a mistake in one file moves no other feed.
    """
    by_clock: defaultdict[Schedule, list[FeedSpecs]] = defaultdict(list)
    for specs in feeds:
        schedule = specs.mapping.schedule
        if schedule is not None and schedule.cron is not None:
            by_clock[Schedule(cron=schedule.cron, timezone=schedule.timezone, alone=schedule.alone)].append(specs)
    others = Counter(Schedule(cron=one.cron, timezone=one.timezone) for one in broken if one and one.cron and not one.alone)
    made = []
    for clock, some in by_clock.items():
        if clock.alone or len(some) + others[clock] < FEWEST_FEEDS:
            made += [_schedule(names.schedule_of(one.feed), clock, [one], layout, open_run_context) for one in some]
        else:
            made.append(_schedule(f"due_feeds_{_name_of(clock)}", clock, some, layout, open_run_context))
    return made


def _schedule(
    name: str, clock: Schedule, feeds: Sequence[FeedSpecs], layout: Layout, open_run_context: OpenContext
) -> dg.ScheduleDefinition:
    """Build a schedule in the feeds' own time zone; no feed ever has two runs at once."""

    def tick(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        at_work = feeds_at_work(context.instance, open_run_context)
        ready = [one for one in feeds if one.feed not in at_work.busy]
        if not ready:
            whose = at_work.busy[feeds[0].feed] if len(feeds) == 1 else f"runs of all {len(feeds)} feeds"
            yield dg.SkipReason(f"at work: {whose}")
        for run in _runs(ready, at_work.backfilled, open_run_context):
            tags = {names.LAUNCHED_BY_TAG: SCHEDULE, **feed_tags([one.feed for one in run])}
            # A feed is asked for once in a tick, also if the daemon crashes in it and repeats it.
            yield dg.RunRequest(
                run[0].feed, tags=tags, asset_selection=[key for one in run for key in one.selection], asset_check_keys=[]
            )

    several = f"Runs the {len(feeds)} feeds that have this schedule, except those at work."
    return layout.schedule(name, clock, tick, several if len(feeds) > 1 else "Runs the feed, unless a run of it is at work.")


def _runs(
    feeds: Sequence[FeedSpecs], backfilled: frozenset[FeedName], open_run_context: OpenContext
) -> Iterator[Sequence[FeedSpecs]]:
    """Yield the feeds of each run: alone those that are large, or may have to wait for a backfill; the others together."""
    if len(feeds) < 2:
        yield from [feeds] if feeds else []
        return
    slow = backfilled | _large_feeds(open_run_context)
    small = [one for one in feeds if one.feed not in slow]
    count = -(-len(small) // MOST_FEEDS)
    yield from ([one] for one in feeds if one.feed in slow)
    yield from (small[number::count] for number in range(count))


def _name_of(clock: Schedule) -> str:
    """Return a cron line and its time zone as part of a name, different for each."""
    cron = str.maketrans({" ": "_", "*": "x", "/": "by", "-": "to", ",": "and"})
    zone = str.maketrans({"/": "_", "-": "minus", "+": "plus"})
    return f"{str(clock.cron).translate(cron)}_{clock.timezone.translate(zone)}"


def _large_feeds(open_run_context: OpenContext) -> frozenset[FeedName]:
    """Return the feeds whose last read was large; none if the state DB does not answer, which each run reports itself."""
    try:
        with open_run_context() as run_context:
            rows = last_read_rows(run_context.engine, run_context.settings.destination)
    except SyncError:
        return frozenset()
    return frozenset(feed for feed, count in rows.items() if count > MOST_ROWS)


def parse_sensor_cursor(text: str | None) -> tuple[int, frozenset[str]] | None:
    """Parse a sensor's cursor: the number of runs requested, which makes run keys unique, and the marks of the source, or of the
    assets before it, at the last tick.

    None for any other text: a person may write one to make the feed run.
    """
    try:
        document = orjson.loads(text or "null")
        return int(document["turn"]), frozenset(map(str, document["marks"]))
    except (ValueError, TypeError, KeyError):
        return None


def feed_sensors(
    feeds: Iterable[FeedSpecs], access: Access, layout: Layout, open_run_context: OpenContext
) -> list[dg.SensorDefinition]:
    """Build the sensors that probe the sources of feeds at the intervals of their schedules, and those that look for updates of
    the assets before them; on from the start.
    """
    made = []
    for one in feeds:
        schedule, place = one.mapping.schedule, one.mapping.source.place
        if schedule is not None and schedule.look_every_s is not None:
            source = Watched("changed", place, schedule.look_every_s, partial(probe_feed, one.mapping, access))
            made.append(_sensor(one, source, layout, open_run_context))
        if schedule is not None and schedule.on_update:
            assets = ", ".join(key.to_user_string() for key in one.after)
            before = Watched("updated", assets, UPDATES_EVERY_S, partial(_updates, one.after))
            made.append(_sensor(one, before, layout, open_run_context))
    return made


class Watched(NamedTuple):
    """What a sensor looks at, and how often. `event`: what starts a run: that it was `changed` or `updated`."""

    event: Literal["changed", "updated"]
    what: str
    every_s: float
    probe: Callable[[dg.DagsterInstance], SourceProbe]


def _sensor(specs: FeedSpecs, watched: Watched, layout: Layout, open_run_context: OpenContext) -> dg.SensorDefinition:
    feed = specs.feed

    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        run = feeds_at_work(context.instance, open_run_context).busy.get(feed)
        if run:  # The cursor stays, so that what comes while a run is at work is seen by a later tick.
            return dg.SkipReason(f"at work: {run}")
        try:
            found = watched.probe(context.instance)
        except TransientError as error:
            return dg.SkipReason(f"{error}; the next tick tries again")
        except SyncError as error:
            raise dg.Failure(f"{error}\n{error.hint}") from error
        if watched.event == "updated" and not context.cursor:  # What was there before the feed is not news.
            return dg.SensorResult(skip_reason=f"waits for an update of {watched.what}", cursor=_cursor(0, found))
        return _run_if_changed(specs, watched.what, context.cursor, found, is_left=_is_left(context.instance, feed))

    name = f"sync_{names.group_of(feed)}_when_{watched.event}"
    when = f"{watched.what} is {'new or has changed' if watched.event == 'changed' else 'updated'}"
    return layout.sensor(name, watched.every_s, tick, f"Runs {feed} when {when}.", names.JOB)


def probe_feed(mapping: FeedMapping, access: Access, _instance: dg.DagsterInstance | None = None) -> SourceProbe:
    """Probe the source of a feed."""
    return probe_source(mapping.source, mapping.path.parent, access=access, folders=mapping.folders)


def _updates(keys: Iterable[dg.AssetKey], instance: dg.DagsterInstance) -> SourceProbe:
    """Return a mark of the last update of each asset that has one.

    Every materialization is an update, unless the asset gives its data version itself and the version is as before; an
    observation is one if its data version is new. `dg.asset_sensor` watches one asset and runs at first load,
    `dg.multi_asset_sensor` is superseded, and automation conditions cannot see that a run of the feed is at work.
    """
    marks = list[str]()
    for key in keys:
        for record in instance.fetch_materializations(key, limit=1).records:
            made = record.asset_materialization
            tags = made.tags or {} if made and not made.partition else {}
            origin = dg.DataProvenance.from_tags(tags)  # None for a version that was reported from outside
            given = tags.get(DATA_VERSION_TAG) if origin is None or origin.is_user_provided else None
            marks.append(f"{key.to_user_string()} {given or record.storage_id}")
        for record in instance.fetch_observations(key, limit=1).records:
            seen = record.event_log_entry.asset_observation
            marks += [f"{key.to_user_string()} observed {seen.data_version}"] if seen and seen.data_version else []
    return SourceProbe(frozenset(marks), is_growing=True)


def _is_left(instance: dg.DagsterInstance, feed: FeedName) -> bool:
    """Return whether the feed's last run, not a backfill, was killed or failed after a transient error some minutes ago."""
    record = last_failure(instance, feed)
    if record is None:
        return False
    tags, ended_s = record.dagster_run.tags, record.end_time or 0.0
    is_final = tags.get(names.RUN_RETRY_TAG) == "false" or tags.get(names.LAUNCHED_BY_TAG) == BACKFILL
    return not is_final and now().timestamp() - ended_s >= CONTINUED_AFTER_S


def _cursor(turn: int, probe: SourceProbe) -> str:
    return orjson.dumps({"turn": turn, "marks": sorted(probe.marks)}).decode()


def _run_if_changed(
    specs: FeedSpecs, what: str, cursor: str | None, probe: SourceProbe, *, is_left: bool
) -> dg.SensorResult | dg.SkipReason:
    """Request a run if `what` has changed since the cursor, if there is no cursor, or if the last run left work."""
    if probe.blind:
        return dg.SkipReason(probe.blind)
    last = parse_sensor_cursor(cursor)
    is_same = last is not None and not probe.is_news_to(last[1]) and not is_left
    after = _cursor((last[0] if last else 0) + (not is_same), probe)
    if is_same:
        return dg.SensorResult(skip_reason=f"unchanged: {what}", cursor=after)
    # Without a cursor, which a person may delete, there is no run key: the feed runs even if the source is unchanged.
    run_key = f"{specs.feed} {hashlib.blake2b(after.encode(), digest_size=9).hexdigest()}" if last else None
    tags = {names.LAUNCHED_BY_TAG: SCHEDULE, names.FEED_TAG: specs.feed}  # may run between two slices of a backfill
    request = dg.RunRequest(run_key, tags=tags, asset_selection=specs.selection, asset_check_keys=[])
    return dg.SensorResult(run_requests=[request], cursor=after)
