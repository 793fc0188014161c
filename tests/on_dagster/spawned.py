"""What is done in processes that are spawned as Dagster's code server spawns one for a run: it hands over what to run."""

from __future__ import annotations

import multiprocessing
from typing import Any

from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository

Loaded = tuple[list[str], str]
"""The names of all jobs that were built, and the id of the snapshot of the one that is to be run, "" if there is none."""


def loaded_for(job: str) -> Loaded:
    """Load the definitions in a process for a run of this job."""
    return _loaded(_job(job))


def loaded_for_any() -> Loaded:
    """Load them in a process for whatever may be asked for."""
    return _loaded([_job("sync_town_hall")])


def _job(name: str) -> ReconstructableJob:
    return ReconstructableRepository.for_module("pipelines.definitions", "defs").get_reconstructable_job(name)


def _loaded(handed: object) -> Loaded:
    spawning = multiprocessing.get_context("spawn")
    said = spawning.SimpleQueue()
    process = spawning.Process(target=_load, args=[handed, said])
    process.start()
    process.join(120)
    assert process.exitcode == 0
    jobs, snapshot_id = said.get()
    return jobs, snapshot_id


def _load(handed: Any, said: Any) -> None:
    job = handed[0] if isinstance(handed, list) else handed
    repository = job.repository.get_definition()
    names = sorted(one for one in repository.job_names if not one.startswith("__"))
    said.put((names, job.get_definition().get_job_snapshot_id() if job.job_name in names else ""))
