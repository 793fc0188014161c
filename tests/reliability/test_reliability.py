"""A part of the matrix of faults, played anew; and the page, held to the lines that the code would make."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from integration.desk import WarmStart
from integration.service import serving
from reliability.line import IN_FLIGHT, TABLE, Stage, play
from reliability.troubles import Keys, Place, every_place

PART = {
    ("connection reset after the work", Keys.IGNORED),
    ("reset while the work goes on", Keys.REPLAYED),
    ("the same, and its 409 names a time", Keys.IGNORED),
    ("answer cut short", Keys.FORGOTTEN),
    ("answer delivered twice", Keys.REFUSED),
    ("answer delivered twice", Keys.FORGOTTEN),
    ("redirect", Keys.IGNORED),
    ("every answer lost", Keys.IGNORED),
    ("every answer lost, then the service is back", Keys.IGNORED),
    ("500 kept under the key, before the work", Keys.REPLAYED),
    ("kill -9 of the worker", Keys.REPLAYED),
    ("kill -9 of the worker", Keys.IGNORED),
    ("kill -9 of the worker", Keys.REFUSED),
    ("kill -9 of the service", Keys.REFUSED),
    ("kill -9 of the worker, state DB lost", Keys.REPLAYED),
}
PLAYED = [place for place in every_place() if (place.trouble.name, place.keys) in PART]
_SURE = ("what goes wrong", "the service", "rows", "lost", "keys", "bodies per key")
"""What does not depend on how many requests a kill meets in flight."""


def test_the_page_has_the_lines_that_the_code_makes_and_none_breaks_a_promise() -> None:
    on_page = [(line["what goes wrong"], line["the service"]) for line in TABLE.rows()]
    assert on_page == [(place.trouble.name, place.keys.said) for place in every_place()]
    assert not [line for line in TABLE.rows() if line["result"].startswith("BROKEN")]
    assert len(PLAYED) == len(PART)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, warm: WarmStart) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("reliability")
    with serving(folder / "service") as service:
        yield Stage(folder, warm, service)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLAYED, ids=[f"{place.trouble.name}; {place.keys.said}" for place in PLAYED])
def test_a_line_keeps_its_promise_and_is_told_on_the_page_as_it_is(place: Place, stage: Stage) -> None:
    line = play(place, stage)
    assert not line.breach, line
    (on_page,) = [one for one in TABLE.rows() if all(one[name] == line.cells[name] for name in _SURE[:2])]
    assert {name: line.cells[name] for name in _SURE} == {name: on_page[name] for name in _SURE}
    assert line.verdict.split(",")[0] == on_page["result"].split(",")[0]
    if place.trouble.scene == "worker killed" and place.keys is Keys.REFUSED:
        assert (0 < line.unconfirmed <= IN_FLIGHT, line.events, line.unmade, line.waiting) == (True, line.rows, 0, 0)
