"""The options of a run in the launchpad of the Dagster UI. Secrets are never part of a run's configuration."""

from __future__ import annotations

import dagster as dg
from pydantic import Field

from pipelines.run.options import RunOptions


class LaunchOptions(dg.ConfigurableResource[RunOptions]):
    """The options of one run, typed and described in the launchpad."""

    limit: int | None = Field(default=None, description="Send at most this many rows; the rest stay pending for the next run.")
    row_keys: list[str] = Field(default=[], description="Only these row keys, as `eventsync rows` shows them. Empty: every row.")
    as_draft: bool = Field(default=False, description="Send every event as a draft, whatever the mapping says.")
    accept: list[str] = Field(
        default=[], description="Brakes that this one run may pass: rejected, shrink, left_out, new, copies, scope, keys."
    )
    wait: bool = Field(default=False, description="Wait for another run of the feed to end, instead of leaving.")
    full: bool = Field(default=False, description="Read the source from its start, also where only what changed would be read.")
    window: dict[str, str] = Field(
        default={},
        description="Only rows of these days: `{by: event, first: 2031-05-01, last: 2031-05-31}`, by cursor, file or event;"
        " no bookmark moves, and no row vanishes.",
    )
    publish_only: bool = Field(default=False, description="Send what is already staged; accepts the brakes named above.")

    def create_resource(self, context: object) -> RunOptions:
        """Return the options as `RunOptions`; a wrong brake name fails the run before anything is read."""
        del context
        return RunOptions.model_validate(
            {
                "limit": self.limit,
                "keys": tuple(self.row_keys),
                "status": "draft" if self.as_draft else None,
                "accept": tuple(self.accept),
                "full": self.full,
                "wait": self.wait,
                "publish_only": self.publish_only,
                "window": self.window or None,
            }
        )
