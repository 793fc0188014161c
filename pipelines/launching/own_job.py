"""Which job a process was made for: a code server spawns one for each run, which needs no other feed's definitions.

What is built for it is `definitions`' matter.
"""

from __future__ import annotations

import multiprocessing

from dagster._core.definitions.reconstruct import ReconstructableJob


def own_job() -> str:
    """Return the name of the job that a code server spawned this process for; "" in any other process, or if it cannot be told.

    Dagster hands it over with the process and tells it to nobody before the definitions are loaded, and Python keeps what a
    process was made with to itself: where either changes, a process builds what it does not need.
    """
    handed = vars(multiprocessing.current_process()).get("_args", ())
    return next((one.job_name for one in handed if isinstance(one, ReconstructableJob)), "")
