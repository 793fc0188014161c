"""`eventsync reload`: makes a running Dagster read the mapping files again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    import httpx

    from mappings.errors import ConfigError, TransientError
    from pipelines.cli.feed_files import BrokenFile, broken_files, folder_of
    from pipelines.cli.output.console import Output
    from pipelines.orchestration.webserver import Reloader, Report, Webserver, watch, webserver_url
    from pipelines.run.signals import wait_to_be_stopped
    from pipelines.settings import current_settings


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
    if watch and as_json:
        raise ConfigError("--watch has no end, and so no document", hint="leave out one of --watch and --json")
    settings, output = current_settings(), Output(json=as_json)
    folder_of(settings)
    url = webserver_url(settings)
    if not url:
        hint = "`eventsync ui` starts one; EVENTSYNC_DAGSTER_URL names one elsewhere"
        raise TransientError("no Dagster webserver is known here", hint=hint)
    if watch:
        output.note(f"watching {settings.feeds} for Dagster at {url}; stop with Ctrl-C")
        try:
            with watching(url, settings.feeds, b"", output.note):
                wait_to_be_stopped()
        except KeyboardInterrupt:
            output.note("stopping")
        return 0
    with _http(url) as http:
        seen = Reloader(Webserver(http), settings.feeds).reload()
    feeds = [mapping.feed for mapping in seen.folder.feeds]
    output.document(Reloaded(url=url, feeds=feeds, broken=broken_files(seen.folder.broken)))
    output.note(f"Dagster at {url} has reloaded: {seen}")
    for error in seen.folder.broken:
        output.error(error)
    return 2 if seen.folder.broken else 0


class Reloaded(TypedDict):
    """What the Dagster webserver at `url` sees since it has reloaded the mapping files."""

    url: str
    feeds: Sequence[str]
    broken: Sequence[BrokenFile]


LONGEST_RELOAD_S = 180.0
"""Hundreds of feeds take seconds to load; on a busy machine many."""
LEAVE_S = 5.0


@contextmanager
def watching(url: str, folder: Path, shown: bytes, tell: Report) -> Iterator[None]:
    """Watch the folder for the webserver at `url` during the block, in a thread; `shown` is what it has seen of it."""
    stop = Event()
    with _http(url) as http:
        reloader = Reloader(Webserver(http), folder, shown)
        thread = Thread(target=watch, args=(reloader, tell, stop), name="mapping-files", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(LEAVE_S)


def _http(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=LONGEST_RELOAD_S, trust_env=False)
