"""What Dagster is asked for when a run is launched: job, run configuration, assets and tags from the options of a run.

Imports no Dagster; asking it is `webserver`'s and `in_process`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping
from pipelines import names
from pipelines.clock import now
from pipelines.run.backfill import FIRST_SHOWN, has_days, usual_way
from pipelines.run.options import RunOptions


def launch_config(options: RunOptions) -> dict[str, Any]:
    """Return the run configuration that asks for the `options`; nothing in it is secret."""
    config: dict[str, Any] = {
        "row_keys": list(options.keys),
        "as_draft": options.status == "draft",
        "accept": list(options.accept),
        "full": options.full,
        "wait": options.wait,
        "publish_only": options.publish_only,
    }
    if options.limit is not None:
        config["limit"] = options.limit
    if options.window is not None:
        config["window"] = options.window.model_dump(mode="json")
    return {"resources": {"options": {"config": config}}}


def wanted_assets(feed: FeedName, options: RunOptions) -> Sequence[names.AssetPath]:
    """Return the assets that the options limit a run to; none means all of them."""
    if options.stage_only:
        return [names.staged_path(feed)]
    if options.publish_only:
        return [names.published_path(feed)]
    return []


def launched_job(mapping: FeedMapping, options: RunOptions) -> str:
    """Return the name of the job to launch: a window of the past has one of its own."""
    return names.backfill_job_of(mapping.feed) if options.window else names.job_of(mapping.feed)


def launch_tags(mapping: FeedMapping, options: RunOptions, launched_by: str) -> Mapping[str, str]:
    """Return the tags of a run to launch: the feed, by whom, and the days that it makes where they are partitions."""
    tags = {names.LAUNCHED_BY_TAG: launched_by, names.FEED_TAG: str(mapping.feed)}
    days = options.window
    if days is None or not has_days(mapping) or days.by != usual_way(mapping.source) or days.column:
        return tags
    if days.first < FIRST_SHOWN or days.last > now().date():
        return tags
    span = {"start": days.first, "end": days.last}
    return {**tags, **{f"dagster/asset_partition_range_{end}": day.isoformat() for end, day in span.items()}}
