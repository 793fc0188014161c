"""Errors as Dagster's failures: whether a retry can help is decided once, for all three retry mechanisms.

| mechanism                                | what it looks at                          | how the decision reaches it         |
|------------------------------------------|-------------------------------------------|-------------------------------------|
| request (`connectors.retry`)             | `TransientError`, seconds                 | it has already been spent here      |
| step (`RetryPolicy`)                     | `Failure(allow_retries=...)`              | if it clears within a step's delays |
| run (`run_retries` of the daemon)        | the tag `dagster/retry_on_asset_or_op_failure` | set to false when it is permanent |
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from mappings.errors import SyncError, TransientError
from pipelines.control_characters import replaced
from pipelines.orchestration.dagster_private import RETRY_ON_ASSET_OR_OP_FAILURE_TAG
from pipelines.run.outcome import faults_as_errors, outcome_of
from state.holders import HeldByAnotherError, LeaseLostError

StepContext = dg.AssetExecutionContext | dg.OpExecutionContext
"""The context of a step, of an asset or of none."""
STEP_DELAY_S = 10.0
"""Seconds before a step tries for the second time, twice as many before the third."""


@contextmanager
def as_failures(context: StepContext) -> Iterator[None]:
    """Raise every error of the block as a `Failure` that says what would help and whether a retry can."""
    try:
        with faults_as_errors(lambda: "at work", context.run.run_id, passing=(dg.Failure,)):
            yield
    except SyncError as error:
        error.args = tuple(replaced(one) if isinstance(one, str) else one for one in error.args)  # Dagster prints the cause, too
        raise failure_of(context, error) from error


@contextmanager
def interrupted_for_good(context: StepContext) -> Iterator[None]:
    """Fail if the block is interrupted: Dagster would retry an interrupted step that has a `RetryPolicy`."""
    try:
        yield
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError) as interruption:
        forbid_run_retry(context)
        raise dg.Failure("interrupted; the state is intact: the next run goes on", allow_retries=False) from interruption


def forbid_run_retry(context: StepContext) -> None:
    """Tag the run so that the daemon does not retry it: a person must act first."""
    context.instance.add_run_tags(context.run.run_id, {RETRY_ON_ASSET_OR_OP_FAILURE_TAG: "false"})


def failure_of(context: StepContext, error: SyncError) -> dg.Failure:
    """Return the failure for an error; a permanent one also forbids the daemon to retry the run."""
    if not isinstance(error, TransientError):
        forbid_run_retry(context)
    outcome = outcome_of(error)
    return dg.Failure(
        description=replaced(outcome.told),
        metadata={
            "outcome": outcome.name,
            "exit_code": int(outcome.exit_code),
            "what would help": dg.MetadataValue.text(replaced(error.hint) or "see the message"),
        },
        allow_retries=_clears_soon(error),
    )


def _clears_soon(error: SyncError) -> bool:
    """Whether a retry in seconds may succeed; another run's lease and a long pause last longer."""
    match error:
        case HeldByAnotherError() | LeaseLostError():
            return False
        case TransientError():
            return (error.retry_after_s or 0.0) <= STEP_DELAY_S
        case _:
            return False
