"""What is told around runs of the command line: before them, of runs that were lost; after, of all that needs somebody.

What is told, and to whom, is `pipelines.telling.notices`', which is loaded only where there is anybody to tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from mappings.errors import MappingFileError
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping
from pipelines.cli.run_report import RunReport
from pipelines.run.context import open_context
from pipelines.run.outcome import ExitCode
from pipelines.settings import Settings


def tell_before(settings: Settings, feeds: Sequence[FeedMapping]) -> None:
    """Tell of those feeds whose last run was lost. What cannot be told is logged, and keeps no run from beginning."""
    if not settings.channels.addresses:
        return
    from pipelines.notifications.notices import nothing_fails, notifier_of  # noqa: PLC0415  # see the door sign

    with nothing_fails(), open_context(settings) as workshop:
        notifier_of(settings, workshop.engine).tell_of_lost_runs(feeds)


def tell_after(
    settings: Settings,
    feeds: Sequence[FeedMapping],
    reports: Iterable[RunReport],
    broken: Sequence[MappingFileError] | None,
) -> None:
    """Tell of the feeds that were run, once that is reported. What cannot be told is logged, and fails no run; whoever
    interrupts does not want to wait for a chat, and nothing else.

    `broken`: the files of the folder that cannot be used, None where only a part of it was looked at.
    """
    if not settings.channels.addresses:
        return
    from pipelines.notifications.causes import Cause, Concern  # noqa: PLC0415  # as above
    from pipelines.notifications.notices import nothing_fails, notifier_of  # noqa: PLC0415  # see the door sign

    crashes = {
        FeedName(report.feed): Concern(Cause.FAILED, report.message, report.hint)
        for report in reports
        if report.exit_code == ExitCode.ATTENTION and report.outcome == "failed"
    }
    with suppress(KeyboardInterrupt), nothing_fails(), open_context(settings) as workshop:
        teller = notifier_of(settings, workshop.engine)
        files, concerns = ((), {}) if broken is None else teller.files(broken, feeds)
        about = {one.feed: one for one in (*files, *feeds)}
        teller.tell(about.values(), {**crashes, **concerns})
