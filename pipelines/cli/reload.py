"""`eventsync reload`: makes a running Dagster load the mapping files again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
    from pipelines.cli.reloader import Reloader, watch
    from pipelines.cli.webserver import Report, Webserver, webserver_url
    from pipelines.run.signals import wait_to_be_stopped
    from pipelines.settings import Settings, current_settings


def reload(
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep running and reload whenever a mapping file changes, until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Make a running Dagster load all mapping files again: new feeds, changed schedules, corrected files.

    `eventsync ui` does this by itself. A run always reads its mapping file when it starts. For example:

        # After a deployment of new mapping files
        eventsync reload
        # As a service, for a webserver on another host
        EVENTSYNC_DAGSTER_URL=http://dagster:3000 eventsync reload --watch

    Exit codes: 0 all files can be used, 2 some cannot (the other feeds run), 6 no Dagster answers.
    """
    if watch and as_json:
        raise ConfigError("--watch and --json cannot be combined: --watch does not end", hint="leave out one of them")
    settings, output = current_settings(), Output(is_json=as_json)
    folder_of(settings)
    url = webserver_url(settings)
    if not url:
        hint = "start one with `eventsync ui`, or set EVENTSYNC_DAGSTER_URL to its address"
        raise TransientError("no Dagster webserver is known here", hint=hint)
    if watch:
        output.note(f"watching {settings.feeds} for Dagster at {url}; stop with Ctrl-C")
        try:
            with watching(url, settings, b"", output.note):
                wait_to_be_stopped()
        except KeyboardInterrupt:
            output.note("stopping")
        return 0
    with _http(url) as http:
        seen = Reloader(Webserver(http, settings.location), settings.feeds, settings.files).reload()
    feeds = [mapping.feed for mapping in seen.folder.feeds]
    output.document(Reloaded(url=url, feeds=feeds, broken=broken_files(seen.folder.broken)))
    output.note(f"Dagster at {url} has reloaded: {seen}")
    for error in seen.folder.broken:
        output.error(error)
    return 2 if seen.folder.broken else 0


class Reloaded(TypedDict):
    """The feeds and broken files that the Dagster webserver at `url` has loaded."""

    url: str
    feeds: Sequence[str]
    broken: Sequence[BrokenFile]


LONGEST_RELOAD_S = 180.0
"""Timeout of a request: loading hundreds of feeds takes seconds, and longer on a busy machine."""
LEAVE_S = 5.0


@contextmanager
def watching(url: str, settings: Settings, shown: bytes, report: Report) -> Iterator[None]:
    """Watch the folder of feeds in a thread during the block, and reload the webserver at `url` after changes.

    `shown`: the digest of the files that it has loaded.
    """
    with _http(url) as http:
        reloader = Reloader(Webserver(http, settings.location), settings.feeds, settings.files, shown)
        with in_thread("mapping-files", lambda is_over: watch(reloader, report, is_over)):
            yield


@contextmanager
def in_thread(name: str, work: Callable[[Event], None]) -> Iterator[None]:
    """Run `work` in a thread during the block; the event that it receives is set at the end."""
    is_over = Event()
    thread = Thread(target=work, args=(is_over,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(LEAVE_S)


def _http(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=LONGEST_RELOAD_S, trust_env=False)
