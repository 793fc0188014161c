"""Runs of the command line, and what is told around them: before, of runs that were lost; after, of all that needs somebody.

What is told, and to whom, is `pipelines.notices`'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from mappings.errors import MappingFileError
from mappings.schema import FeedMapping
from mappings.vocabulary import FeedName
from pipelines.cli.run_report import RunReport
from pipelines.notices import nothing_fails, teller_of
from pipelines.notices_causes import Cause, Concern
from pipelines.outcomes import ExitCode
from pipelines.settings import Settings
from pipelines.wiring import open_workshop

Runner = Callable[[Sequence[FeedMapping]], Iterable[RunReport]]


def telling(settings: Settings, runner: Runner, broken: Sequence[MappingFileError] | None) -> Runner:
    """Return what runs the feeds and tells their owners; what cannot be told is logged, and fails no run.

    `broken`: the files of the folder that cannot be used, None where only a part of it was looked at.
    """

    def run(feeds: Sequence[FeedMapping]) -> Iterator[RunReport]:
        with nothing_fails(), open_workshop(settings) as workshop:
            teller_of(settings, workshop.engine).tell_of_lost_runs(feeds)
        crashes: dict[FeedName, Concern] = {}
        for report in runner(feeds):
            if report.exit_code == ExitCode.ATTENTION and report.outcome == "failed":
                crashes[FeedName(report.feed)] = Concern(Cause.FAILED, report.message, report.hint)
            yield report
        _tell(settings, feeds, crashes, broken)

    return run


def _tell(
    settings: Settings,
    feeds: Sequence[FeedMapping],
    crashes: Mapping[FeedName, Concern],
    broken: Sequence[MappingFileError] | None,
) -> None:
    """Tell what needs somebody. The runs are over: whoever interrupts does not want to wait for a chat, and nothing else."""
    with suppress(KeyboardInterrupt), nothing_fails(), open_workshop(settings) as workshop:
        teller = teller_of(settings, workshop.engine)
        files, concerns = ((), {}) if broken is None else teller.files(broken, feeds)
        about = {one.feed: one for one in (*files, *feeds)}
        teller.tell(about.values(), {**crashes, **concerns})
