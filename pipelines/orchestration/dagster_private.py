"""What is needed of Dagster that has no public name. Everything else imports from `dagster` alone."""

from __future__ import annotations

import multiprocessing

from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._core.events import RunFailureReason
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG, RETRY_ON_ASSET_OR_OP_FAILURE_TAG, WILL_RETRY_TAG

__all__ = [
    "GRPC_INFO_TAG",
    "RETRY_ON_ASSET_OR_OP_FAILURE_TAG",
    "WILL_RETRY_TAG",
    "CheckRunHealthResult",
    "DefaultRunLauncher",
    "RunFailureReason",
    "WorkerStatus",
    "own_job",
]


def own_job() -> str:
    """Return the name of the job that a code server spawned this process for; "" in any other process, or if unknown.

    Dagster passes the job as an argument of the process and has no public way to ask for it before the definitions are loaded.
    """
    arguments = vars(multiprocessing.current_process()).get("_args", ())
    return next((one.job_name for one in arguments if isinstance(one, ReconstructableJob)), "")
