"""`eventsync reload`: a Dagster that is already running sees the mapping files as they are now. The work is `reloads`'."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.flags import AsJson


def reload(
    watch: Annotated[bool, typer.Option("--watch", help="Go on: reload whenever a mapping file changes, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> int:
    """Have Dagster read all mapping files anew: a new feed, a changed schedule, a mended file.

    `eventsync ui` does this by itself. Runs read their mapping file when they begin, reloaded or not. For example:

        # After a deployment of new mapping files
        eventsync reload
        # As a service beside a webserver elsewhere
        EVENTSYNC_DAGSTER_URL=http://dagster:3000 eventsync reload --watch

    Exit codes: 0 all files can be used, 2 some cannot (the others run), 6 no Dagster answers.
    """
    from pipelines.cli.reloads import reload_once, watch_folder  # noqa: PLC0415  # keeps `--help` fast

    return watch_folder(as_json=as_json) if watch else reload_once(as_json=as_json)
