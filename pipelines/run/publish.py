"""COMMIT POINT 2 of a run: send what is owed and record the answers; never needs the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mappings.errors import SyncError
from pipelines.run.images import CoverProblem
from pipelines.run.preflight import CLEAR, Outlook
from pipelines.run.sending import PublishJob, Sending, pace_numbers
from pipelines.run.signals import run_async
from pipelines.run.write_back import WrittenBack
from state.ledger.accounts import PublishAccount
from state.ledger.lease import LeaseLostError
from state.ledger.standing import NOTHING, Standing


@dataclass(frozen=True, slots=True)
class PublishReport:
    """A drain that ended: `cause` says why it ended before everything was sent, if it did; `standing` what waits for a
    person, since this drain or longer; `pace` how fast it went, in numbers.
    """

    account: PublishAccount
    cause: SyncError | None
    duration_s: float
    cover_problems: tuple[CoverProblem, ...] = ()
    standing: Standing = NOTHING
    outlook: Outlook = CLEAR
    pace: Mapping[str, float] = field(default_factory=dict)
    written_back: WrittenBack = field(default_factory=WrittenBack)


def publish(job: PublishJob) -> PublishReport:
    """Send what is owed, oldest first, several in flight; never needs the source.

    COMMIT POINT 2: a slot takes its next intent in the transaction that settles its last answer.

    Raises:
        SyncError: the state DB cannot record, or the lease was lost; nothing was sent that was not recorded.
    """
    sending = Sending(job)
    started = job.clock_s()
    run_async(sending.run, sending.stop)
    if isinstance(sending.drain.cause, LeaseLostError):
        raise sending.drain.cause
    account = job.outbox.account()
    account.check()
    duration_s = job.clock_s() - started
    settled = account.new + account.carried_over - account.pending
    return PublishReport(
        account,
        sending.drain.cause,
        duration_s,
        tuple(sending.cover_problems),
        job.outbox.standing(),
        sending.outlook,
        pace_numbers(sending.pace, settled, duration_s) if sending.pace else {},
    )
