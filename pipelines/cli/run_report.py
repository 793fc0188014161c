"""The report of a run, from the books: the same for a run in this process, on a webserver, or long ago."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from typing_extensions import TypedDict

from mappings.spec.feed import FeedMapping
from mappings.strict import written, written_rate
from pipelines.cli.output.console import Output
from pipelines.cli.output.words import REJECTION_COLUMNS, publish_line, read_line, rejection_rows
from pipelines.cli.unmapped import COLUMNS, Unmapped, unmapped_of
from pipelines.run.outcome import ExitCode, Outcome, message_and_hint
from state.enums import Phase, Waiting
from state.ledger.accounts import PublishAccount, ReadAccount, RejectedRow
from state.ledger.standing import OpenRows
from state.queries import LedgerQueries, RunRecord

if TYPE_CHECKING:
    from pipelines.run.context import RunContext


class Runs(TypedDict):
    """What was run, feed by feed; `exit_code` is the worst of theirs."""

    exit_code: int
    runs: Sequence[RunReport]


class Run(TypedDict):
    """A run as the books have it. `read` and `publish` balance; what it did not reach is null, and so is the end of one that
    is at work. `pace`: how fast it sent, in numbers. `standing`: the entries that waited for a person when it ended, by the word
    of `rows --state`; null for runs of versions before 0.2.
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


_JUDGED = frozenset({"done", "needs attention", "staged"})


def run_lines(run: RunRecord) -> list[str]:
    """Return the accounts of a run, one line each; none where it came to none."""
    lines = []
    if run.read:
        lines.append(read_line(asdict(run.read)))
    if run.publish:
        lines.append(publish_line(asdict(run.publish)))
    lines += filter(None, [pace_line(run.pace), standing_line(run.book.feed, run.outcome or "", run.standing)])
    return [*lines, *(f"notice: {notice}" for notice in run.notices)]


def standing_line(feed: str, outcome: str, standing: Mapping[Waiting, OpenRows] | None) -> str:
    """Return what waited for a person when a run ended; "" where its message says so."""
    if not standing or outcome in _JUDGED:
        return ""
    named = ", ".join(f"{kind.value.replace('_', ' ')} {rows}" for kind, rows in standing.items())
    return f"waits for a person: {named}: see `eventsync rows {feed}`"


def run_outcome(run: RunRecord) -> str:
    """Return how it ended, or how far it has come."""
    return run.outcome or f"not ended ({run.phase.value})"


def run_head(run: RunRecord) -> str:
    """Return a run as one line: when it started, its feed, how it ended, its whole id to copy."""
    started = run.started_at.isoformat(sep=" ", timespec="seconds")
    return f"{started}  {run.book.feed}  {run_outcome(run)}  (run {run.run_id}, launched by {run.launched_by})"


def run_told(run: RunRecord) -> list[str]:
    """Return a run as lines: its head, then indented its accounts, what came of it, and what would help."""
    return [run_head(run), *(f"  {line}" for line in (*run_lines(run), *run.message.splitlines()))]


def run_document(run: RunRecord) -> Run:
    """Return a run as scripts read it; the details of its stage are left to `runs RUN`."""
    return Run(
        feed=run.book.feed,
        destination=run.book.destination,
        run_id=run.run_id,
        dagster_run_id=run.dagster_run_id,
        started_at=run.started_at,
        finished_at=run.finished_at,
        launched_by=run.launched_by,
        phase=run.phase,
        outcome=run.outcome,
        exit_code=run.exit_code,
        message=run.message,
        read=run.read,
        publish=run.publish,
        brakes=run.brakes,
        notices=run.notices,
        pace=run.pace,
        standing=run.standing,
    )


SHOWN = 10
"""So many rejected rows are shown at the end of a run; `eventsync rows` has all of them."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run of one feed: its outcome with the exit code, both accounts, what was rejected first, the brakes that stopped it.

    `notices`: what it noticed of the service as a whole. `held`: likely copies that were not ignored; `vanished`: rows that its
    read was the first to miss; `rejected_before`: rows that earlier reads rejected and this one did not read again; `standing`:
    all entries that wait for a person, by the word of `rows --state`; `unmapped`: values that no lookup knows.
    """

    feed: str
    run_id: str
    outcome: str
    exit_code: int
    message: str
    hint: str
    read: dict[str, int] | None = None
    publish: dict[str, int] | None = None
    brakes: tuple[str, ...] = ()
    warnings: int = 0
    vanished: int = 0
    held: int = 0
    rejected_before: int = 0
    standing: Mapping[Waiting, OpenRows] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    rejections: tuple[RejectedRow, ...] = ()
    notices: tuple[str, ...] = ()
    pace: Mapping[str, float] = field(default_factory=dict)
    unmapped: tuple[Unmapped, ...] = ()


def report_of(
    workshop: RunContext, mapping: FeedMapping, run_id: str, outcome: Outcome | None = None, *, dagster_status: str = ""
) -> RunReport:
    """Return the report of a run; where it never reached the books, what Dagster or `outcome` says of it."""
    books = LedgerQueries(workshop.engine)
    record = books.run(workshop.settings.destination, mapping.feed, run_id)
    if record is None:
        told = outcome or _unbooked(dagster_status)
        return RunReport(mapping.feed, run_id, told.name, int(told.exit_code), told.message, told.hint)
    unmapped = unmapped_of(books, record.book, run_id)
    report = _as_dagster_saw_it(replace(_from_books(mapping, record), unmapped=unmapped), dagster_status)
    if outcome is None or record.outcome is not None:
        return report
    # Where the state DB could not be written, it does not know how its run ended.
    return replace(report, outcome=outcome.name, exit_code=int(outcome.exit_code), message=outcome.message, hint=outcome.hint)


