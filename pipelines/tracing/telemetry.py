"""What a run tells tracing tools of itself while it works: nothing at all, unless somebody listens.

Who listens is chosen in `chosen`; how it is told to OpenTelemetry is `otel`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from connectors.event_api.transport import Seen
from pipelines.outcomes import Outcome

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Work:
    """One run of one feed: what all that is told of it is found by."""

    feed: str
    run_id: str
    launched_by: str


class Telemetry:
    """Where nobody listens: every method leaves things as they are, and costs nothing per row."""

    @property
    def seen(self) -> Seen | None:
        """What each request to the service is told to; None where nobody wants to know."""
        return None

    def run(self, work: Work) -> AbstractContextManager[None]:
        """Stand around all that one process does for a run."""
        del work
        return nullcontext()

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Stand around one of its phases."""
        del name
        return nullcontext()

    def counted(self, account: Mapping[str, int]) -> None:
        """Tell how many rows of a phase ended where."""

    def ended(self, outcome: Outcome) -> None:
        """Tell how a phase ended, or the run where it came to none."""

    def reading(self, advance: Advance) -> Advance:
        """Return what is told after each chunk of rows how many were read, and tells it to `advance`."""
        return advance

    def settling(self, advance: Advance) -> Advance:
        """Return what is told how many rows were settled, and tells it to `advance`."""
        return advance


UNTOLD = Telemetry()
"""Nobody listens."""
