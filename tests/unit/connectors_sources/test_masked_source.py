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
CAUSE = ValueError(f"GET /query with Bearer {TOKEN}")


def source(mask: Mask, at: str = "", error: Exception | None = None) -> MaskedSource:
    """A source that learns a token as it opens, repeats it in its notices, and fails where it is asked to."""

    def step(when: str) -> None:
        if when == at and error:
            raise error
        if when == at:
            raise SourceUnavailableError(f"answered: {TOKEN} expired", hint=f"log in as {TOKEN}") from CAUSE

    def rows() -> Iterator[SourceRow]:
        yield SourceRow(RowLocation("T", 1), {"id": "1"})
        step("row")

    def ending() -> Ending:
        step("ending")
        return Ending(notices=(f"session {TOKEN} ended",))

    @contextmanager
    def read() -> Iterator[Reading]:
        mask.learn(TOKEN)
        step("open")
        yield Reading(("id",), rows(), ending=ending)

    return MaskedSource(read, mask)


def read_whole(source: MaskedSource) -> Ending:
    with source.read() as reading:
        assert [row.cells["id"] for row in reading.rows] == ["1"]
        return reading.ending()


@pytest.mark.parametrize("at", ["open", "row", "ending"])
def test_an_error_tells_no_secret_nor_do_its_causes(at: str) -> None:
    with pytest.raises(SourceUnavailableError) as caught:
        read_whole(source(Mask(), at))
    assert_untold(caught.value, TOKEN)
    assert f"answered: {MASK} expired" in str(caught.value)


def test_notices_tell_no_secret() -> None:
    assert read_whole(source(Mask())).notices == (f"session {MASK} ended",)


def test_an_innocent_cause_stays() -> None:
    refusal = SourceRefusedError("no such sheet")
    refusal.__cause__ = OSError("closed")
    with pytest.raises(SourceRefusedError) as caught:
        read_whole(source(Mask(), "open", refusal))
    assert str(caught.value.__cause__) == "closed"
