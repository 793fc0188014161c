"""Commands for which permissions hold, also where the tests run as root: to root every file is writable."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

PR_CAPBSET_DROP = 24
OVERRIDES = (1, 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: what lets root pass by permissions. A program that is started gets no more."""


def bound_by_permissions(
    command: Sequence[str], env: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its code and what it printed are the caller's to judge."""
    drop = _drop if os.geteuid() == 0 else None
    return subprocess.run(
        command, env=env, cwd=folder, capture_output=True, text=True, check=False, preexec_fn=drop
    )  # no threads


def _drop() -> None:
    for capability in OVERRIDES:
        if ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            raise OSError("permissions cannot be made to hold here")
