"""What is needed of Dagster that has no public name. Everything else imports from `dagster` alone."""

from __future__ import annotations

import multiprocessing

import dagster as dg
from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._core.events import RunFailureReason
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus
from dagster._core.remote_origin import ManagedGrpcPythonEnvCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.storage.tags import (
    GRPC_INFO_TAG,
    HIDDEN_TAG_PREFIX,
    REPOSITORY_LABEL_TAG,
    RETRY_ON_ASSET_OR_OP_FAILURE_TAG,
    WILL_RETRY_TAG,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from pipelines.orchestration import names

__all__ = [
    "GRPC_INFO_TAG",
    "HIDDEN_TAG_PREFIX",
    "ORIGIN_TAGS",
    "RETRY_ON_ASSET_OR_OP_FAILURE_TAG",
    "WILL_RETRY_TAG",
    "CheckRunHealthResult",
    "DefaultRunLauncher",
    "RunFailureReason",
    "WorkerStatus",
    "own_job",
    "set_origin",
]

_LOCATION = ManagedGrpcPythonEnvCodeLocationOrigin(LoadableTargetOrigin(module_name="pipelines.definitions"), names.LOCATION)
_REPOSITORY = RemoteRepositoryOrigin(_LOCATION, names.REPOSITORY)
ORIGIN_TAGS = {REPOSITORY_LABEL_TAG: _REPOSITORY.get_label()}
"""The tags by which the Jobs page finds the runs of a repository."""


def own_job() -> str:
    """Return the name of the job that a code server spawned this process for; "" in any other process, or if unknown.

    Dagster passes the job as an argument of the process and has no public way to ask for it before the definitions are loaded.
    """
    arguments = vars(multiprocessing.current_process()).get("_args", ())
    return next((one.job_name for one in arguments if isinstance(one, ReconstructableJob)), "")


def set_origin(instance: dg.DagsterInstance, run_id: str) -> None:
    """Record that a run belongs to our code location: the UI's timeline leaves out a run without an origin.

    A run that a process executes by itself has none, and no public method of Dagster sets it.
    """
    run = instance.get_run_by_id(run_id)
    if run is not None and run.remote_job_origin is None:
        instance.run_storage.replace_job_origin(run, _REPOSITORY.get_job_origin(run.job_name))
