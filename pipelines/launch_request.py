"""What a launched run is asked for: run configuration and assets from the options of a run. Imports nothing of Dagster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mappings.vocabulary import FeedName
from pipelines import names
from pipelines.options import RunOptions


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
