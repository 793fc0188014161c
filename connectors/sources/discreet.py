"""A source that keeps our secrets: whatever a service repeats of them in its answers, errors and notices tell without.

What is secret is `Access.mask`'s knowledge; how a source is read is its kind's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType

from connectors.masking import Mask
from connectors.sources.contract import Ending, Reading, Source
from mappings.errors import SyncError


@dataclass(frozen=True, slots=True)
class DiscreetSource:
    """The same source; its errors and notices hold none of the secrets that `mask` knows by then."""

    source: Source
    mask: Mask

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`."""
        with Discretion(self.mask), self.source.read() as reading:
            yield replace(reading, ending=self._told(reading.ending))

    def _told(self, ending: Callable[[], Ending]) -> Callable[[], Ending]:
        def told() -> Ending:
            with Discretion(self.mask):
                said = ending()
            return replace(said, notices=tuple(map(self.mask.hide, said.notices)))

        return told


@dataclass(frozen=True, slots=True)
class Discretion(AbstractContextManager[None]):
    """Takes the secrets out of every error that leaves the block, and cuts off causes that repeat them."""

    mask: Mask

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None) -> None:
        """Let the error go on, without the secrets."""
        if error is not None:
            self._hush(error)

    def _hush(self, error: BaseException) -> None:
        error.args = tuple(self.mask.hide(part) if isinstance(part, str) else part for part in error.args)
        if isinstance(error, SyncError):
            error.hint = self.mask.hide(error.hint)
        cause = error.__cause__ or error.__context__
        if cause is None:
            return
        said = f"{cause} {cause!r}"
        if self.mask.hide(said) == said:
            self._hush(cause)
        else:
            error.__cause__ = error.__context__ = None
