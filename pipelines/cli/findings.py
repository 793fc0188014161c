"""What is found in one mapping file without asking anybody: its mistakes, what is unwise in it, examples that fail.

How findings are shown is `checking`'s; what the service and the source say is `live.findings`'.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from connectors.event_api.contract_check import Drift
from mappings.errors import FileProblem, MappingFileError
from mappings.examples import ExampleFailure, run_examples
from mappings.spec.feed import FeedMapping
from pipelines.cli.feed_files import shown_path
from pipelines.cli.source_lint import look_at_source

Severity = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class ExampleFindings:
    """How many examples were run, and those parts that did not come true."""

    run: int = 0
    failed: tuple[ExampleFailure, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveFinding:
    """One question that was asked for a feed: of whom, whether all is well, and the answer for people.

    `severity`: ok, warning (nothing fails yet) or error. `difference`: where the service's page says otherwise than we do.
    """

    asked: str
    ok: bool
    told: str
    exit_code: int = 0
    severity: Severity = "ok"
    difference: Drift | None = None


def well(asked: str, told: str) -> LiveFinding:
    """All is well."""
    return LiveFinding(asked, ok=True, told=told)


def unwise(asked: str, told: str, difference: Drift | None = None) -> LiveFinding:
    """Nothing fails yet, and somebody should look."""
    return LiveFinding(asked, ok=True, told=told, severity="warning", difference=difference)


def wrong(asked: str, told: str, exit_code: int, difference: Drift | None = None) -> LiveFinding:
    """Rows or runs would fail."""
    return LiveFinding(asked, ok=False, told=told, exit_code=exit_code, severity="error", difference=difference)


@dataclass(frozen=True, slots=True)
class FeedFindings:
    """All that was found in one mapping file. `feed` is the file's stem where the file cannot be read as a feed."""

    feed: str
    path: Path
    problems: tuple[FileProblem, ...] = ()
    warnings: tuple[FileProblem, ...] = ()
    examples: ExampleFindings = field(default=ExampleFindings())
    live: tuple[LiveFinding, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether the file may be used: no mistake, and every example came true."""
        return not self.problems and not self.examples.failed


def find(loaded: FeedMapping | MappingFileError) -> FeedFindings:
    """Look through one file, offline; paths are told from the working folder."""
    path = shown_path(loaded.path)
    if isinstance(loaded, MappingFileError):
        return FeedFindings(loaded.path.stem, path, problems=_placed(loaded.problems), warnings=_placed(loaded.warnings))
    source = look_at_source(loaded)
    return FeedFindings(
        loaded.feed,
        path,
        problems=_placed(source.problems),
        warnings=_placed((*loaded.warnings, *source.warnings)),
        examples=ExampleFindings(len(loaded.examples), run_examples(loaded)),
    )


def _placed(problems: tuple[FileProblem, ...]) -> tuple[FileProblem, ...]:
    """Tell each problem in its file: the feed's own at `path`, or one that it includes."""
    return tuple(replace(problem, path=shown_path(problem.path)) for problem in problems)