def show_reports(output: Output, reports: Sequence[RunReport], exit_code: int) -> None:
    """Print the reports: one JSON document, or for people the accounts and the first rejected rows of each."""
    output.document(Runs(exit_code=exit_code, runs=reports))
    for report in reports:
        show_report(output, report)


def show_report(output: Output, report: RunReport) -> None:
    """Print how one run went: the accounts, and the first rejected rows."""
    show_accounts(output, report)
    if report.rejections:
        rejected = report.read["rejected"] if report.read else len(report.rejections)
        shown = report.rejections[:SHOWN]
        more = f" (the first {len(shown)} of {rejected:,}; all: `eventsync rows {report.feed} --state rejected`)"
        output.table(
            f"{report.feed}: rejected rows{more if rejected > len(shown) else ''}", REJECTION_COLUMNS, rejection_rows(shown)
        )
    _show_unmapped(output, report)


def _show_unmapped(output: Output, report: RunReport) -> None:
    if report.unmapped:
        more = f" (the first {SHOWN} of {len(report.unmapped)}; all: `eventsync rows {report.feed} --unmapped`)"
        title = f"{report.feed}: values that no lookup knows{more if len(report.unmapped) > SHOWN else ''}"
        output.table(title, COLUMNS, [one.line for one in report.unmapped[:SHOWN]])


def show_accounts(output: Output, report: RunReport) -> None:
    """Print how one run went, in numbers that balance."""
    output.note(f"{report.feed}: {report.outcome} (run {report.run_id})")
    for line in _lines(report):
        output.note(f"  {line}")


def _lines(report: RunReport) -> list[str]:
    lines = []
    if report.read:
        lines.append(read_line(report.read))
    if report.skipped:
        lines.append("left out: " + ", ".join(f"{label} {count}" for label, count in report.skipped.items()))
    if report.publish:
        lines.append(publish_line(report.publish))
    if noticed := _noticed(report):
        lines.append(f"also: {noticed}: see `eventsync rows {report.feed}`")
    lines += filter(None, [pace_line(report.pace), standing_line(report.feed, report.outcome, report.standing)])
    lines += [f"notice: {notice}" for notice in report.notices]
    lines += report.message.splitlines()
    if report.hint:
        lines.append(f"what would help: {report.hint}")
    return lines


def _noticed(report: RunReport) -> str:
    """Name what no equation shows, or what needs a person though an equation shows it."""
    told = {
        "newly gone from the source": report.vanished,
        "rejected by earlier reads and not read again (--state rejected)": report.rejected_before,
    }
    return ", ".join(f"{count:,} {what}" for what, count in told.items() if count)


def _from_books(mapping: FeedMapping, record: RunRecord) -> RunReport:
    stage = record.stage_report
    message, hint = message_and_hint(record.message)
    return RunReport(
        feed=mapping.feed,
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
        held=stage.account.held - stage.ignored if stage else 0,
        rejected_before=stage.standing if stage else 0,
        standing=record.standing or {},
        skipped=dict(stage.skipped) if stage else {},
        rejections=stage.rejections if stage else (),
        notices=record.notices,
        pace=record.pace,
    )


def _as_dagster_saw_it(report: RunReport, status: str) -> RunReport:
    """Return the report, not as done where Dagster stopped the run between two steps."""
    if status in {"", "SUCCESS"} or report.exit_code != ExitCode.DONE:
        return report
    told = _unbooked(status)
    return replace(report, outcome=told.name, exit_code=int(told.exit_code), message=told.message, hint=told.hint)


def _unbooked(status: str) -> Outcome:
    if status == "CANCELED":
        return Outcome("interrupted", ExitCode.INTERRUPTED, "the run was stopped between two steps", "run again to go on")
    return Outcome("failed", ExitCode.ATTENTION, f"Dagster says {status or 'nothing'}", "look at the run in the Dagster UI")


_MOST_USED = 1.05


def pace_line(numbers: Mapping[str, float]) -> str:
    """Return the numbers as one line, "" where there are none, or nothing was sent."""
    if not numbers or not numbers["most_under_way"]:
        return ""
    said = [f"{written(numbers['rows_per_s'])} rows/s", f"up to {written(numbers['most_under_way'])} at a time"]
    if "rate_per_s" in numbers:
        said.append(_allowed(numbers["rate_per_s"], numbers.get("used_share")))
    if numbers["limited"]:
        said.append(f"answered 429: {written(numbers['limited'])}, paused {written(numbers['paused_s'])} s")
    if numbers["workers"] > 1:
        said.append(f"shared by {written(numbers['workers'])} workers")
    return f"pace: {', '.join(said)}"


def _allowed(rate_per_s: float, used_share: float | None) -> str:
    allowed = f"the {written_rate(rate_per_s)} that the service allows"
    if used_share is None or used_share > _MOST_USED:  # accounts of earlier versions have any share
        return f"found {allowed}"
    return f"{written(min(used_share, 1.0) * 100)}% of {allowed}"
