"""A source keeps our secrets, whatever a service repeats of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from unit.connectors_sources.reading import assert_untold

from connectors.masking import MASK, Mask
from connectors.sources.contract import Ending, Reading, SourceRefusedError, SourceUnavailableError
from connectors.sources.feed_source import MaskedSource
from mappings.outcome import RowLocation, SourceRow

TOKEN = "00D5g000004!AQcAQH0dMHZfz972Szmpkb58"


class Telltale:
    """A source that learns a token as it opens, and repeats it where it can."""

    def __init__(self, mask: Mask, *, at: str) -> None:
        self.mask, self.at = mask, at

    @contextmanager
    def read(self) -> Iterator[Reading]:
        self.mask.learn(TOKEN)
        self.tell("open")
        yield Reading(("id",), self.rows(), ending=self.ending)

    def rows(self) -> Iterator[SourceRow]:
        yield SourceRow(RowLocation("T", 1), {"id": "1"})
        self.tell("row")

    def ending(self) -> Ending:
        self.tell("ending")
        return Ending(notices=(f"session {TOKEN} ended",))

    def tell(self, when: str) -> None:
        if when != self.at:
            return
        cause = ValueError(f"GET /query with Bearer {TOKEN}")
        raise SourceUnavailableError(f"answered: {TOKEN} expired", hint=f"log in as {TOKEN}") from cause


def read_whole(source: MaskedSource) -> None:
    with source.read() as reading:
        assert len(list(reading.rows)) == 1
        reading.ending()


@pytest.mark.parametrize("at", ["open", "row", "ending"])
def test_an_error_tells_no_secret_nor_do_its_causes(at: str) -> None:
    mask = Mask()
    with pytest.raises(SourceUnavailableError) as caught:
        read_whole(MaskedSource(Telltale(mask, at=at).read, mask))
    assert_untold(caught.value, TOKEN)
    assert f"answered: {MASK} expired" in str(caught.value)


def test_notices_tell_no_secret() -> None:
    mask = Mask()
    with MaskedSource(Telltale(mask, at="").read, mask).read() as reading:
        assert [row.cells["id"] for row in reading.rows] == ["1"]
        assert reading.ending().notices == (f"session {MASK} ended",)


class Refusing:
    """A source that is refused for a reason of its own."""

    @contextmanager
    def read(self) -> Iterator[Reading]:
        raise SourceRefusedError("no such sheet") from OSError("closed")
        yield Reading((), iter(()))


def test_an_innocent_cause_stays() -> None:
    with pytest.raises(SourceRefusedError) as caught:
        read_whole(MaskedSource(Refusing().read, Mask([TOKEN])))
    assert str(caught.value.__cause__) == "closed"
