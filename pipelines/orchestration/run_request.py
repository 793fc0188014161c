"""What a run or backfill of a feed is launched with: its assets, options and tags. Does not import Dagster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping
from pipelines.orchestration import names
from pipelines.run.options import RunOptions


def launch_config(options: RunOptions, feed: FeedName | None = None) -> dict[str, Any]:
    """Return Dagster's run configuration for the `options`, but for the days of a window; it contains no secret.

    `feed`: the one to which the way of a window applies.
    """
    config: dict[str, Any] = options.model_dump(
        mode="json", include={"limit", "accept", "full", "wait", "publish_only"}, exclude_none=True
    )
    config |= {"row_keys": list(options.keys), "as_draft": options.status == "draft"}
    resources = {"resources": {names.OPTIONS: {"config": config}}}
    if feed is None or options.window is None:
        return resources
    way = options.window.model_dump(include={"by", "column"})
    return {**resources, "ops": {names.step_of(feed, "backfilled"): {"config": way}}}


def wanted_assets(mapping: FeedMapping, options: RunOptions) -> Sequence[tuple[str, str]]:
    """Return the assets that a run with these options makes."""
    if options.window:
        return [(mapping.feed, "backfilled")]
    phases = ("staged",) if options.stage_only else ("published",) if options.publish_only else names.PHASES
    return [(mapping.feed, phase) for phase in phases]


def launch_tags(mapping: FeedMapping, options: RunOptions, launched_by: str) -> Mapping[str, str]:
    """Return the tags of a run to launch: the feed, the launcher, and the days of a window."""
    tags = {names.LAUNCHED_BY_TAG: launched_by, names.FEED_TAG: str(mapping.feed)}
    days = options.window
    if days is None:
        return tags
    span = {"start": days.first, "end": days.last}
    return {**tags, **{f"dagster/asset_partition_range_{end}": day.isoformat() for end, day in span.items()}}
