"""The error of a run that somebody asked to stop. It imports next to nothing, so that it can be told in the midst of any import.

How a signal reaches a run is `interrupts`'; what the error means for scripts is `outcomes`'.
"""

from __future__ import annotations

from mappings.errors import SyncError


class InterruptedRunError(SyncError):
    """A person or the machine asked the run to stop; the state is intact."""
