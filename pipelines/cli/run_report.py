"""The report of a run, built from the state DB: the same for a run in this process, on a webserver, or in the past."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, NotRequired

from typing_extensions import TypedDict

from connectors.event_api.answers import in_short
from mappings.outcome import shown_place
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import FeedName, RowKey
from mappings.strict import written, written_rate
from pipelines.cli.feed_files import BrokenFile
from pipelines.cli.output.console import (
    Output,
    counted,
    counts_line,
    document_from,
    publish_line,
    read_line,
    rejection_lines,
    spelt,
)
from pipelines.run.outcome import STAGED, ExitCode, RunOutcome, message_and_hint
from state.enums import Phase, ProblemKind, Waiting
from state.ledger.accounts import PublishAccount, ReadAccount, RejectedRow
from state.ledger.standing import FeedScope, OpenRows
from state.queries import LedgerQueries, RowFilter, RunRecord

if TYPE_CHECKING:
    from pipelines.run.context import RunContext


class Runs(TypedDict):
    """The reports of all runs; `exit_code` is the gravest of theirs, where a broken file counts as 2.

    `broken`: with --all, the mapping files that cannot be used.
    """

    exit_code: int
    runs: Sequence[RunReport]
    broken: NotRequired[Sequence[BrokenFile]]


class Run(TypedDict):
    """A run as recorded in the state DB. `read` and `publish` balance; null: the run did not reach this step, or has not ended.

    `pace`: figures of the sending speed. `standing`: the entries that waited for a person when the run ended, by the value of
    `rows --state`; null for runs of versions before 0.2.
    """

    feed: str
    destination: str
    run_id: str
    dagster_run_id: str | None
    started_at: datetime
    finished_at: datetime | None
    launched_by: str
    phase: Phase
    outcome: str | None
    exit_code: int | None
    message: str
    read: ReadAccount | None
    publish: PublishAccount | None
    brakes: Sequence[str]
    notices: Sequence[str]
    pace: Mapping[str, float]
    standing: Mapping[Waiting, OpenRows] | None


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run of one feed: its outcome and exit code, both accounts, the first rejected rows, the brakes that stopped it.

    `run_id`: empty if Dagster refused to launch a run.
    `drafts`: how many of the delivered events are drafts.
    `notices`: findings about the service or source as a whole. `held`: likely copies that no person has ignored; `vanished`: rows
    that this read was the first to miss; `rejected_before`: rows that earlier reads rejected and this one did not read again;
    `standing`: all entries that wait for a person, by the value of `rows --state`; `refused`: the first three that the service
    refused; `unmapped`: values that are in no lookup. `held_past`: held rows of past events, which do not wait.
    """

    feed: str
    run_id: str
    outcome: str
    exit_code: int
    message: str
    hint: str
    read: dict[str, int] | None = None
    publish: dict[str, int] | None = None
    drafts: int = 0
    brakes: tuple[str, ...] = ()
    warnings: int = 0
    vanished: int = 0
    held: int = 0
    held_past: int = 0
    rejected_before: int = 0
    standing: Mapping[Waiting, OpenRows] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    rejections: tuple[RejectedRow, ...] = ()
    notices: tuple[str, ...] = ()
    pace: Mapping[str, float] = field(default_factory=dict)
    unmapped: tuple[Unmapped, ...] = ()
    refused: tuple[RefusedRow, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that the service refused, with the service's words."""

    place: str
    row_key: RowKey
    problem: str


_SHOWN = 10
"""How many rejected rows and unmapped values are shown at the end of a run; `eventsync rows` lists all."""
_REFUSED_SHOWN = 3
_SAY_WHAT_WAITS = frozenset({"done", "needs attention", "staged"})
"""Outcomes whose message already names what waits for a person."""


def run_document(run: RunRecord) -> Run:
    """Build the JSON document of a run; `runs RUN` adds the details of its stage."""
    return document_from(Run, run, feed=run.book.feed, destination=run.book.destination)


def run_outcome(run: RunRecord) -> str:
    """Return the outcome of a run, or its phase if it has not ended."""
    return run.outcome or f"not ended ({run.phase.value})"


def show_run(output: Output, run: RunRecord, indent: int = 0) -> None:
    """Print a past run: start, feed, outcome, full id to copy; then its report."""
    started = run.started_at.isoformat(sep=" ", timespec="seconds")
    origin = f"(run {run.run_id}, launched by {run.launched_by})"
    output.note(f"{started}  {run.book.feed}  {run_outcome(run)}  {origin}", indent=indent)
    output.note(*_lines(report_from(run)), indent=indent + 2)


def report_of(
    context: RunContext, feed: FeedName, run_id: str, outcome: RunOutcome | None = None, *, dagster_status: str = ""
) -> RunReport:
    """Return the report of a run; if the state DB has no record of it, from `outcome` or Dagster's status."""
    queries = LedgerQueries(context.engine)
    record = queries.run(context.settings.destination, feed, run_id)
    by_dagster = None if dagster_status in {"", "SUCCESS"} else _dagster_outcome(dagster_status)
    if record is None:
        return report_from_outcome(feed, run_id, outcome or by_dagster or _dagster_outcome(dagster_status))
    drafts = queries.drafts(record.book, run_id) if record.publish and record.publish.delivered else 0
    report = replace(report_from(record), drafts=drafts, unmapped=unmapped_of(queries, record.book, run_id))
    if Waiting.REFUSED in report.standing:
        rows = queries.rows(record.book, RowFilter(waiting=Waiting.REFUSED), limit=_REFUSED_SHOWN)
        refused = (RefusedRow(row.origin, row.row_key, in_short(row.answer) if row.answer else "") for row in rows)
        report = replace(report, refused=tuple(refused))
    if by_dagster and report.outcome == STAGED and report.exit_code == ExitCode.DONE:  # stopped between two steps
        report = _ended(report, outcome or by_dagster)
    # A run that could not write the state DB has no outcome there.
    return _ended(report, outcome) if outcome and record.outcome is None else report


def report_from_outcome(feed: str, run_id: str, outcome: RunOutcome) -> RunReport:
    """Return the report of a run of which only the outcome is known."""
    return RunReport(feed, run_id, outcome.name, int(outcome.exit_code), outcome.message, outcome.hint)


def report_from(record: RunRecord) -> RunReport:
    """Return the report of a recorded run."""
    stage, standing = record.stage_report, record.standing
    held = stage.account.held - stage.ignored if stage else 0
    message, hint = message_and_hint(record.message)
    return RunReport(
        feed=record.book.feed,
        run_id=record.run_id,
        outcome=record.outcome or "not ended",
        exit_code=int(ExitCode.ATTENTION) if record.exit_code is None else record.exit_code,
        message=message,
        hint=hint,
        read=asdict(record.read) if record.read else None,
        publish=asdict(record.publish) if record.publish else None,
        brakes=tuple(record.brakes),
        warnings=stage.warnings if stage else 0,
        vanished=stage.vanished if stage and not stage.brakes else 0,  # behind a brake no row is marked as gone
        held=held,
        held_past=0 if standing is None else max(0, held - standing.get(Waiting.HELD, OpenRows()).count),
        rejected_before=stage.standing if stage else 0,
        standing=standing or {},
        skipped=dict(stage.skipped) if stage else {},
        rejections=stage.rejections if stage else (),
        notices=record.notices,
        pace=record.pace,
    )


def _ended(report: RunReport, outcome: RunOutcome) -> RunReport:
    return replace(report, outcome=outcome.name, exit_code=int(outcome.exit_code), message=outcome.message, hint=outcome.hint)


def _dagster_outcome(status: str) -> RunOutcome:
    if status == "CANCELED":
        return RunOutcome(
            "interrupted", ExitCode.INTERRUPTED, "the run was stopped between two steps", "run it again to continue"
        )
    message = f"Dagster reports {status or 'no status'} for the run"
    return RunOutcome("failed", ExitCode.ATTENTION, message, "see the run in the Dagster UI")


def sent_in(report: RunReport) -> int:
    """Return how many rows a run has sent."""
    account = report.publish or {}
    return account.get("new", 0) + account.get("carried_over", 0) - account.get("pending", 0)


def show_sum(output: Output, reports: Sequence[RunReport]) -> None:
    """Print how many runs had which outcome, and those that did not end well; nothing if all reports fit on a screen."""
    if len(reports) <= _SHOWN:
        return
    output.note(f"{counted(len(reports), 'feed')}: {counts_line(Counter(report.outcome for report in reports))}")
    bad = [one for one in reports if one.exit_code]
    if bad:
        lines = (
            {"feed": one.feed, "exit code": one.exit_code, "outcome": one.outcome, "why": one.message.partition("\n")[0]}
            for one in bad
        )
        output.table("feeds that did not end well", lines)


def show_report(output: Output, report: RunReport) -> None:
    """Print one run: its accounts, the first refused and rejected rows, and further values that are in no lookup."""
    show_accounts(output, report)
    rejected = report.read["rejected"] if report.read else len(report.rejections)
    refused = report.standing[Waiting.REFUSED].count if report.refused else 0
    named = ({"place": shown_place(row.place), "row key": row.row_key, "problem": row.problem} for row in report.refused)
    shown = Misses()
    for row in report.rejections[:_SHOWN]:
        shown.take(row.reasons)
    unmapped = [one for one in report.unmapped if one not in shown.values]
    for what, count, most, option, lines in (
        ("rows that the service refused", refused, _REFUSED_SHOWN, "--state refused", list(named)),
        ("rejected rows", rejected, _SHOWN, "--state rejected", list(rejection_lines(report.rejections[:_SHOWN]))),
        ("values that are in no lookup", len(unmapped), _SHOWN, "--unmapped", unmapped_lines(unmapped[:_SHOWN])),
    ):
        more = f" (the first {most} of {count:,}; all: `eventsync rows {report.feed} {option}`)" if count > most else ""
        if lines:
            output.table(f"{report.feed}: {what}{more}", lines)


def show_accounts(output: Output, report: RunReport) -> None:
    """Print one run: its accounts, message and hint."""
    output.note(f"{report.feed}: {report.outcome}" + (f" (run {report.run_id})" if report.run_id else ""))
    output.note(*_lines(report), indent=2)


def _lines(report: RunReport) -> Iterator[str]:
    """Yield the sentences of a report: accounts, counts outside them, pace, notices, message, hint.

    If the message does not name what waits for a person, message and hint are first: they say why the run ended.
    """
    is_cause = report.outcome not in _SAY_WHAT_WAITS
    if is_cause:
        yield from _message(report)
    if report.read:
        yield read_line(report.read)
    if report.skipped:
        yield f"left out: {counts_line(report.skipped)}"
    if report.publish:
        yield publish_line(report.publish, report.drafts)
    also = {"newly gone from the source": report.vanished, "held of past events, which do not wait": report.held_past}
    lists = f"`eventsync rows {report.feed} --state rejected`"
    also[f"rejected by earlier reads and not read again ({lists})"] = report.rejected_before
    if noticed := ", ".join(f"{count:,} {what}" for what, count in also.items() if count):
        yield f"also: {noticed}"
    if pace := pace_line(report.pace):
        yield pace
    yield from (f"notice: {notice}" for notice in report.notices)
    if not is_cause:
        yield from _message(report)
    elif report.standing:
        named = counts_line({spelt(kind): rows.count for kind, rows in report.standing.items()})
        yield f"waits for a person: {named}; see `eventsync status {report.feed}`"


def _message(report: RunReport) -> Iterator[str]:
    yield from report.message.splitlines()
    if report.hint:
        yield f"what to do: {report.hint}"


def pace_line(numbers: Mapping[str, float]) -> str:
    """Return the figures of the sending speed as one line, "" if nothing was sent."""
    if not numbers or not numbers["most_under_way"]:
        return ""
    terms = [f"{written(numbers['rows_per_s'])} rows/s", f"up to {written(numbers['most_under_way'])} at a time"]
    if "rate_per_s" in numbers:
        allowed, used = f"the {written_rate(numbers['rate_per_s'])} that the service allows", numbers.get("used_share")
        terms.append(f"found {allowed}" if used is None else f"{written(min(used, 1.0) * 100)}% of {allowed}")
    if numbers["limited"]:
        terms.append(f"answered 429: {written(numbers['limited'])}, paused {written(numbers['paused_s'])} s")
    if numbers["workers"] > 1:
        terms.append(f"shared by {written(numbers['workers'])} workers")
    return f"pace: {', '.join(terms)}"


@dataclass(frozen=True, slots=True)
class Unmapped:
    """A value that is in no lookup of the mapping, a hint with the nearest known value, and the number of its rows."""

    column: str
    found: str
    hint: str
    count: int


def unmapped_lines(values: Iterable[Unmapped]) -> list[dict[str, object]]:
    """Return one table line per value."""
    return [{"column": one.column, "value": one.found, "rows": one.count, "hint": one.hint} for one in values]


_DISTINCT_VALUES = 500
_MOST_ROWS = 50_000


@dataclass(slots=True)
class Misses:
    """Counts values that are in no lookup: the first 500 distinct ones."""

    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _hints: dict[tuple[str, str], str] = field(default_factory=dict)

    def take(self, reasons: Iterable[Reason]) -> None:
        """Count the unmapped values among the reasons of one row's rejection or warning."""
        for reason in reasons:
            value = (reason.column or reason.field, reason.value or reason.found)
            is_counted = value in self._counts or len(self._counts) < _DISTINCT_VALUES
            if reason.code is ReasonCode.NOT_IN_LOOKUP and is_counted:
                self._counts[value] += 1
                self._hints.setdefault(value, reason.hint)

    @property
    def values(self) -> tuple[Unmapped, ...]:
        """The unmapped values, the most frequent first."""
        return tuple(Unmapped(*value, self._hints[value], count) for value, count in self._counts.most_common())


def unmapped_of(queries: LedgerQueries, scope: FeedScope, run_id: str | None = None) -> tuple[Unmapped, ...]:
    """Return the unmapped values of rejected and warned rows: of one run, or of the last run that read the source."""
    misses = Misses()
    for kind in (ProblemKind.REJECTED, ProblemKind.WARNING):
        for problem in islice(queries.every_problem(scope, kind, run_id=run_id), _MOST_ROWS):
            misses.take(problem.reasons)
    return misses.values
