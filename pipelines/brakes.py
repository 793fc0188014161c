"""The brakes: questions asked of a finished stage before anything is sent, each with its verdict in a sentence.

Pure. When they are asked is `sync`'s; the thresholds stand in each feed's mapping file.
"""

from __future__ import annotations

from dataclasses import dataclass

from mappings.publishing import Brakes
from pipelines.options import BrakeName
from state.accounts import StageReport

HISTORY_THAT_COUNTS = 20
"""A feed with fewer known rows has no history to compare new rows with."""


@dataclass(frozen=True, slots=True)
class BrakeVerdict:
    """One brake's answer: `measured` and `allowed` are shares (0 to 1) or counts, as `sentence` says."""

    name: BrakeName
    is_tripped: bool
    is_accepted: bool
    measured: float
    allowed: float
    sentence: str

    @property
    def stops(self) -> bool:
        """Whether this verdict keeps the run from publishing."""
        return self.is_tripped and not self.is_accepted


def judge(report: StageReport, limits: Brakes, accepted: tuple[BrakeName, ...]) -> tuple[BrakeVerdict, ...]:
    """Ask every brake of one finished stage, those that a person accepted included."""
    verdicts = (_rejected(report, limits), _shrink(report, limits), _new(report, limits), _copies(report))
    return tuple(
        BrakeVerdict(name, tripped, name in accepted, measured, allowed, sentence)
        for name, tripped, measured, allowed, sentence in verdicts
    )


_Answer = tuple[BrakeName, bool, float, float, str]


def _rejected(report: StageReport, limits: Brakes) -> _Answer:
    rows, rejected = report.account.read - report.account.filtered, report.account.rejected
    share = rejected / rows if rows else 0.0
    allowed = limits.rejected if limits.rejected is not None else 1.0
    tripped = limits.rejected is not None and share > allowed and rejected >= limits.rejected_at_least
    patience = f"{allowed:.1%}, and up to {limits.rejected_at_least - 1} rows in any case"
    sentence = f"{rejected} of {rows} rows rejected ({share:.1%}; the feed allows {patience})"
    return "rejected", tripped, share, allowed, sentence


def _shrink(report: StageReport, limits: Brakes) -> _Answer:
    before, now = report.last_whole_read or 0, report.account.read
    allowed = limits.shrink if limits.shrink is not None else 1.0
    share = max(1 - now / before, 0.0) if report.is_whole and before else 0.0
    tripped = limits.shrink is not None and (share > allowed or share == 1.0)
    sentence = f"{now} rows read, {before} the time before" if before else f"{now} rows read, no earlier read to compare with"
    return "shrink", tripped, share, allowed, sentence


def _new(report: StageReport, limits: Brakes) -> _Answer:
    """Trip where new rows do not add to what is known but replace it, or dwarf it: a partner's ids have changed."""
    known, new = report.known_before, report.account.new - report.restaged
    wanted = report.account.read - report.account.filtered
    share = new / wanted if wanted else 0.0
    replaces = new > 2 * known or report.vanished > new / 2
    allowed = limits.new if limits.new is not None else 1.0
    tripped = limits.new is not None and known >= HISTORY_THAT_COUNTS and share > allowed and replaces
    sentence = f"{new} of {wanted} rows never seen before, beside {known} known ones, {report.vanished} of which have vanished"
    return "new", tripped, share, allowed, sentence


def _copies(report: StageReport) -> _Answer:
    held, new = report.account.held, report.account.new
    share = held / (held + new) if held else 0.0
    tripped = held >= HISTORY_THAT_COUNTS and share > 0.5
    return "copies", tripped, share, 0.5, f"{held} rows look like copies of events sent under other keys, {new} do not"
