"""Times of day as people write them, which no single format reads: 19 Uhr 30, kl. 19, 7-9pm. Formats are `infer_formats`'s."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mappings.steps.formats import NotRealError
from mappings.steps.times import Manner, read_clock_span

_AS_SAID = Manner()


@dataclass(frozen=True, slots=True, eq=False)
class SpokenClock:
    """The step that reads times without a format: `clock`, or `clock_range` where cells hold a beginning and an end."""

    kind: str
    spelling: str = ""
    locale: str = ""
    order: str = ""
    by: tuple[str, ...] = ()

    def fits(self, text: str) -> bool:
        """Whether the whole text is a time, or a range of them."""
        span = _span(text)
        return span is not None and (span[1] is None or self.kind == "clock_range")


def spoken_clocks(texts: Sequence[str]) -> Iterator[SpokenClock]:
    """Yield the step that reads the most of these texts."""
    spans = [span for text in texts if (span := _span(text)) is not None]
    if spans:
        yield SpokenClock("clock_range" if any(end is not None for _, end in spans) else "clock")


def _span(text: str) -> tuple[object, object] | None:
    try:
        return read_clock_span(text, _AS_SAID)
    except NotRealError:
        return None
